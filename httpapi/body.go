package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
	"umbra/internal/strictjson"
)

// Bounds on a slow client.
const (
	headTimeout = 10 * time.Second // the whole head of a request
	bodyIdle    = 30 * time.Second // between two pieces of a body
	lingerIdle  = 2 * time.Second  // the same, of a body that is discarded
	lingerTotal = 10 * time.Second
)

// bodyReader is a request's body with its limit and its bound on idleness. What
// breaks it is remembered: it is the true cause of whatever its reader reports.
// It may be read by one goroutine at a time.
type bodyReader struct {
	src    io.ReadCloser
	rc     *http.ResponseController
	limit  int64 // bytes
	multi  bool  // other requests share the connection (HTTP/2)
	hash   hash.Hash
	detach func() bool // stops watching for the server's end
	keep   *kept       // what was read, for a second reading; nil: is not kept

	mu      sync.Mutex
	n       int64
	err     error // what Read answers from now on
	cause   *Problem
	stopped bool
}

// newBody wraps the body of a request. When done ends (the server can wait no
// longer) a blocked Read returns.
func newBody(done context.Context, r *http.Request, rc *http.ResponseController, limit int64) *bodyReader {
	b := &bodyReader{src: r.Body, rc: rc, limit: limit, multi: r.ProtoMajor >= 2}
	b.detach = context.AfterFunc(done, func() {
		b.mu.Lock()
		b.stopped = true
		b.mu.Unlock()
		_ = rc.SetReadDeadline(time.Unix(1, 0)) // not supported: nothing to wake
	})
	return b
}

// Read reads on, waiting bodyIdle for the next piece at most.
func (b *bodyReader) Read(p []byte) (int, error) {
	if n := b.keep.again(p); n > 0 {
		if b.hash != nil {
			b.hash.Write(p[:n])
		}
		return n, nil
	}
	if !b.arm(bodyIdle) {
		return 0, b.err
	}
	n, err := b.src.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n += int64(n)
	switch {
	case b.n > b.limit:
		over := int(b.n - b.limit)
		n = max(0, n-over)
		b.fail(tooLarge(b.limit))
	case err == io.EOF:
		b.err = io.EOF
		_ = b.rc.SetReadDeadline(time.Time{}) // else a long handler's connection would look dead
	case err != nil && b.stopped:
		b.fail(stoppingProblem())
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.fail(&Problem{Status: http.StatusRequestTimeout, Kind: errs.Canceled, Code: "request_timeout", Detail: "The request's body came too slowly.", Err: err})
	case err != nil:
		b.fail(&Problem{Status: http.StatusBadRequest, Kind: errs.Canceled, Code: "bad_body", Detail: "The request's body is broken off or malformed.", Err: err})
	}
	if b.hash != nil {
		b.hash.Write(p[:n])
	}
	b.keep.add(p[:n])
	return n, b.err
}

// arm sets the deadline of the next read, unless the body has ended.
func (b *bodyReader) arm(idle time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && b.stopped {
		b.fail(stoppingProblem())
	}
	if b.err != nil {
		return false
	}
	_ = b.rc.SetReadDeadline(time.Now().Add(idle)) // not supported by a test's recorder
	return true
}

func (b *bodyReader) fail(p *Problem) { b.cause, b.err = p, p }

func (b *bodyReader) failure() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause == nil {
		return nil
	}
	return b.cause
}

// Close leaves the rest of the body for finish.
func (b *bodyReader) Close() error { return nil }

// unread reports whether something of the body may still come.
func (b *bodyReader) unread() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != io.EOF
}

// finish is called after the answer: for a while it reads and drops the rest of an
// unread body, so that the client gets to reading the answer and is not cut off in
// the middle of its sending. It reports whether
// the body has come to its end; else the connection cannot be used again.
func (b *bodyReader) finish(flush func(), stop <-chan struct{}) (ended bool) {
	defer b.detach()
	if !b.unread() {
		return true
	}
	flush()
	b.mu.Lock()
	broken := b.cause != nil && b.cause.Status != http.StatusRequestEntityTooLarge && b.cause.Code != codeBusy
	b.mu.Unlock()
	end := time.Now().Add(lingerTotal)
	var buf []byte
	for !broken && time.Now().Before(end) {
		select {
		case <-stop:
			broken = true
			continue
		default:
		}
		if b.rc.SetReadDeadline(time.Now().Add(lingerIdle)) != nil {
			return true // no network below, as in a test
		}
		if buf == nil {
			buf = make([]byte, 32<<10)
		}
		if _, err := b.src.Read(buf); err != nil {
			if err == io.EOF {
				_ = b.rc.SetReadDeadline(time.Time{})
				return true
			}
			break
		}
	}
	// The server itself would read on for a while, without a deadline.
	_ = b.rc.SetReadDeadline(time.Unix(1, 0))
	return b.multi // HTTP/2 resets the stream alone
}

