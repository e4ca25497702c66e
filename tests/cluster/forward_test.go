package cluster

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestForward: three nodes, and each request goes to another one than the last.
func TestForward(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	nodes := []*harness.Server{r.serve("n1"), r.serve("n2"), r.serve("n3")}
	turn := 0
	next := func() *harness.Server {
		turn++
		return nodes[turn%len(nodes)]
	}
	var made task
	next().Do("POST", "/tasks", map[string]any{"goal": "forward", "kind": "virtual", "namespace": []string{"f"}}).Expect(http.StatusCreated).JSON(&made)
	file := "/tasks/" + made.ID + "/content?path=f.txt"
	owner, seq := "", uint64(0)
	for i := range 9 {
		body := fmt.Sprint("version ", i)
		w := next().Do("PUT", file, []byte(body), "Idempotency-Key: k"+strconv.Itoa(i))
		if w.Status/100 != 2 {
			t.Fatalf("write %d: %d %s", i, w.Status, w.Body)
		}
		n, err := strconv.ParseUint(w.Header.Get("Umbra-Seq"), 10, 64)
		if err != nil || n <= seq {
			t.Fatalf("write %d: Umbra-Seq %q after %d", i, w.Header.Get("Umbra-Seq"), seq)
		}
		seq = n
		switch o := w.Header.Get("Umbra-Owner"); {
		case owner == "":
			owner = o
		case o != owner || o == "":
			t.Errorf("write %d: the owner is %s, and was %s", i, o, owner)
		}
		for range nodes {
			got := next().Do("GET", file, nil, "Umbra-Min-Seq: "+w.Header.Get("Umbra-Seq")).Expect(http.StatusOK)
			if string(got.Body) != body || got.Header.Get("Umbra-Owner") != owner || got.Header.Get("Umbra-Stale") != "" {
				t.Errorf("read of %q: %q %v", body, got.Body, got.Header)
			}
			again := next().Do("PUT", file, []byte(body), "Idempotency-Key: k"+strconv.Itoa(i))
			if again.Header.Get("Idempotent-Replay") != "true" || again.Header.Get("Umbra-Seq") != w.Header.Get("Umbra-Seq") {
				t.Errorf("a repeat: %d %v", again.Status, again.Header)
			}
		}
	}
	direct := map[int]int{}
	for _, s := range nodes {
		res := s.Do("GET", file, nil, "Umbra-Direct: 1")
		direct[res.Status]++
		if res.Status == http.StatusMisdirectedRequest {
			res.ExpectError(http.StatusMisdirectedRequest, "not_owner")
		}
		s.Do("POST", "/cluster/handover?workspace="+made.Workspace, nil).Expect(http.StatusNotFound)
		s.Do("GET", "/readyz?for=writes", nil).Expect(http.StatusOK)
	}
	if direct[200] != 1 || direct[421] != 2 {
		t.Errorf("directly: %v", direct)
	}
	nodes[0].Do("GET", "/workspaces/"+made.Workspace+"/log", nil, "Umbra-Min-Seq: 999").ExpectError(http.StatusServiceUnavailable, "seq_not_reached")

	// A new task on the workspace does not move it.
	res := next().Do("POST", "/tasks", map[string]any{"goal": "another", "workspace_id": made.Workspace}).Expect(http.StatusCreated)
	res2 := next().Do("POST", "/tasks", map[string]any{"goal": "another", "kind": "virtual", "namespace": []string{"f"}}).Expect(http.StatusCreated)
	for _, h := range []http.Header{res.Header, res2.Header} {
		if h.Get("Umbra-Owner") != owner {
			t.Errorf("a new task's owner is %q", h.Get("Umbra-Owner"))
		}
	}

	// Clones of each node are the same.
	heads := map[string]bool{}
	for i, s := range nodes {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(i))
		harness.Git(t, t.TempDir(), "clone", "-q", s.URL+"/git/"+made.Workspace+".git", dir)
		heads[harness.Git(t, dir, "rev-parse", "HEAD")] = true
		harness.Git(t, dir, "fsck", "--strict")
		if data, err := os.ReadFile(filepath.Join(dir, "f.txt")); err != nil || string(data) != "version 8" {
			t.Errorf("%q %v", data, err)
		}
	}
	if len(heads) != 1 {
		t.Errorf("heads: %v", heads)
	}

	// The owner is killed while a client at another node listens.
	var victim, other *harness.Server
	for i, s := range nodes {
		if strings.HasPrefix(owner, `"n`+strconv.Itoa(i+1)+`"`) {
			victim, other = s, nodes[(i+1)%3]
		}
	}
	stream := other.Stream("/workspaces/"+made.Workspace+"/stream", "Last-Event-ID: "+strconv.FormatUint(seq-1, 10))
	last := ""
	if e, ok := stream.Next(); ok {
		last = e.ID
	}
	if last != strconv.FormatUint(seq, 10) {
		t.Errorf("the first event is %q, not %d", last, seq)
	}
	victim.Kill()
	begun := time.Now()
	for {
		if _, ok := stream.Next(); !ok {
			break
		}
	}
	err := clustertest.Await(10*time.Second, func() (bool, error) {
		res := other.Do("PUT", file, []byte("after"), "Idempotency-Key: after")
		return res.Status/100 == 2, nil
	})
	need.NoError(t, err)
	t.Logf("the first write after %v", time.Since(begun))
	stream = other.Stream("/workspaces/"+made.Workspace+"/stream", "Last-Event-ID: "+last)
	defer stream.Close()
	seen := map[string]bool{}
	for {
		e, ok := stream.Next()
		if !ok || seen[e.ID] {
			t.Fatalf("after the failover: %v, %v", e, seen)
		}
		seen[e.ID] = true
		if strings.Contains(string(e.Data), "f.txt") {
			break
		}
	}
}

