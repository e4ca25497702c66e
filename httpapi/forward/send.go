package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"umbra/httpapi"
	"umbra/internal/errs"
)

const (
	helloPath    = "/cluster/hello"
	handoverPath = "/cluster/handover"
	adoptPath    = "/cluster/adopt"
	arrivePath   = "/cluster/arrive"
	leftPath     = "/cluster/left"
	lookPath     = "/cluster/look"
	dropPath     = "/cluster/drop"
	heldPath     = "/cluster/held"
	// maxWhole is up to what size an answer is received whole before it is sent on:
	// one that breaks off is then as one that never came.
	maxWhole = 64 << 10
	// maxHeld is up to what size a body is kept for a second sending
	// (httpapi.Exchange.Rewind), in bytes.
	maxHeld = 1 << 20
)

// send sends a request to another node and the answer to the client. False: nothing
// was answered, nothing was done, and it is to be tried again.
func (f *Forwarder) send(q *request, t target) bool {
	done, _ := f.sendWithin(q.x.Context(), q, t, func() {})
	return done
}

// sendWithin is send in a context of its own. headed is called once the answer has
// begun; answered reports whether the node answered anything at all.
func (f *Forwarder) sendWithin(ctx context.Context, q *request, t target, headed func()) (done, answered bool) {
	x, began := q.x, time.Now()
	p := f.peer(t.owner)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(errDead) })()
	run, err := p.runOf(ctx, f)
	if err != nil {
		return f.lost(q, err, false), false
	}
	out, body, err := f.outgoing(ctx, x, p, run, t)
	if err != nil {
		x.Fail(err)
		return true, false
	}
	if !p.begin() {
		body.stop()
		return f.lost(q, errLeft, false), false
	}
	var sent atomic.Bool
	out = out.WithContext(httptrace.WithClientTrace(out.Context(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}))
	resp, err := p.transport.RoundTrip(out)
	p.answered()
	if err != nil {
		body.stop()
		return f.lost(q, err, sent.Load()), false
	}
	// The body's reader is to have ended before anything else reads it.
	defer body.stop()
	defer resp.Body.Close()
	headed()
	f.o.Meter.Took.Since(began)
	if resp.StatusCode == http.StatusMisdirectedRequest {
		p.setRun(resp.Header.Get(runHeader))
		f.o.Node.Forget(x.Place.Workspace)
		f.o.Meter.Repeated.Add(1)
		return false, true
	}
	if resp.Header.Get(httpapi.ErrorHeader) == "owner_moving" && time.Now().Before(q.until) {
		f.o.Node.Forget(x.Place.Workspace)
		f.o.Meter.Repeated.Add(1)
		return false, true
	}
	if t.claim && x.Place.Workspace != "" && resp.Header.Get(httpapi.ErrorHeader) == "engine_unavailable" && time.Now().Before(q.until) {
		return false, true
	}
	if q.doubts(resp.Header.Get(httpapi.ErrorHeader)) {
		f.o.Meter.Unknown.Add(1)
		x.Fail(unknown(nil))
		return true, true
	}
	whole, err := wholeOf(resp, x.Request().Method)
	if err != nil {
		return f.lost(q, err, true), true
	}
	f.o.Meter.Answered.Add(1)
	x.To = t.owner.Node
	f.copy(q, resp, whole, cancel)
	return true, true
}

var (
	errDead = errors.New("the node was declared dead")
	errLeft = errors.New("the node has left")
)

// lost decides on a request whose answer did not come. sent says that the node may
// have got it.
func (f *Forwarder) lost(q *request, err error, sent bool) (done bool) {
	x := q.x
	f.o.Log.Debug("no answer of another node", "error", err, "sent", sent)
	switch {
	case x.BodyFailed() != nil:
		x.Fail(err)
		return true
	case x.Context().Err() != nil:
		x.Fail(context.Cause(x.Context()))
		return true
	}
	f.o.Node.Forget(x.Place.Workspace)
	q.uncertain = q.uncertain || sent && !q.read
	if !sent || q.read || x.Keyed {
		f.o.Meter.Repeated.Add(1)
		if sent && !x.Rewind() {
			// With a key the client can settle it.
			f.o.Meter.Unknown.Add(1)
			x.Fail(unknown(err))
			return true
		}
		return false
	}
	f.o.Meter.Unknown.Add(1)
	x.Fail(unknown(err))
	return true
}

