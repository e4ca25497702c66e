package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
	"umbra/internal/state"
)

// AnswerStore keeps answers over restarts. Keys are hashes of caller and key.
type AnswerStore interface {
	// Answer gives what was kept and is not older than a day. Without a status it is
	// the mark of a request that was done: its handler makes the answer from that.
	Answer(key [sha256.Size]byte) (state.Answer, bool, error)
	// KeepAnswer keeps an answer: over a kill when it returns, and, if durable
	// is asked for, over a power cut.
	KeepAnswer(key [sha256.Size]byte, a state.Answer, durable bool) error
	// BeginKey says that a request runs until end, and under which hash its commits and
	// records know it: its mark is written with them (state.DB.Mark).
	BeginKey(hash string, key, fingerprint [sha256.Size]byte, at time.Time) (end func())
}

// Idempotency is a request's idempotency key at work.
type Idempotency struct {
	key       [sha256.Size]byte // of caller and key
	head      [sha256.Size]byte // of everything but the body
	body      *bodyReader
	at        time.Time
	store     AnswerStore
	ends      func() // once KeyHash was asked for
	begun     string // the note of an earlier run that has no answer
	noted     bool   // Begin was called
	inHistory bool
	unsettled bool
	replayed  bool
}

// fingerprint is the hash of the whole request. It reads what is left of the
// body.
func (i *Idempotency) fingerprint() (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	h.Write(i.head[:])
	if i.body != nil {
		if _, err := io.Copy(io.Discard, i.body); err != nil {
			return sum, err
		}
		h.Write(i.body.hash.Sum(nil))
	}
	h.Sum(sum[:0])
	return sum, nil
}

// KeyHash is "sha256:<hex>" of caller, key and the whole request: what a commit
// carries, so that the same request sent after a crash is known by it. It is
// called once the body was read to its end; a rest is read.
func (i *Idempotency) KeyHash() (string, error) {
	fp, err := i.fingerprint()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(i.key[:], fp[:]...))
	hash := "sha256:" + hex.EncodeToString(sum[:])
	if i.ends == nil {
		i.ends = i.store.BeginKey(hash, i.key, fp, i.at)
	}
	return hash, nil
}

func (i *Idempotency) end() {
	if i.ends != nil {
		i.ends()
	}
}

// InHistory says that the answer's commit is durable and carries KeyHash: the
// answer's record then need not wait for the disk.
func (i *Idempotency) InHistory() { i.inHistory = true }

// Unsettled says that the answer reports a failure that may pass: it is not kept, and the
// request with this key can be sent again.
func (i *Idempotency) Unsettled() { i.unsettled = true }

// Replayed says that the answer is that of an earlier run of this very request,
// known by its KeyHash.
func (i *Idempotency) Replayed() { i.replayed = true }

// Begin records durably that work begins that must not be done twice, with a note for
// Begun. An answer of success replaces it; NotBegun removes it.
func (i *Idempotency) Begin(note string) error {
	i.noted = true
	return i.keepMark(state.Answer{Body: []byte(note), At: time.Now()}, true)
}

// NotBegun removes what Begin recorded, if it was called: the work was not done, or its
// failure is answered, which is not kept. Of a request without a key, nil, it does nothing.
func (i *Idempotency) NotBegun() error {
	if i == nil || !i.noted {
		return nil
	}
	return i.keepMark(state.Answer{At: time.Unix(0, 0)}, false) // older than any answer that is kept
}

func (i *Idempotency) keepMark(a state.Answer, durable bool) error {
	var err error
	if a.Fingerprint, err = i.fingerprint(); err != nil {
		return err
	}
	return i.store.KeepAnswer(i.key, a, durable)
}

// Once returns the function that a handler calls as work begins that must not be done twice;
// nil for a request without an idempotency key. what names the work. The note is the id of
// the request, which the work's commits have. Conflict "<what>_interrupted" where an earlier
// run of this request began the work and was not answered.
func Once(c *gin.Context, what string) (begin func() error, err error) {
	i := IdempotencyOf(c)
	if i == nil {
		return nil, nil
	}
	if i.begun != "" {
		i.Replayed()
		return nil, errs.New(errs.Conflict, what+"_interrupted", "A request with this Idempotency-Key began the %s, and its answer is not known; the %s is not run again. "+
			"What it saved is in history, with the id of that request. To run the %s again, use another key.", what, what, what).With("begun_by", i.begun)
	}
	return func() error { return i.Begin(RequestID(c)) }, nil
}

