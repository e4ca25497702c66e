// Package stdio carries MCP messages between a client's standard input and
// output and a server's streamable HTTP endpoint. It checks a message only as
// far as the HTTP side needs (method, id, name, revision); all else passes as it
// came.
//
// Invariants: what is written are JSON-RPC messages, one a line, each whole. A
// call is answered once, by the server or, where it cannot be reached, by an
// error made here; but for calls that the client cancelled.
package stdio

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Options of a Bridge.
type Options struct {
	// Send sends a request to the endpoint.
	Send func(ctx context.Context, method string, header http.Header, body []byte) (*http.Response, error)
	// MaxMessage bounds a message from the client, in bytes.
	MaxMessage int
}

// sessionless is the first revision in which each request is complete by itself.
const sessionless = "2026-07-28"

// endPatience is how long calls that are under way when the client ends its
// input may still be answered.
const endPatience = 10 * time.Second

// bridge is one run.
type bridge struct {
	o   Options
	ctx context.Context
	out struct {
		sync.Mutex
		w   io.Writer
		err error
	}
	calls sync.WaitGroup

	mu       sync.Mutex
	session  string
	revision string
	cancel   map[string]context.CancelFunc // calls under way, by their id as it is written
	listens  []context.CancelFunc
	stop     context.CancelFunc
}

// message is what the HTTP side has to know of one.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		URI       string          `json:"uri"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      map[string]any  `json:"_meta"`
	} `json:"params"`
	Result *struct {
		ProtocolVersion string `json:"protocolVersion"`
	} `json:"result"`
}