func unknown(cause error) error {
	return &errs.Error{Kind: errs.Unavailable, Code: "outcome_unknown", Err: cause,
		Detail: "The workspace's node did not answer the write: it may have been done. With an Idempotency-Key a retry is safe."}
}

// hop are the headers of one connection (RFC 9110, section 7.6.1). Others that a client's
// Connection names go on: to it the nodes are one server, and a write must not lose its
// condition or its key on the way to the owner.
var hop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func withoutHop(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range hop {
		h.Del(name)
	}
	return h
}

// outgoing makes the request as another node gets it.
func (f *Forwarder) outgoing(ctx context.Context, x *httpapi.Exchange, p *peer, run string, t target) (*http.Request, *lentBody, error) {
	in := x.Request()
	base, err := url.Parse(p.address)
	if err != nil {
		return nil, nil, errs.Wrap(err, "")
	}
	out := (&http.Request{Method: in.Method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: in.Host, Header: withoutHop(in.Header), ContentLength: in.ContentLength,
		URL: &url.URL{Scheme: base.Scheme, Host: base.Host, Path: in.URL.Path, RawPath: in.URL.RawPath, RawQuery: in.URL.RawQuery}}).WithContext(ctx)
	// The target goes on byte by byte as it came: a repeated request is known by it.
	if path, _, _ := strings.Cut(in.RequestURI, "?"); strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") {
		out.URL.Opaque, out.URL.ForceQuery = path, strings.HasSuffix(in.RequestURI, "?")
	}
	h := out.Header
	for _, name := range []string{"Authorization", "Expect", "Umbra-Direct", "Umbra-Redirect", "Umbra-Node", runHeader, httpapi.ErrorHeader} {
		h.Del(name)
	}
	if in.ContentLength < 0 || in.ContentLength > maxHeld {
		// Such a body is sent once: the node says first whether it takes it.
		h.Set("Expect", "100-continue")
	}
	if _, given := h["User-Agent"]; !given {
		h["User-Agent"] = nil // else the transport's own
	}
	h.Set("X-Request-Id", x.ID())
	k := x.Caller()
	err = sign(f.o.Node.Key(), out, out.URL.RequestURI(), claims{Node: f.o.Node.Name(), Sender: f.run, Number: f.number.Add(1), To: run, Claim: t.claim, Open: t.open,
		Token: k.Token, Scope: k.Scope, Roots: k.Roots, Owner: k.Owner, Remote: in.RemoteAddr})
	body := &lentBody{}
	if x.HasBody() {
		body.r = exactly(in.Body, in.ContentLength)
		out.Body = body
	} else {
		out.ContentLength = 0
	}
	return out, body, err
}

// exactly returns a body of a known length. The transport reads on at its end. By then the
// answer may have begun, the server have closed the body, and the error would close the
// connection that the answer is on.
func exactly(body io.Reader, length int64) io.Reader {
	if length < 0 {
		return body
	}
	return io.LimitReader(body, length)
}

// lentBody is the client's body in the hands of the transport, which may read it
// after the answer has begun, and longer than this request lasts.
type lentBody struct {
	r io.Reader // nil: none, or not any more

	mu      sync.Mutex
	stopped atomic.Bool
}

func (b *lentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.r == nil || b.stopped.Load() {
		return 0, errors.New("the request is over")
	}
	return b.r.Read(p)
}

// Close leaves the body to the server.
func (b *lentBody) Close() error { return nil }

