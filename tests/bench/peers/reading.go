package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"umbra/tests/bench/corpus"
)

// The names of the subjects that read.
const (
	NameRead      = "umbra, sessions, read"
	NameDownload  = "umbra, sessions, download"
	NameGinStatic = "gin's static files"
	NameBare      = "a bare handler, the same bytes"
)

// Reading is a subject that reads the file which others would change.
type Reading struct {
	name   string
	url    func(path string) string
	client *http.Client
}

func (r *Reading) Name() string { return r.name }

// Durable is empty for a read.
func (r *Reading) Durable() string { return "–" }

// Change reads the file.
func (r *Reading) Change(ctx context.Context, _ int, c corpus.Change) error {
	_, err := fetch(ctx, r.client, r.url(c.Path))
	return err
}

func fetch(ctx context.Context, client *http.Client, target string) (data []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	err = expect(client, req, func(answer []byte) error { data = answer; return nil }, http.StatusOK)
	return data, err
}

// Session is a session of a server, with a client for one connection.
type Session struct {
	base   string
	client *http.Client
}

// Session opens one on a folder.
func (s *Server) Session(ctx context.Context, folder string) (*Session, error) {
	body, err := json.Marshal(map[string]string{"workspaceRoot": folder})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/api/sessions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	var made struct {
		ID string `json:"sessionId"`
	}
	err = expect(s.client, req, func(answer []byte) error { return json.Unmarshal(answer, &made) }, http.StatusCreated)
	return &Session{base: s.URL + "/api/sessions/" + made.ID + "/fs/", client: s.client}, err
}

// Reading gives a subject that reads by an operation ("read", "download").
func (s *Session) Reading(name, op string) *Reading {
	return &Reading{name: name, client: s.client, url: func(path string) string { return s.base + op + "?path=" + url.QueryEscape(path) }}
}

// ListAll lists the whole folder, page after page, and gives the number of
// entries.
func (s *Session) ListAll(ctx context.Context, recursive bool) (int, error) {
	const pageSize = 10_000
	for page, n := 1, 0; ; page++ {
		data, err := s.page(ctx, recursive, page, pageSize)
		if err != nil {
			return 0, err
		}
		got := bytes.Count(data, []byte(`"isDir":`))
		if n += got; got < pageSize {
			return n, nil
		}
	}
}

// ListFirst lists the first page of the default size.
func (s *Session) ListFirst(ctx context.Context, recursive bool) error {
	_, err := s.page(ctx, recursive, 1, 1000)
	return err
}

func (s *Session) page(ctx context.Context, recursive bool, page, size int) ([]byte, error) {
	return fetch(ctx, s.client, fmt.Sprintf("%slist?recursive=%t&page=%d&page_size=%d", s.base, recursive, page, size))
}

// ReadDirs is what a listing is compared with: os.ReadDir and an Lstat of each
// name, in process; recursively if asked.
func ReadDirs(dir string, recursive bool) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	n := len(entries)
	for _, e := range entries {
		name := dir + "/" + e.Name()
		if _, err := os.Lstat(name); err != nil {
			return 0, err
		}
		if recursive && e.IsDir() {
			below, err := ReadDirs(name, true)
			if err != nil {
				return 0, err
			}
			n += below
		}
	}
	return n, nil
}

// GinStatic starts gin's static files on a folder.
func GinStatic(p Params, root string) (*Reading, error) {
	_, address, err := startServer(p.Ctx, p.Env, NameGinStatic, p.Env.Self, SafeVerb, "-gin", root)
	if err != nil {
		return nil, err
	}
	client := newHTTPClient(p.Clients)
	p.Env.Defer("connections", func() error { client.CloseIdleConnections(); return nil })
	return &Reading{name: NameGinStatic, client: client, url: func(path string) string { return address + "/files/" + path }}, nil
}

// Bare starts a program that answers with bytes and does nothing else, and gives
// the URL that it does so at.
func Bare(p Params, data []byte) (string, error) {
	root, err := p.Env.Dir("bare")
	if err != nil {
		return "", err
	}
	const name = "bytes"
	if err := os.WriteFile(filepath.Join(root, name), data, 0o644); err != nil {
		return "", err
	}
	_, address, err := startServer(p.Ctx, p.Env, NameBare, p.Env.Self, SafeVerb, root)
	return address + "/?path=" + name, err
}
