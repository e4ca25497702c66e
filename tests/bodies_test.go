package tests

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

const asJSON = "Content-Type: application/json"

// newTask opens a task on a new folder.
func newTask(t *testing.T, s *harness.Server) (id, root string) {
	t.Helper()
	root = t.TempDir()
	r := s.Do("POST", "/tasks", map[string]any{"goal": "try", "workspace": root}).Expect(201)
	return r.Text("task_id"), root
}

func TestJSONBodies(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Config: "limits: {json_bytes: 2KiB}\n"})
	good := fmt.Sprintf(`{"goal":"g","workspace":%q}`, t.TempDir())
	for _, c := range []struct {
		body, contentType string
		status            int
		code              string
	}{
		{good, "Content-Type: text/plain", 415, "unsupported_media_type"},
		{good, "Content-Type: ", 415, "unsupported_media_type"},
		{good, "Content-Type: multipart/form-data", 415, "unsupported_media_type"},
		{good + "x", asJSON, 400, "malformed_json"},
		{good + good, asJSON, 400, "malformed_json"},
		{`{"goal":"g","goal":"h"}`, asJSON, 400, "malformed_json"},
		{`{"goal":"g","metadata":{"a":1,"a":2}}`, asJSON, 400, "malformed_json"},
		{"{\"goal\":\"\xff\"}", asJSON, 400, "malformed_json"},
		{`{"goal":"\ud800"}`, asJSON, 400, "malformed_json"},
		{strings.Repeat("[", 1000), asJSON, 400, "malformed_json"},
		{``, asJSON, 400, "malformed_json"},
		{`{"goal":"` + strings.Repeat("g", 3000) + `"}`, asJSON, 413, "body_too_large"},
	} {
		r := s.Do("POST", "/tasks", c.body, c.contentType)
		if r.Status != c.status || r.Text("error") != c.code || r.Text("detail") == "" {
			t.Errorf("%.60s: %d %s", c.body, r.Status, r.Body)
		}
	}
	// A name in another case is another name.
	if r := s.Do("POST", "/tasks", `{"Goal":"g","Workspace":"/"}`, asJSON); r.Status != 400 || r.Text("error") != "unknown_field" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	s.Do("POST", "/tasks", good, asJSON).Expect(201)
}

func TestABodyThatStallsIsRefused(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	task, _ := newTask(t, s)
	conn := s.Dial()
	fmt.Fprintf(conn, "PUT /tasks/%s/content?path=f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf", task)
	start := time.Now()
	need.NoError(t, conn.SetReadDeadline(start.Add(3*time.Minute)))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	need.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 408 || !strings.Contains(string(body), `"task_id":"`+task+`"`) {
		t.Errorf("%d %s %v", res.StatusCode, body, err)
	}
	if took := time.Since(start); took < 28*time.Second {
		t.Error("after", took)
	}
	s.Do("GET", "/tasks/"+task+"/content?path=f", nil).Expect(404)
}

func TestAStopHoldsNobodyTooLong(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{}).First()
	task, root := newTask(t, s)
	stream := s.Stream("/tasks/" + task + "/stream")
	trickle := s.Dial()
	fmt.Fprintf(trickle, "PUT /tasks/%s/content?path=f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nhalf", task)
	// The stop must find the request accepted: another one after it was answered.
	s.Do("PUT", "/tasks/"+task+"/content?path=g", "whole").Expect(201)
	if e, ok := stream.Next(); !ok || e.Name != "change" {
		t.Error(e, ok)
	}
	s.Signal(syscall.SIGTERM)
	e, ok := stream.Next()
	if ok && e.Name == "" && harness.Nodes() > 0 { // retry: another node goes on
		e, ok = stream.Next()
	}
	if ok {
		t.Errorf("the stream goes on with %+v", e)
	}
	go func() {
		beat := time.NewTicker(100 * time.Millisecond)
		defer beat.Stop()
		for range beat.C {
			if _, err := trickle.Write([]byte("x")); err != nil {
				return
			}
		}
	}()
	if status := s.Wait(); status != 0 {
		t.Error("exit status", status)
	}
	if _, err := os.Lstat(filepath.Join(root, "f")); err == nil {
		t.Error("half a file was written")
	}
}