// stop returns once no Read runs; later ones fail. A client that sends slowly keeps
// it waiting, for as long as the server waits for a body.
func (b *lentBody) stop() {
	if b.r == nil || b.stopped.Swap(true) {
		return
	}
	// No deadline ends it: past the body's end that would be one of the connection.
	b.mu.Lock()
	defer b.mu.Unlock()
	b.r = nil
}

// wholeOf receives a small answer whole; nil for another.
func wholeOf(resp *http.Response, method string) ([]byte, error) {
	n := resp.ContentLength
	if n <= 0 || n > maxWhole || method == http.MethodHead {
		return nil, nil
	}
	whole := make([]byte, n)
	_, err := io.ReadFull(resp.Body, whole)
	return whole, err
}

// copy sends another node's answer to the client.
func (f *Forwarder) copy(q *request, resp *http.Response, whole []byte, cancel context.CancelCauseFunc) {
	x := q.x
	w := x.Writer()
	to := w.Header()
	for name, values := range withoutHop(resp.Header) {
		switch name {
		case httpapi.ErrorHeader, runHeader, "Date":
		case "Vary":
			to[name] = append(to[name], values...) // to what this node has checked
		default:
			to[name] = values
		}
	}
	w.WriteHeader(resp.StatusCode)
	if whole != nil {
		_, _ = w.Write(whole) // a client that is gone needs no answer
		if x.HasBody() {
			_ = http.NewResponseController(w).Flush() // it may wait for it before it sends the rest
		}
		return
	}
	events := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	if events {
		if !x.Stream() {
			x.EndInTime()
		}
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-x.Stopping():
				cancel(errStopping)
			case <-over:
			}
		}()
	}
	rc := http.NewResponseController(w)
	if resp.ContentLength < 0 {
		_ = rc.Flush() // a client that is gone needs no answer
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			if resp.ContentLength < 0 {
				if err := rc.Flush(); err != nil {
					return
				}
			}
		}
		switch {
		case err == io.EOF:
			return
		case err == nil:
		case events && isClosed(x.Stopping()):
			_, _ = w.Write(httpapi.Retry)
			return
		case x.Context().Err() != nil:
			return
		case events:
			// The client comes again, and goes on after the last event that it has.
			_, _ = w.Write(httpapi.Retry)
			return
		default:
			panic(http.ErrAbortHandler) // half an answer must not look whole
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

var errStopping = errors.New("the server stops")

// runOf returns the run of the node's program, which is asked for at first.
func (p *peer) runOf(ctx context.Context, f *Forwarder) (string, error) {
	p.mu.Lock()
	run := p.run
	p.mu.Unlock()
	if run != "" {
		return run, nil
	}
	resp, err := f.call(ctx, p, http.MethodGet, helloPath, claims{Scope: httpapi.ScopeRead})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if run = resp.Header.Get(runHeader); run == "" {
		return "", fmt.Errorf("%s is no node of this cluster: status %d", p.address, resp.StatusCode)
	}
	p.setRun(run)
	return run, nil
}

func (p *peer) setRun(run string) {
	if run != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.run = run
	}
}

// call sends a request of this node's own.
func (f *Forwarder) call(ctx context.Context, p *peer, method, target string, c claims) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.address+target, http.NoBody)
	if err != nil {
		return nil, err
	}
	if c.Part {
		r.Header.Set("Umbra-Strict", "1")
	}
	return f.sendOwn(p, r, c)
}

// sendOwn signs a request of this node's own, and sends it.
func (f *Forwarder) sendOwn(p *peer, r *http.Request, c claims) (*http.Response, error) {
	c.Node, c.Sender, c.Number = f.o.Node.Name(), f.run, f.number.Add(1)
	if err := sign(f.o.Node.Key(), r, r.URL.RequestURI(), c); err != nil {
		return nil, err
	}
	return p.transport.RoundTrip(r)
}

// Handover asks the owner of a workspace to give it up. The error has the owner's
// code where it refused.
func (f *Forwarder) Handover(ctx context.Context, owner Owner, workspace string) error {
	return f.ask(ctx, owner, handoverPath, url.Values{"workspace": {workspace}, "to": {f.o.Node.Name()}})
}

