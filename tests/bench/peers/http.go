package peers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// HTTP is a subject that puts a file by one request. Every client has a connection of its
// own that stays open, and all servers get the same client.
type HTTP struct {
	name, durable string
	base          string // the path goes behind it, escaped
	root          string // the folder that it writes into
	client        *http.Client
	process       *Process
}

// The names of the subjects over HTTP.
const (
	NameServer   = "umbra, HTTP"
	NameSafe     = "safe server without history, net/http"
	NameSafeGin  = "safe server without history, gin"
	durableUmbra = "the change in history; the file on disk follows it after a power cut"
	durableSafe  = "the file"
)

func newHTTPClient(clients int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: max(clients, 1), DisableCompression: true}}
}

func (h *HTTP) Name() string    { return h.name }
func (h *HTTP) Durable() string { return h.durable }

// Process gives the server's process.
func (h *HTTP) Process() *Process { return h.process }

func (h *HTTP) Change(ctx context.Context, _ int, c corpus.Change) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, h.base+url.QueryEscape(c.Path), bytes.NewReader(c.Data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	return expect(h.client, req, nil, http.StatusOK, http.StatusCreated)
}

// expect sends a request and reads the answer to its end; into may be nil.
func expect(client *http.Client, req *http.Request, into func([]byte) error, statuses ...int) error {
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	for _, s := range statuses {
		if res.StatusCode == s {
			if into == nil {
				return nil
			}
			return into(body)
		}
	}
	return fmt.Errorf("%s %s: %s: %s", req.Method, req.URL.Path, res.Status, body)
}

// Safe makes the safe server on net/http alone.
func Safe(p Params) (measure.Subject, error) { return newSafe(p, NameSafe) }

// SafeGin makes it on gin, as umbra is.
func SafeGin(p Params) (measure.Subject, error) { return newSafe(p, NameSafeGin, "-gin") }

// SafeVerb is what this program is called with to be the safe server.
const SafeVerb = "serve-safe"

func newSafe(p Params, name string, options ...string) (measure.Subject, error) {
	dir, err := project(p, "safe-work")
	if err != nil {
		return nil, err
	}
	args := append([]string{SafeVerb}, append(options, dir)...)
	process, address, err := startServer(p.Ctx, p.Env, name, p.Env.Self, args...)
	if err != nil {
		return nil, err
	}
	s := &HTTP{name: name, durable: durableSafe, base: address + "/?path=", root: dir, client: newHTTPClient(p.Clients), process: process}
	p.Env.Defer("connections", func() error { s.client.CloseIdleConnections(); return nil })
	return s, nil
}