func TestTheSameKeyAfterAKill(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	task, root := newTask(t, s)
	target := "/tasks/" + task + "/content?path=f"
	first := s.Do("PUT", target, "one", "Idempotency-Key: k").Expect(201)
	same := s.Do("PUT", target, "one", "Idempotency-Key: none").Expect(200) // commit:null is kept too
	s.Kill()
	s.Restart()
	need.NoError(t, os.WriteFile(filepath.Join(root, "f"), []byte("a person's"), 0o600))
	for key, want := range map[string]*harness.Response{"k": first, "none": same} {
		again := s.Do("PUT", target, "one", "Idempotency-Key: "+key).Expect(want.Status)
		if string(again.Body) != string(want.Body) || again.Header.Get("Idempotent-Replay") != "true" || again.Header.Get("ETag") != want.Header.Get("ETag") {
			t.Errorf("%s %v\nafter\n%s %v", again.Body, again.Header, want.Body, want.Header)
		}
	}
	s.Do("PUT", target, "two", "Idempotency-Key: k").ExpectError(422, "idempotency_key_reused")
	s.Do("DELETE", target, nil, "Idempotency-Key: k").ExpectError(422, "idempotency_key_reused")
	if raw, err := os.ReadFile(filepath.Join(root, "f")); err != nil || string(raw) != "a person's" {
		t.Errorf("%q %v", raw, err)
	}
	// Another task's id on the same key is another request.
	s.Do("PUT", target, "one", "Idempotency-Key: k", "X-Subtask-Id: s").ExpectError(422, "idempotency_key_reused")
}

func TestScopesAndRoots(t *testing.T) {
	t.Parallel()
	mine, other := t.TempDir(), t.TempDir()
	sum := func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
	s := harness.Start(t, harness.Options{Config: fmt.Sprintf(
		"auth: {tokens: [{name: writer, scope: write, sha256: '%s', roots: [%q]}, {name: reader, scope: read, sha256: '%s', roots: [%q]}, {name: all, scope: write, sha256: '%s', roots: [/]}, {name: lookout, scope: read, sha256: '%s'}]}\n",
		sum("w"), mine, sum("r"), mine, sum("a"), sum("l"))})
	as := func(token string) string { return "Authorization: Bearer " + token }
	body := func(root string) map[string]any { return map[string]any{"goal": "g", "workspace": root} }
	task := s.Do("POST", "/tasks", body(mine), as("w")).Expect(201).Text("task_id")
	hidden := s.Do("POST", "/tasks", body(other), as("a")).Expect(201).Text("task_id")

	s.Do("POST", "/tasks", body(other), as("w")).Expect(403)
	s.Do("POST", "/tasks", body(mine), as("r")).ExpectError(403, "forbidden")
	s.Do("GET", "/tasks/"+task, nil, as("r")).Expect(200)
	s.Do("GET", "/tasks/"+hidden, nil, as("w")).Expect(404)
	s.Do("GET", "/tasks/"+hidden, nil, as("l")).Expect(200)
	s.Do("GET", "/tasks/"+hidden+"/content?path=x", nil, as("r")).Expect(404)
	s.Do("PUT", "/tasks/"+hidden+"/content?path=x", "x", as("w")).Expect(404)
	s.Do("PUT", "/tasks/"+task+"/content?path=x", "x", as("r")).ExpectError(403, "forbidden")
	if r := s.Do("GET", "/tasks", nil, as("w")).Expect(200); strings.Contains(string(r.Body), hidden) || !strings.Contains(string(r.Body), task) {
		t.Errorf("%s", r.Body)
	}
	// The token's name signs, whatever the header says; each token has keys of its own.
	s.Do("PUT", "/tasks/"+task+"/content?path=x", "x", as("w"), "X-Actor: somebody", "Idempotency-Key: k").Expect(201)
	if r := s.Do("GET", "/tasks/"+task+"/changes", nil, as("r")).Expect(200); !strings.Contains(string(r.Body), `"actor":"writer"`) {
		t.Errorf("%s", r.Body)
	}
	s.Do("PUT", "/tasks/"+task+"/content?path=x", "x", as("a"), "X-Actor: somebody", "Idempotency-Key: k").Expect(200)
}

func TestWhereAWorkspaceMayBeOpened(t *testing.T) {
	t.Parallel()
	inside, outside := t.TempDir(), t.TempDir()
	open := func(s *harness.Server, root string) int {
		return s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": root}).Status
	}
	s := harness.Start(t, harness.Options{Config: fmt.Sprintf("workspaces: {roots: [%q]}\n", inside)})
	need.NoError(t, os.Symlink(outside, filepath.Join(inside, "out")))
	for root, want := range map[string]int{inside: 201, outside: 403, filepath.Join(inside, "out"): 403} {
		if status := open(s, root); status != want {
			t.Errorf("%s: %d, want %d", root, status, want)
		}
	}
	if status := open(harness.Start(t, harness.Options{Args: []string{"--hosted"}}), inside); status != 403 {
		t.Errorf("hosted: %d", status)
	}
}
