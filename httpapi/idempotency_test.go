package httpapi

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
)

// counting answers with the number of times that it ran.
func counting(runs *atomic.Int32) Handler {
	return func(c *gin.Context) error {
		var v struct {
			Fail string `json:"fail"`
			A    int    `json:"a"`
		}
		if err := DecodeJSON(c, &v); err != nil {
			return err
		}
		n := runs.Add(1)
		if v.Fail != "" {
			return errs.New(errs.Conflict, v.Fail, "It does not work.")
		}
		c.Header("ETag", ETag("x"))
		c.Header("Location", "/there")
		JSON(c, 201, map[string]any{"run": n, "id": RequestID(c)})
		return nil
	}
}

func TestTheSameRequestIsDoneOnce(t *testing.T) {
	var runs atomic.Int32
	s := newServer(t, Options{}, Route{Method: "POST", Pattern: "/x?query", Body: BodyOptionalJSON, Changes: true, Handler: counting(&runs)},
		Route{Method: "POST", Pattern: "/y?query", Body: BodyOptionalJSON, Changes: true, Handler: counting(&runs)},
		Route{Method: "GET", Pattern: "/read", Handler: func(c *gin.Context) error { runs.Add(1); return nil }})
	key := "Idempotency-Key: k 1"
	ask := func(target, body string, headers ...string) *httptest.ResponseRecorder {
		return s.ask("POST", target, body, append(headers, jsonType)...)
	}
	first := ask("/x?query=1", `{"a":1}`, key, "If-Match: *", "X-Actor: me")
	again := ask("/x?query=1", `{"a":1}`, key, "If-Match: *", "X-Actor: me", "Accept: other")
	if runs.Load() != 1 || first.Code != 201 || again.Code != 201 || first.Body.String() != again.Body.String() {
		t.Fatal(runs.Load(), first.Code, first.Body, again.Code, again.Body)
	}
	if first.Header().Get("Idempotent-Replay") != "" || again.Header().Get("Idempotent-Replay") != "true" || again.Header().Get("ETag") != `W/"x"` ||
		again.Header().Get("Location") != "/there" || again.Header().Get("Content-Type") != first.Header().Get("Content-Type") {
		t.Error(again.Header())
	}
	if again.Header().Get("X-Request-Id") == first.Header().Get("X-Request-Id") || len(again.Header().Values("X-Request-Id")) != 1 {
		t.Error("the second request has the first one's id")
	}
	for _, c := range [][]string{
		{"/x?query=1", `{"a":2}`, key, "If-Match: *", "X-Actor: me"}, {"/x?query=2", `{"a":1}`, key, "If-Match: *", "X-Actor: me"},
		{"/y?query=1", `{"a":1}`, key, "If-Match: *", "X-Actor: me"}, {"/x?query=1", `{"a":1}`, key, "X-Actor: me"}, {"/x?query=1", `{"a":1}`, key, "If-Match: *"},
		{"/x?query=1", `{"a":1}`, key, "If-Match: *", "X-Actor: me", "X-Task-Id: t"}, {"/x?query=1", `{"a":1}`, key, "If-Match: *", "X-Actor: me", "X-File-Mode: 100755"},
		{"/x?query=1", `{"a":1}`, key, "If-Match: *", "X-Actor: me", "If-None-Match: *"}, {"/x?%71uery=1", `{"a":1}`, key, "If-Match: *", "X-Actor: me"},
	} {
		expect(t, ask(c[0], c[1], c[2:]...), 422, "idempotency_key_reused")
	}
	if rec := ask("/x?query=1", `{"a":1}`, "Idempotency-Key: other", "If-Match: *", "X-Actor: me"); rec.Code != 201 || runs.Load() != 2 {
		t.Error(rec.Code, runs.Load())
	}
	for _, bad := range []string{"", strings.Repeat("k", 129), "é", "a\x7f"} {
		expect(t, ask("/x", `{}`, "Idempotency-Key: "+bad), 400, "bad_idempotency_key")
	}
	expect(t, ask("/x", `{}`, key, "Idempotency-Key: second"), 400, "bad_idempotency_key")
	s.ask("GET", "/read", "", key)
	s.ask("GET", "/read", "", key)
	if runs.Load() != 4 {
		t.Error("a read with a key is kept", runs.Load())
	}
}

func TestOnlySuccessIsKept(t *testing.T) {
	var runs atomic.Int32
	s := newServer(t, Options{}, Route{Method: "POST", Pattern: "/x", Body: BodyJSON, Changes: true, Handler: counting(&runs)})
	for n := range 3 {
		rec := s.ask("POST", "/x", `{"fail":"task_ended"}`, jsonType, "Idempotency-Key: k")
		expect(t, rec, 409, "task_ended")
		if runs.Load() != int32(n+1) || rec.Header().Get("Idempotent-Replay") != "" {
			t.Fatal("a failure is given again")
		}
	}
	if rec := s.ask("POST", "/x", `{}`, jsonType, "Idempotency-Key: k"); rec.Code != 201 {
		t.Error("a failed request holds its key", rec.Body)
	}
}