// Begun returns the note of an earlier run of this request that recorded its begin and
// was not answered; empty if there was none.
func (i *Idempotency) Begun() string { return i.begun }

// flights are the requests with a key that run now.
type flights struct {
	mu  sync.Mutex
	now map[[sha256.Size]byte]*flight
}

type flight struct {
	head [sha256.Size]byte
	done chan struct{}
}

// board makes the caller the one that runs, or gives the twin that does.
func (fs *flights) board(i *Idempotency) (mine, twin *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if twin := fs.now[i.key]; twin != nil {
		return nil, twin
	}
	mine = &flight{head: i.head, done: make(chan struct{})}
	fs.now[i.key] = mine
	return mine, nil
}

func (fs *flights) land(i *Idempotency, mine *flight) {
	fs.mu.Lock()
	delete(fs.now, i.key)
	fs.mu.Unlock()
	close(mine.done)
}

// idempotent lets a request with a key run once. A repeat that comes while the
// first runs waits for it; a later one is answered from the record.
func (s *Server) idempotent(c *gin.Context) {
	f := factsOf(c)
	if f.route == nil || !f.route.Changes {
		return
	}
	values := c.Request.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return
	}
	if len(values) > 1 || !printableASCII(values[0]) {
		Fail(c, errs.New(errs.Invalid, "bad_idempotency_key", "Idempotency-Key must be 1 to 128 printable ASCII characters.").With("field", "Idempotency-Key"))
		return
	}
	i := &Idempotency{body: f.body, at: time.Now(), store: s.opts.Answers}
	i.key = hashOf(f.caller.Token, values[0])
	i.head = requestHash(c.Request, f.caller)
	if i.body != nil {
		i.body.hashed()
	}
	f.idem = i
	for {
		mine, twin := s.flights.board(i)
		if mine != nil {
			s.runOnce(c, f, i, mine)
			return
		}
		if twin.head != i.head {
			Fail(c, keyReused())
			return
		}
		select {
		case <-twin.done:
		case <-c.Request.Context().Done():
			Fail(c, context.Cause(c.Request.Context()))
			return
		}
	}
}

func (s *Server) runOnce(c *gin.Context, f *facts, i *Idempotency, mine *flight) {
	defer s.flights.land(i, mine)
	kept, found, err := s.opts.Answers.Answer(i.key)
	if err != nil {
		Fail(c, errs.Wrap(err, ""))
		return
	}
	if found && !s.repeats(i, kept) {
		s.replay(c, i, kept)
		return
	}
	defer i.end()
	real := c.Writer
	held := &heldWriter{ResponseWriter: real, header: http.Header{}, status: http.StatusOK}
	c.Writer = held
	func() {
		// A panic is answered by the middleware outside, on the real writer.
		defer func() { c.Writer = real }()
		f.exchange.next(c)
	}()
	f.exchange.stampSeq(held.header)
	if i.replayed {
		held.header.Set("Idempotent-Replay", "true")
	}
	// A stream that its client left is not whole.
	held.cut = held.cut || held.stream && c.Request.Context().Err() != nil
	if held.status >= 200 && held.status < 300 && !held.cut && !i.unsettled {
		s.keep(f, i, held)
	}
	held.release()
}

// keep records the answer. An answer whose record could not be kept is sent all
// the same: what it reports has happened.
func (s *Server) keep(f *facts, i *Idempotency, held *heldWriter) {
	fp, err := i.fingerprint()
	if err == nil {
		header := maps.Clone(map[string][]string(held.header))
		delete(header, "Idempotent-Replay")
		err = s.opts.Answers.KeepAnswer(i.key, state.Answer{Fingerprint: fp, Status: held.status, Header: header, Body: held.body.Bytes(), At: i.at}, !i.inHistory)
	}
	if err != nil {
		f.log.LogAttrs(context.Background(), slog.LevelError, "idempotent answer not kept", slog.String("error", err.Error()))
	}
}

