package tests

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// Large bodies that are in memory at once are bounded: one more is told to come
// again, small ones are not held up, and the room comes back.
func TestBodiesBudget(t *testing.T) {
	s := harness.Start(t, harness.Options{Config: "limits: {bodies_bytes: 1MiB}\n"})
	id := s.Do("POST", "/tasks", map[string]any{"goal": "g", "kind": "virtual"}).Expect(201).Text("task_id")
	batch := func(size int) map[string]any {
		return map[string]any{"operations": []any{map[string]any{"op": "write", "path": "f", "content": strings.Repeat("x", size)}}}
	}
	// Alone even a body over the bound is taken.
	s.Do("POST", "/tasks/"+id+"/batch", batch(2<<20)).Expect(200)

	whole, err := json.Marshal(batch(800 << 10))
	need.NoError(t, err)
	// hold sends a large body but for its last byte.
	hold := func() net.Conn {
		conn := s.Dial()
		fmt.Fprintf(conn, "POST /tasks/%s/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", id, len(whole))
		if _, err := conn.Write(whole[:len(whole)-1]); err != nil {
			t.Fatal(err)
		}
		s.Do("POST", "/tasks/"+id+"/batch", batch(1000)).Expect(200) // is never refused
		return conn
	}
	// One of two that are large is refused; which one depends on who comes first.
	conn := hold()
	for end := time.Now().Add(30 * time.Second); ; {
		r := s.Do("POST", "/tasks/"+id+"/batch", batch(300<<10))
		if r.Status == 503 {
			if r.ExpectError(503, "busy"); r.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("beside a large body: still %d %.200s", r.Status, r.Body)
		}
		conn.Close()
		conn = hold()
	}
	s.Do("POST", "/tasks/"+id+"/batch", batch(1000)).Expect(200)
	conn.Close()
	for end := time.Now().Add(30 * time.Second); ; {
		r := s.Do("POST", "/tasks/"+id+"/batch", batch(300<<10))
		if r.Status == 200 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("when the large one is gone: still %d %.200s", r.Status, r.Body)
		}
	}
}