// TestMCPSessions: a session goes on at every node while its own lives.
func TestMCPSessions(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1, n2 := r.serve("n1"), r.serve("n2")
	var set struct {
		ID string `json:"id"`
	}
	n1.Do("POST", "/toolsets", map[string]any{"mounts": []any{map[string]any{"prefix": "/p", "scope": "READ_WRITE", "store": map[string]any{"type": "virtual", "namespace": []string{"m"}}}}}).
		Expect(http.StatusCreated).JSON(&set)
	call := func(s *harness.Server, session, body string) *harness.Response {
		h := []string{"Accept: application/json, text/event-stream", "Content-Type: application/json"}
		if session != "" {
			h = append(h, "Mcp-Session-Id: "+session, "Mcp-Protocol-Version: 2025-06-18")
		}
		return s.Do("POST", "/mcp/"+set.ID, []byte(body), h...)
	}
	res := call(n1, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`).Expect(http.StatusOK)
	session := res.Header.Get("Mcp-Session-Id")
	if session == "" {
		t.Fatalf("no session: %v %s", res.Header, res.Body)
	}
	call(n2, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`).Expect(http.StatusAccepted)
	for i, s := range []*harness.Server{n1, n2, n1, n2} {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, i+2)
		if res := call(s, session, body).Expect(http.StatusOK); !strings.Contains(string(res.Body), "inputSchema") {
			t.Errorf("%s", res.Body)
		}
	}
	name := strings.SplitN(session, ".", 2)[0]
	home, other := n1, n2
	if name == "n2" {
		home, other = n2, n1
	} else if name != "n1" {
		t.Fatalf("session %q", session)
	}
	home.Kill()
	err := clustertest.Await(10*time.Second, func() (bool, error) {
		return call(other, session, `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`).Status == http.StatusNotFound, nil
	})
	if err != nil {
		t.Fatal("the session of a dead node is no 404")
	}
	home.Restart()
	call(home, session, `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`).Expect(http.StatusNotFound)
}