// TestAMarkLeavesTheBody: the request of a mark without an answer is handled again, with
// its body, and knows the note of the mark.
func TestAMarkLeavesTheBody(t *testing.T) {
	var runs atomic.Int32
	begun := ""
	s := newServer(t, Options{}, Route{Method: "POST", Pattern: "/x", Body: BodyJSON, Changes: true, Handler: func(c *gin.Context) error {
		i := IdempotencyOf(c)
		begun = i.Begun()
		var v struct {
			A int `json:"a"`
		}
		if err := DecodeJSON(c, &v); err != nil {
			return err
		}
		if err := i.Begin("note"); err != nil {
			return err
		}
		return errs.New(errs.Conflict, "ran", "%d for %d", runs.Add(1), v.A)
	}})
	for n := range 3 {
		rec := s.ask("POST", "/x", `{"a":7}`, jsonType, "Idempotency-Key: k")
		expect(t, rec, 409, "ran")
		if want := fmt.Sprint(n+1, " for 7"); !strings.Contains(rec.Body.String(), want) || (begun == "note") != (n > 0) {
			t.Errorf("%d: %q %s", n, begun, rec.Body)
		}
	}
	expect(t, s.ask("POST", "/x", `{"a":8}`, jsonType, "Idempotency-Key: k"), 422, "idempotency_key_reused")
	if runs.Load() != 3 || s.answers.durable != 3 {
		t.Error(runs.Load(), s.answers.durable)
	}
}

func TestATwinWaits(t *testing.T) {
	var runs atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	s := newServer(t, Options{}, Route{Method: "PUT", Pattern: "/x?other", Body: BodyRaw, Changes: true, Handler: func(c *gin.Context) error {
		if runs.Add(1) == 1 {
			close(begun)
		}
		<-goOn
		c.String(200, "done")
		return nil
	}})
	var wg sync.WaitGroup
	answers := make([]*httptest.ResponseRecorder, 9)
	wg.Go(func() { answers[0] = s.ask("PUT", "/x", "body", "Idempotency-Key: k") })
	<-begun
	// The query differs: the answer need not wait.
	expect(t, s.ask("PUT", "/x?other", "body", "Idempotency-Key: k"), 422, "idempotency_key_reused")
	for i := 1; i < len(answers); i++ {
		wg.Go(func() { answers[i] = s.ask("PUT", "/x", "body", "Idempotency-Key: k") })
	}
	close(goOn)
	wg.Wait()
	for i, rec := range answers {
		if rec.Code != 200 || rec.Body.String() != "done" || (rec.Header().Get("Idempotent-Replay") == "true") != (i > 0) {
			t.Error(i, rec.Code, rec.Body, rec.Header())
		}
	}
	if runs.Load() != 1 {
		t.Error("it ran", runs.Load(), "times")
	}
	if len(s.flights.now) != 0 {
		t.Error("a flight never lands")
	}
}

func TestKeysOfACommit(t *testing.T) {
	var hashes []string
	s := newServer(t, Options{}, Route{Method: "PUT", Pattern: "/x", Body: BodyRaw, Changes: true, Handler: func(c *gin.Context) error {
		i := IdempotencyOf(c)
		if i == nil {
			c.String(200, "no key")
			return nil
		}
		h, err := i.KeyHash()
		if err != nil {
			return err
		}
		hashes = append(hashes, h)
		i.InHistory()
		i.Replayed()
		c.String(200, "x")
		return nil
	}})
	if rec := s.ask("PUT", "/x", "a"); rec.Body.String() != "no key" {
		t.Error(rec.Body)
	}
	rec := s.ask("PUT", "/x", "a", "Idempotency-Key: k")
	if rec.Header().Get("Idempotent-Replay") != "true" || s.answers.durable != 0 {
		t.Error(rec.Header(), s.answers.durable)
	}
	// After a crash that lost the record the same request has the same hash.
	s.answers.answers = nil
	s.ask("PUT", "/x", "a", "Idempotency-Key: k")
	s.answers.answers = nil
	s.ask("PUT", "/x", "b", "Idempotency-Key: k")
	if len(hashes) != 3 || hashes[0] != hashes[1] || hashes[0] == hashes[2] || !strings.HasPrefix(hashes[0], "sha256:") || len(hashes[0]) != 7+64 {
		t.Error(hashes)
	}
}

func TestAuthorizationComesBeforeAReplay(t *testing.T) {
	var runs atomic.Int32
	denied := false
	s := newServer(t, Options{}, Route{Method: "POST", Pattern: "/x", Body: BodyJSON, Changes: true, Handler: counting(&runs), Authorize: func(*gin.Context) error {
		if denied {
			return errs.New(errs.NotFound, "task_not_found", "No such task.")
		}
		return nil
	}})
	s.ask("POST", "/x", `{}`, jsonType, "Idempotency-Key: k")
	denied = true
	expect(t, s.ask("POST", "/x", `{}`, jsonType, "Idempotency-Key: k"), 404, "task_not_found")
	if s.answers.durable != 1 {
		t.Error("an answer without a commit must be durable")
	}
}

func TestAnAnswerGoesOutThoughItsRecordFails(t *testing.T) {
	var runs atomic.Int32
	s := newServer(t, Options{}, Route{Method: "POST", Pattern: "/x", Body: BodyJSON, Changes: true, Handler: counting(&runs)},
		Route{Method: "POST", Pattern: "/panic", Changes: true, Handler: func(*gin.Context) error { panic("x") }})
	s.answers.fail = fmt.Errorf("disk full")
	if rec := s.ask("POST", "/x", `{}`, jsonType, "Idempotency-Key: k"); rec.Code != 201 || !strings.Contains(s.log.String(), "disk full") {
		t.Error(rec.Code, s.log)
	}
	for range 2 { // the key is free again after a panic
		expect(t, s.ask("POST", "/panic", "", "Idempotency-Key: p"), 500, "internal_error")
	}
}
