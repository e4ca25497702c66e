package tests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/tests/harness"
)

// event is one server-sent event as it came.
type event struct {
	ID, Name string
	Data     map[string]any
}

// eventStream is an open stream, read as it comes.
type eventStream struct {
	*harness.Stream
	events chan event // closed when the stream ends
}

// events opens a stream; header is names and values in turn.
func (p *project) events(t *testing.T, path string, header ...string) *eventStream {
	t.Helper()
	var lines []string
	for i := 0; i+1 < len(header); i += 2 {
		lines = append(lines, header[i]+": "+header[i+1])
	}
	s := &eventStream{Stream: p.Stream(path, lines...), events: make(chan event, 4096)}
	ended := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		defer close(s.events)
		for {
			raw, ok := s.Stream.Next()
			if !ok {
				return
			}
			if raw.Name == "" {
				continue
			}
			e := event{ID: raw.ID, Name: raw.Name}
			dec := json.NewDecoder(strings.NewReader(raw.Data))
			dec.UseNumber()
			if err := dec.Decode(&e.Data); err != nil {
				e.Data = map[string]any{"malformed": raw.Data}
			}
			select {
			case s.events <- e:
			case <-ended: // the test reads no more
				return
			}
		}
	})
	t.Cleanup(func() { close(ended); s.Close(); done.Wait() })
	return s
}

// next waits for an event; false means that the stream has ended.
func (s *eventStream) next(t *testing.T) (event, bool) {
	t.Helper()
	select {
	case e, ok := <-s.events:
		return e, ok
	case <-time.After(10 * time.Second):
		t.Fatal("no event for 10 s")
		return event{}, false
	}
}

func (s *eventStream) want(t *testing.T, name string, seq int) event {
	t.Helper()
	e, ok := s.next(t)
	if !ok {
		t.Fatalf("the stream ended; wanted %s %d", name, seq)
	}
	id := ""
	if seq > 0 {
		id = fmt.Sprint(seq)
	}
	if e.Name != name || e.ID != id {
		t.Fatalf("event %s %q: %v; wanted %s %q", e.Name, e.ID, e.Data, name, id)
	}
	return e
}

func (s *eventStream) ends(t *testing.T) {
	t.Helper()
	if e, ok := s.next(t); ok {
		t.Fatalf("the stream goes on: %+v", e)
	}
}

func TestTaskStream(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	k, other := p.task(t), p.task(t)
	k.put(t, "early", "x").want(t, 201)
	s := p.events(t, k.url("/stream"))
	other.put(t, "theirs", "x").want(t, 201)
	r := k.put(t, "a", "1", "X-Subtask-Id", "sub").want(t, 201)
	e := s.want(t, "change", 4)
	has(t, e.Data, map[string]any{"seq": 4, "commit": r.str(t, "commit"), "task_id": k.ID, "subtask_id": "sub", "source": "api"})
	entries := k.changes(t, "?after=1")
	if got := testJSON(e.Data["entries"]); got != testJSON(entries) {
		t.Errorf("the event has %s, the changelog %s", got, testJSON(entries))
	}
	p.call(t, "PATCH", k.url(""), map[string]any{"status": "paused"}).want(t, 200)
	has(t, s.want(t, "task", 0).Data, map[string]any{"task_id": k.ID, "status": "paused"})
	p.call(t, "PATCH", k.url(""), map[string]any{"status": "executing"}).want(t, 200)
	has(t, s.want(t, "task", 0).Data, map[string]any{"status": "executing"})
	p.post(t, k.url("/batch"), map[string]any{"operations": []any{
		map[string]any{"op": "write", "path": "b", "content": ""}, map[string]any{"op": "write", "path": "c", "content": ""}}}).want(t, 200)
	if e := s.want(t, "change", 5); len(e.Data["entries"].([]any)) != 2 {
		t.Errorf("a batch is told as %v", e.Data)
	}
	p.call(t, "PATCH", k.url(""), map[string]any{"status": "completed"}).want(t, 200)
	has(t, s.want(t, "task", 0).Data, map[string]any{"status": "completed", "changes": 4})
	s.ends(t)

	// An ended task's stream tells what the client missed, and ends.
	late := p.events(t, k.url("/stream"), "Last-Event-ID", "2")
	late.want(t, "change", 4)
	late.want(t, "change", 5)
	late.want(t, "task", 0)
	late.ends(t)
	now := p.events(t, k.url("/stream"))
	now.want(t, "task", 0)
	now.ends(t)
	all := p.events(t, k.url("/stream?after=0"))
	for _, seq := range []int{2, 4, 5} {
		all.want(t, "change", seq)
	}
	for _, bad := range []string{"x", "-1", "1.5", "99999999999999999999"} {
		p.call(t, "GET", k.url("/stream?after="+bad), nil).fails(t, 400, "invalid_parameter")
	}
}