func tooLarge(limit int64) *Problem {
	return &Problem{Status: http.StatusRequestEntityTooLarge, Kind: errs.TooLarge, Code: "body_too_large",
		Detail: "The request's body is larger than this route takes.", Fields: map[string]any{"limit": limit}}
}

func stoppingProblem() *Problem {
	return &Problem{Status: http.StatusServiceUnavailable, Kind: errs.Unavailable, Code: "stopping", Detail: "The server is stopping.",
		Header: http.Header{"Retry-After": {"5"}}}
}

// BodyReader gives the request's raw body. Its limit (413) and the bound on
// idleness (408) are enforced; such a failure wins over the error that a
// handler makes of it.
func BodyReader(c *gin.Context) io.Reader {
	if b := factsOf(c).body; b != nil {
		return b
	}
	return http.NoBody
}

// DecodeJSON reads the body into dst, strictly (package strictjson). Malformed
// JSON is a 400 malformed_json, a field that dst does not have a 400
// unknown_field with the nearest known name, a value of the wrong type a 400
// invalid_field that names it. An empty body leaves dst as it is where the
// route's body is optional. A field of dst that is given in the query
// is a 400 invalid_parameter: it would be ignored there, and a dry run would be none.
func DecodeJSON(c *gin.Context, dst any) error {
	if err := onlyQuery(c, strictjson.Names(dst)); err != nil {
		return err
	}
	return decodeJSON(c, dst, strictjson.Strict)
}

// DecodeLenient is like DecodeJSON, but ignores unknown fields, as clients of
// the code, sessions and scripts dialects expect. It is not for requests that
// delete.
func DecodeLenient(c *gin.Context, dst any) error { return decodeJSON(c, dst, strictjson.Unmarshal) }

// UnknownField is the error for a field that a request's body does not take:
// 400 unknown_field. known are the names that it does take; hint, if not empty,
// is a sentence that says how to ask for what the field would mean.
func UnknownField(field, hint string, known []string) error {
	e := &strictjson.UnknownError{Field: field, Name: field, Near: strictjson.Nearest(field, known), Known: known}
	return unknownField(e, hint)
}

func unknownField(e *strictjson.UnknownError, hint string) error {
	text := e.Error()
	if !strings.HasSuffix(text, "?") {
		text += "."
	}
	if hint != "" {
		text += " " + hint
	}
	out := errs.New(errs.Invalid, "unknown_field", "%s", strings.ToUpper(text[:1])+text[1:]).With("field", e.Field)
	if e.Near != "" {
		out = out.With("did_you_mean", e.Near)
	}
	return out.With("allowed", e.Known)
}

func decodeJSON(c *gin.Context, dst any, unmarshal func([]byte, any) error) error {
	f := factsOf(c)
	data, err := ReadBody(c)
	if err != nil {
		return errs.Wrap(err, "")
	}
	if len(data) == 0 && f.route != nil && f.route.Body == BodyOptionalJSON {
		return nil
	}
	err = unmarshal(data, dst)
	if e, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
		return errs.New(errs.Invalid, "malformed_json", "The body is not valid JSON: %s.", e)
	}
	if e, ok := errors.AsType[*strictjson.UnknownError](err); ok {
		return unknownField(e, "")
	}
	if e, ok := errors.AsType[*strictjson.TypeError](err); ok {
		what := e.Field
		if what == "" {
			what = "The body"
		}
		return errs.New(errs.Invalid, "invalid_field", "%s must be %s.", what, e.Want).With("field", e.Field)
	}
	if err != nil {
		return errs.Wrap(err, "")
	}
	return nil
}

// readAll is io.ReadAll with the size that the client announced as a first guess,
// not believed beyond 1 MiB. grow is called with the size so far, and ends the
// reading by its error.
func readAll(r io.Reader, announced int64, grow func(size int64) error) ([]byte, error) {
	buf := make([]byte, 0, min(max(announced, 512), 1<<20)+1)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err == nil {
			err = grow(int64(len(buf)))
		}
		if err != nil {
			return nil, err
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}

// isJSON reports whether a Content-Type is JSON in UTF-8.
func isJSON(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return false
	}
	return media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}

// hashed makes the body hash what is read from it.
func (b *bodyReader) hashed() { b.hash = sha256.New() }