func (m *message) isCall() bool { return m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null" }

// Run carries messages until the client ends its input, ctx ends, or the output
// cannot be written any more.
func Run(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b := &bridge{o: o, ctx: ctx, cancel: map[string]context.CancelFunc{}, stop: stop}
	b.out.w = out
	lines := make(chan []byte)
	ended := make(chan error, 1)
	go func() { ended <- b.read(in, lines) }()
	for {
		select {
		case line := <-lines:
			b.take(line)
			continue
		case err := <-ended:
			b.end()
			return errors.Join(err, b.failed())
		case <-ctx.Done():
			b.end()
			return b.failed()
		}
	}
}

// read gives the client's lines. It may outlive Run where the input never ends.
func (b *bridge) read(in io.Reader, lines chan<- []byte) error {
	r := bufio.NewReaderSize(in, 64<<10)
	var line []byte
	over := false
	for {
		part, err := r.ReadSlice('\n')
		if over = over || len(line)+len(part) > b.o.MaxMessage; over {
			line = line[:0]
		} else {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if over && err == nil {
			b.fail(nil, -32600, "The message is too large.")
			over = false
			continue
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			select {
			case lines <- bytes.Clone(text):
			case <-b.ctx.Done():
				return nil
			}
		}
		line = line[:0]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take sends one message on. Calls run side by side; what has no answer goes
// before the next message does.
func (b *bridge) take(line []byte) {
	var m message
	if !json.Valid(line) {
		b.fail(nil, -32700, "That is no JSON.")
		return
	}
	if line[0] == '{' {
		_ = json.Unmarshal(line, &m) // a member of an odd type is the server's to refuse
	}
	var compact bytes.Buffer
	if json.Compact(&compact, line) == nil {
		line = compact.Bytes()
	}
	switch {
	case m.Method == "notifications/cancelled" && b.drop(m.Params.RequestID, &m):
		return
	case m.Method == "initialize" || !m.isCall():
		b.send(b.ctx, &m, line)
		return
	}
	ctx, cancel := context.WithCancel(b.ctx)
	b.mu.Lock()
	b.cancel[string(m.ID)] = cancel
	if m.Method == "subscriptions/listen" {
		b.listens = append(b.listens, cancel)
	}
	b.mu.Unlock()
	b.calls.Go(func() {
		defer cancel()
		b.send(ctx, &m, line)
		b.mu.Lock()
		delete(b.cancel, string(m.ID))
		b.mu.Unlock()
	})
}

// drop ends a call that the client cancelled: without sessions that is how the
// server learns of it. With one, a notification is sent.
func (b *bridge) drop(id json.RawMessage, m *message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.revisionOf(m) < sessionless {
		return false
	}
	if cancel := b.cancel[string(id)]; cancel != nil {
		cancel()
	}
	return true
}

// revisionOf gives a message's revision of the protocol; mu is held.
func (b *bridge) revisionOf(m *message) string {
	if v, ok := m.Params.Meta["io.modelcontextprotocol/protocolVersion"].(string); ok {
		return v
	}
	return b.revision
}

// header is what goes with a message.
func (b *bridge) header(m *message) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	b.mu.Lock()
	defer b.mu.Unlock()
	revision := b.revisionOf(m)
	if revision != "" && m.Method != "initialize" {
		h.Set("Mcp-Protocol-Version", revision)
	}
	if revision >= sessionless {
		if m.Method != "" {
			h.Set("Mcp-Method", m.Method)
		}
		if name := m.Params.Name + m.Params.URI; name != "" {
			h.Set("Mcp-Name", headerValue(name))
		}
	} else if b.session != "" {
		h.Set("Mcp-Session-Id", b.session)
	}
	// A call that is sent again, because a connection broke, is done once. One with
	// progress notifications is not delayed for that.
	if _, given := m.Params.Meta["progressToken"]; m.Method == "tools/call" && !given {
		h.Set("Idempotency-Key", "stdio-"+rand.Text())
	}
	return h
}

// headerValue is a text as a header has it: as it is, or, where it cannot be
// in one, encoded (SEP-2243).
func headerValue(s string) string {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
	}
	return s
}

// send sends a message and writes what comes back.
func (b *bridge) send(ctx context.Context, m *message, line []byte) {
	header := b.header(m)
	res, err := b.o.Send(ctx, http.MethodPost, header, line)
	if err != nil {
		if ctx.Err() == nil && m.isCall() {
			b.fail(m.ID, -32603, capital(err.Error())+".")
		}
		return
	}
	defer res.Body.Close()
	if m.Method == "initialize" && res.StatusCode < 300 {
		b.mu.Lock()
		b.session = res.Header.Get("Mcp-Session-Id")
		b.mu.Unlock()
	}
	answered, err := b.pass(res, m)
	switch {
	case answered || ctx.Err() != nil || !m.isCall():
	case err != nil:
		b.fail(m.ID, -32603, "The answer broke off.")
	default:
		b.fail(m.ID, -32603, "The server gave no answer.")
	}
	if m.Method == "initialize" && answered {
		b.listen()
	}
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// pass writes the messages of an answer. answered: the call's own is among them.
func (b *bridge) pass(res *http.Response, m *message) (answered bool, err error) {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind == "text/event-stream" && res.StatusCode < 300 {
		err = events(res.Body, func(data []byte) {
			answered = b.write(data, m) || answered
		})
		return answered, err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || len(bytes.TrimSpace(body)) == 0 && res.StatusCode < 300 {
		return false, err
	}
	var probe struct {
		JSONRPC string `json:"jsonrpc"`
		Detail  string `json:"detail"`
	}
	isJSON := json.Unmarshal(body, &probe) == nil
	switch {
	case res.StatusCode < 300 && (isJSON || json.Valid(body)), isJSON && probe.JSONRPC != "":
		return b.write(body, m), nil
	case !m.isCall():
		return false, nil
	case probe.Detail != "":
		b.fail(m.ID, -32603, probe.Detail)
	default:
		b.fail(m.ID, -32603, http.StatusText(res.StatusCode)+": "+strings.TrimSpace(string(body[:min(len(body), 500)])))
	}
	return true, nil
}

// events reads a text/event-stream.
func events(r io.Reader, fn func(data []byte)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var data []byte
	for {
		line, err := in.ReadBytes('\n')
		line = bytes.TrimRight(line, "\r\n")
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(rest, []byte(" "))...), '\n')
		} else if len(line) == 0 && len(data) > 0 {
			fn(data)
			data = nil
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// write writes a message to the client; it reports whether it answers a call.
func (b *bridge) write(data []byte, m *message) bool {
	var line bytes.Buffer
	if json.Compact(&line, data) != nil {
		return false
	}
	var head message
	_ = json.Unmarshal(line.Bytes(), &head)
	answer := m != nil && m.isCall() && head.Method == "" && bytes.Equal(head.ID, m.ID)
	if answer && m.Method == "initialize" && head.Result != nil {
		b.mu.Lock()
		b.revision = head.Result.ProtocolVersion
		b.mu.Unlock()
	}
	line.WriteByte('\n')
	b.out.Lock()
	defer b.out.Unlock()
	if b.out.err == nil {
		if _, b.out.err = b.out.w.Write(line.Bytes()); b.out.err != nil {
			b.stop()
		}
	}
	return answer
}

func (b *bridge) failed() error {
	b.out.Lock()
	defer b.out.Unlock()
	return b.out.err
}

// fail writes an error of our own.
func (b *bridge) fail(id json.RawMessage, code int, text string) {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	raw, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text}})
	if err == nil {
		b.write(raw, nil)
	}
}

// listen opens the session's stream, for what the server says by itself.
func (b *bridge) listen() {
	b.mu.Lock()
	session, revision := b.session, b.revision
	b.mu.Unlock()
	if session == "" {
		return
	}
	go func() {
		h := http.Header{"Accept": {"text/event-stream"}, "Mcp-Session-Id": {session}, "Mcp-Protocol-Version": {revision}}
		res, err := b.o.Send(b.ctx, http.MethodGet, h, nil)
		if err != nil {
			return // changes are then seen in the next list
		}
		defer res.Body.Close()
		if res.StatusCode == http.StatusOK {
			_ = events(res.Body, func(data []byte) { b.write(data, nil) })
		}
	}()
}

// end lets what is under way end, and ends the session.
func (b *bridge) end() {
	done := make(chan struct{})
	go func() {
		b.calls.Wait()
		close(done)
	}()
	b.mu.Lock()
	for _, cancel := range b.listens {
		cancel() // such a call never ends by itself
	}
	session := b.session
	b.mu.Unlock()
	select {
	case <-done:
	case <-time.After(endPatience):
	case <-b.ctx.Done():
	}
	if session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), time.Second)
	defer cancel()
	if res, err := b.o.Send(ctx, http.MethodDelete, http.Header{"Mcp-Session-Id": {session}}, nil); err == nil {
		res.Body.Close()
	}
}