// repeats reports whether a request is the one that a mark without an answer is of: its
// handler finds what it did, and reads the body again.
func (s *Server) repeats(i *Idempotency, a state.Answer) bool {
	if a.Status != 0 {
		return false
	}
	if i.body != nil && i.body.keep == nil {
		i.body.keep = &kept{}
	}
	fp, err := i.fingerprint()
	if err != nil || fp != a.Fingerprint {
		return false
	}
	i.body.rewind() // the handler reports a body that was too long for that
	i.begun = string(a.Body)
	return true
}

func (s *Server) replay(c *gin.Context, i *Idempotency, kept state.Answer) {
	fp, err := i.fingerprint()
	if err != nil {
		Fail(c, errs.Wrap(err, ""))
		return
	}
	if fp != kept.Fingerprint {
		Fail(c, keyReused())
		return
	}
	c.Abort()
	copyHeader(c.Writer.Header(), kept.Header)
	c.Header("Idempotent-Replay", "true")
	c.Status(kept.Status)
	c.Writer.WriteHeaderNow()
	_, _ = c.Writer.Write(kept.Body) // a client that is gone may ask again
}

func keyReused() error {
	return errs.New(errs.Unprocessable, "idempotency_key_reused", "The Idempotency-Key was used for another request.")
}

// requestHash covers what makes a request the same, but for its body.
func requestHash(r *http.Request, caller Caller) [sha256.Size]byte {
	parts := []string{caller.Token, r.Method, r.RequestURI}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		switch name {
		case "X-File-Mode", "X-Task-Id", "X-Subtask-Id", "X-Actor", "X-Message":
		default:
			if !strings.HasPrefix(name, "If-") {
				continue
			}
		}
		parts = append(parts, name)
		parts = append(parts, r.Header[name]...)
	}
	return hashOf(parts...)
}

// hashOf hashes texts so that no two lists of them look alike.
func hashOf(parts ...string) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, p := range parts {
		writeSized(h, p)
	}
	h.Sum(sum[:0])
	return sum
}

func writeSized(h hash.Hash, s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	h.Write(n[:])
	_, _ = io.WriteString(h, s)
}

// maxStreamKept is how much of an event stream is recorded. A request whose
// stream is longer runs again when it is repeated, unless it called Begin.
const maxStreamKept = 4 << 20

// heldWriter holds an answer back until its record is kept. An event stream is
// sent as it comes, and recorded too.
type heldWriter struct {
	gin.ResponseWriter
	header  http.Header
	status  int
	written bool
	body    bytes.Buffer
	stream  bool // the head was sent
	cut     bool // body is not the whole stream
}

func (w *heldWriter) Header() http.Header { return w.header }
func (w *heldWriter) Status() int         { return w.status }
func (w *heldWriter) Size() int           { return w.body.Len() }
func (w *heldWriter) Written() bool       { return w.written }
func (w *heldWriter) Flush()              { _ = w.FlushError() }

func (w *heldWriter) FlushError() error {
	if !w.stream {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *heldWriter) WriteHeaderNow() {
	if !w.written && strings.HasPrefix(w.header.Get("Content-Type"), "text/event-stream") {
		w.send()
		w.stream = true
	}
	w.written = true
}

// send sends the head.
func (w *heldWriter) send() {
	copyHeader(w.ResponseWriter.Header(), w.header)
	w.ResponseWriter.WriteHeader(w.status)
	w.ResponseWriter.WriteHeaderNow()
}

func (w *heldWriter) WriteHeader(code int) {
	if code > 0 && !w.written {
		w.status = code
	}
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	if !w.stream {
		return w.body.Write(p)
	}
	if w.cut = w.cut || w.body.Len()+len(p) > maxStreamKept; !w.cut {
		w.body.Write(p)
	}
	n, err := w.ResponseWriter.Write(p)
	w.cut = w.cut || err != nil
	return n, err
}

func (w *heldWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *heldWriter) release() {
	if w.stream {
		return
	}
	w.send()
	_, _ = w.ResponseWriter.Write(w.body.Bytes()) // a client that is gone may ask again
}