// maxDropped is how many contents a request for Drop names.
const maxDropped = 200

// Drop asks another node to drop what it has of the history of a workspace of this one:
// Options.Drop. The error has its code where it has it in use.
func (f *Forwarder) Drop(ctx context.Context, owner Owner, workspace string, blobs []string, ignored bool) error {
	for {
		n := min(len(blobs), maxDropped)
		err := f.ask(ctx, owner, dropPath, url.Values{"workspace": {workspace}, "blobs": {strings.Join(blobs[:n], ",")}, "ignored": {strconv.FormatBool(ignored)}})
		if blobs = blobs[n:]; err != nil || len(blobs) == 0 {
			return err
		}
	}
}

// Held asks every other live node for the files with some contents of a layer that it had
// before: Options.Held. It fails where one does not answer.
func (f *Forwarder) Held(workspace string, blobs []string) (list []HeldFile, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), f.o.Wait)
	defer cancel()
	peers, err := f.live(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range peers {
		for part := range slices.Chunk(blobs, maxDropped) {
			if p.Name == f.o.Node.Name() {
				break
			}
			q := url.Values{"workspace": {workspace}, "blobs": {strings.Join(part, ",")}}
			resp, body, err := f.exchange(ctx, ownerOf(p), http.MethodPost, heldPath+"?"+q.Encode(), claims{Scope: httpapi.ScopeRead}, maxPart)
			var found []HeldFile
			switch {
			case err == nil && resp.StatusCode == http.StatusNotFound:
				continue // an older program
			case err == nil && resp.StatusCode == http.StatusOK:
				err = json.Unmarshal(body, &found)
			case err == nil:
				err = fmt.Errorf("status %d: %s", resp.StatusCode, refusalOf(body).Detail)
			}
			if err != nil {
				return nil, &errs.Error{Kind: errs.Unavailable, Code: "node_unreachable", Err: err, Detail: "Node " + p.Name + ", which may have files of the fork, does not answer; retry."}
			}
			list = append(list, found...)
		}
	}
	return list, nil
}

func (f *Forwarder) ask(ctx context.Context, owner Owner, path string, q url.Values) error {
	resp, body, err := f.exchange(ctx, owner, http.MethodPost, path+"?"+q.Encode(), claims{Scope: httpapi.ScopeRead}, maxWhole)
	if err != nil || resp.StatusCode == http.StatusOK {
		return err
	}
	r := refusalOf(body)
	if r.Error == "" {
		r.Error, r.Detail = "owner_moving", fmt.Sprintf("The node answered with status %d.", resp.StatusCode)
	}
	return &errs.Error{Kind: errs.Unavailable, Code: r.Error, Detail: r.Detail}
}

// SayLeft has the other nodes send this one nothing more, and waits until what they have sent is
// answered. It is called before the listener is closed: a connection that a server
// closes may have a request on it by then, whose outcome would be unknown. Nodes that do
// not answer until ctx ends are left.
func (f *Forwarder) SayLeft(ctx context.Context) {
	target := leftPath + "?" + url.Values{"node": {f.o.Node.Name()}}.Encode()
	var wg sync.WaitGroup
	for _, p := range f.o.Node.Peers() {
		if p.Name == f.o.Node.Name() {
			continue
		}
		wg.Go(func() {
			if _, _, err := f.exchange(ctx, ownerOf(p), http.MethodPost, target, claims{Scope: httpapi.ScopeRead}, maxWhole); err != nil {
				f.o.Log.Debug("a node does not know that this one has left", "node", p.Name, "error", err)
			}
		})
	}
	wg.Wait()
}

// refusal is the body of another node's error.
type refusal struct{ Error, Detail string }

func refusalOf(body []byte) (r refusal) {
	_ = json.Unmarshal(bytes.TrimSpace(body), &r) // what is no JSON has no code
	return r
}
