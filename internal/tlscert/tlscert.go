// Package tlscert loads a server's certificate and its key, and loads them again
// when the files change, so that a renewed certificate needs no restart.
package tlscert

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// Source is a certificate and its key, in two PEM files. It is safe for
// concurrent use.
type Source struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	seen   [2]os.FileInfo // the files when they were last read; nil: not found then
}

// Open reads the pair. The error says which file is at fault.
func Open(cert, key string, log *slog.Logger) (*Source, error) {
	s := &Source{cert: cert, key: key, log: log}
	for _, name := range []string{cert, key} {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	s.seen = s.stat()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	s.loaded = &pair
	return s, nil
}

// Config returns a configuration for a server that speaks HTTP/2 and HTTP/1.1.
func (s *Source) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.get, NextProtos: []string{"h2", "http/1.1"}}
}

// get returns the certificate for a handshake. If the files have changed and do
// not make a pair, as when one of them was replaced and the other not yet, the
// pair from before is used.
func (s *Source) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.stat()
	if same(now[0], s.seen[0]) && same(now[1], s.seen[1]) {
		return s.loaded, nil
	}
	s.seen = now
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		s.log.Warn("the changed certificate cannot be used; the one from before stays", "cert", s.cert, "key", s.key, "error", err)
		return s.loaded, nil
	}
	s.loaded = &pair
	s.log.Info("the certificate was loaded again", "cert", s.cert)
	return s.loaded, nil
}

// stat returns what the two files are now.
func (s *Source) stat() (out [2]os.FileInfo) {
	for i, name := range []string{s.cert, s.key} {
		if info, err := os.Stat(name); err == nil {
			out[i] = info
		}
	}
	return out
}

// same reports whether a file is the one that it was, unchanged.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
