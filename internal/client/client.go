package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Options say where a server is and who calls.
type Options struct {
	// Address is the address in a server's ready line, or a URL: http://HOST:PORT,
	// https://HOST[/PREFIX], unix:PATH.
	Address string
	Token   string // bearer token; empty: none
	Actor   string // in whose name changes are made; may be empty
	// Dial, if set, makes the connections, whatever Address says.
	Dial func(ctx context.Context) (net.Conn, error)
	// Own reports that the server is the caller's own, on this machine: it is
	// called by a loopback name whatever address it listens on.
	Own bool
}

// Client calls one server. It is safe for concurrent use.
type Client struct {
	base  *url.URL
	host  string // for the Host header, empty: as base says
	name  string // for errors: HOST:PORT or unix:PATH
	token string
	actor string
	http  *http.Client
}

// Error is an answer that is no success.
type Error struct {
	Status int
	Code   string // stable, lower_snake_case; empty where the answer had none
	Detail string // a sentence
	Body   []byte // as it came
}

// Error gives the sentence.
func (e *Error) Error() string {
	switch {
	case e.Detail != "" && e.Code != "":
		return fmt.Sprintf("%s (%s)", strings.TrimSuffix(e.Detail, "."), e.Code)
	case e.Code != "":
		return fmt.Sprintf("the server answered %d %s", e.Status, e.Code)
	}
	return fmt.Sprintf("the server answered %d %s", e.Status, http.StatusText(e.Status))
}

// CodeOf gives the code of an *Error, empty for any other error.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// ErrAddress means that an address has none of the forms of Options.Address.
var ErrAddress = errors.New("an address is http://HOST:PORT, https://HOST or unix:PATH")

// New makes a client; nothing is sent yet. Errors: ErrAddress.
func New(o Options) (*Client, error) {
	transport := &http.Transport{DisableCompression: true, Proxy: http.ProxyFromEnvironment}
	c := &Client{token: o.Token, actor: o.Actor, http: &http.Client{Transport: transport,
		// A redirect could carry the secret to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	address := strings.TrimSuffix(o.Address, "/")
	dial := o.Dial
	if path, isUnix := strings.CutPrefix(address, "unix:"); isUnix && dial == nil {
		dial = func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", path) }
		c.name = address
	}
	if dial != nil {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
		address = "http://localhost"
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q: %w", o.Address, ErrAddress)
	}
	if o.Own && dial == nil {
		transport.Proxy = nil
		// The address is from the data directory and on this machine: any process that could
		// listen there instead could read the secret as well. The certificate may be
		// for other names than localhost.
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
		c.host = net.JoinHostPort("localhost", u.Port())
		u.Host = reachable(u.Host)
	}
	c.base = u
	c.name = cmp.Or(c.name, u.Host)
	return c, nil
}

// reachable gives the address to call where a server listens on all of them.
func reachable(hostport string) string {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return hostport
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if ip.To4() != nil {
			return net.JoinHostPort("127.0.0.1", port)
		}
		return net.JoinHostPort("::1", port)
	}
	return hostport
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Path joins the segments of a route, each percent-encoded.
func Path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// Request is one call.
type Request struct {
	Method string // empty: GET
	Path   string // escaped, see Path
	Query  url.Values
	Body   any    // as JSON; nil: none
	Accept string // empty: application/json
	// Subtask is on what the request changes; Actor too, instead of the
	// client's own.
	Subtask, Actor string
}

// How often, and how long at most, a request is sent again that the server
// puts off.
const (
	maxTries = 5
	maxPause = 30 * time.Second
)

// Do sends a request. The caller closes the answer's body; one that is no
// success is an *Error. What the server asks to be sent again later (429) is.
func (c *Client) Do(ctx context.Context, r Request) (*http.Response, error) {
	for try := 1; ; try++ {
		res, err := c.send(ctx, r)
		if err != nil {
			return nil, err
		}
		if res.StatusCode < 300 {
			return res, nil
		}
		failed := readError(res)
		seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
		pause := time.Duration(seconds) * time.Second
		if res.StatusCode != http.StatusTooManyRequests || err != nil || pause > maxPause || try == maxTries {
			return nil, failed
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *Client) send(ctx context.Context, r Request) (*http.Response, error) {
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	target := c.base.String() + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	var body io.Reader
	if r.Body != nil {
		raw, err := json.Marshal(r.Body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	if c.host != "" {
		req.Host = c.host
	}
	set := func(name, value string) {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	set("Accept", r.Accept)
	if r.Accept == "" {
		set("Accept", "application/json")
	}
	if r.Body != nil {
		set("Content-Type", "application/json")
	}
	if c.token != "" {
		set("Authorization", "Bearer "+c.token)
	}
	if method != http.MethodGet {
		set("X-Actor", cmp.Or(r.Actor, c.actor))
		set("X-Subtask-Id", r.Subtask)
	}
	res, err := c.http.Do(req)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = unreached(c.name, e.Err)
	}
	return res, err
}

// unreached is the error for a server that gave no answer. That nothing listens
// is what most users see, so it comes with what to do.
func unreached(host string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) || strings.HasPrefix(host, "unix:") && errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("no server listens at %s; start one with umbra serve", host)
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound {
		return fmt.Errorf("the host of %s is not known", host)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("the server at %s closed the connection before its answer was complete", host)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && errors.Is(err, e.Err) {
		err = e.Err
	}
	if e, ok := errors.AsType[*os.SyscallError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("the server at %s cannot be reached: %w", host, err)
}

// notJSON is the error for an answer that is not the JSON that was asked for.
func notJSON(path string, err error) error {
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("the answer of %s is not JSON; is the address that of umbra?", path)
	}
	return fmt.Errorf("the answer of %s has not the form that is expected: %w", path, err)
}

// maxError bounds what is read of an error's body: a revert's conflicts are
// in it.
const maxError = 64 << 20

func readError(res *http.Response) *Error {
	defer res.Body.Close()
	e := &Error{Status: res.StatusCode}
	e.Body, _ = io.ReadAll(io.LimitReader(res.Body, maxError))
	var shape struct {
		Error  string `json:"error"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(e.Body, &shape) == nil {
		e.Code, e.Detail = shape.Error, shape.Detail
	}
	return e
}

// JSON sends a request and reads the answer into dst; raw is the answer's text
// as it came.
func (c *Client) JSON(ctx context.Context, r Request, dst any) (raw []byte, err error) {
	res, err := c.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if raw, err = io.ReadAll(res.Body); err != nil {
		return nil, unreached(c.name, err)
	}
	if dst == nil {
		return raw, nil
	}
	if err := json.Unmarshal(raw, dst); err != nil {
		return nil, notJSON(r.Path, err)
	}
	return raw, nil
}