func TestWorkspaceStream(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	k := p.task(t)
	ws := "/workspaces/" + k.str("workspace_id")
	s := p.events(t, ws+"/stream?after=0")
	base := s.want(t, "change", 1)
	has(t, base.Data, map[string]any{"task_id": nil, "subtask_id": nil, "source": "baseline", "entries": []any{}, "commit": k.str("base")})
	k.put(t, "a", "1").want(t, 201)
	s.want(t, "change", 2)
	p.fill(t, map[string]string{"by-hand": "x"})
	k.sync(t)
	has(t, s.want(t, "change", 3).Data, map[string]any{"source": "external", "task_id": k.ID})
	other := p.task(t)
	has(t, s.want(t, "task", 0).Data, map[string]any{"task_id": other.ID, "status": "executing"})
	for _, id := range []string{k.ID, other.ID} {
		p.call(t, "PATCH", "/tasks/"+id, map[string]any{"status": "cancelled"}).want(t, 200)
		has(t, s.want(t, "task", 0).Data, map[string]any{"task_id": id, "status": "cancelled"})
	}
	p.call(t, "DELETE", ws, nil).want(t, 204)
	s.ends(t)
}

// A stop does not wait for streams.
func TestStreamsEndWithTheServer(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	k := p.task(t)
	s := p.events(t, k.url("/stream"))
	p.restart()
	s.ends(t)
}

// Writers go on while a reader is cut off and the server is killed: by number,
// it sees every commit once.
func TestStreamResumes(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	k := p.task(t)
	const rounds, writers, each = 3, 4, 10
	var got []string
	var acknowledged []string
	last := "0"
	for round := range rounds {
		s := p.events(t, k.url("/stream"), "Last-Event-ID", last)
		var mu sync.Mutex
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := range each {
					r := k.put(t, fmt.Sprintf("w%d/f%d", w, i%3), fmt.Sprint(round, w, i))
					if r.Status != 200 && r.Status != 201 {
						t.Errorf("write: %d %.200s", r.Status, r.Body)
						return
					}
					mu.Lock()
					acknowledged = append(acknowledged, r.str(t, "commit"))
					mu.Unlock()
				}
			})
		}
		// Some of the events; then the client is cut off in the middle.
		for range writers * each / 2 {
			e, ok := s.next(t)
			if !ok {
				t.Fatal("the stream ended")
			}
			got = append(got, e.Data["commit"].(string))
			last = e.ID
		}
		s.Close()
		all.Wait()
		p.crash()
	}
	p.call(t, "PATCH", k.url(""), map[string]any{"status": "completed"}).want(t, 200)
	s := p.events(t, k.url("/stream"), "Last-Event-ID", last)
	for {
		e, ok := s.next(t)
		if !ok {
			break
		}
		if e.Name == "change" {
			got = append(got, e.Data["commit"].(string))
		}
	}
	history := strings.Fields(k.git(t, "rev-list", "--reverse", "refs/umbra/head", "--not", k.str("base")))
	if !slices.Equal(got, history) {
		t.Errorf("the stream told %d commits, history has %d, or in another order", len(got), len(history))
	}
	if len(acknowledged) != rounds*writers*each {
		t.Errorf("%d acknowledged", len(acknowledged))
	}
	for _, c := range acknowledged {
		if !slices.Contains(history, c) {
			t.Errorf("commit %s was acknowledged and is lost", c)
		}
	}
	k.fsck(t)
}
