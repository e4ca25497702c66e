package tests

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestLayerBegunOnceOverAKill: a layer whose begin was not answered is the answer to the same
// request; there is no second one.
func TestLayerBegunOnceOverAKill(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	body := map[string]any{"agent": "a", "agent_session": "s", "cwd": p.dir}
	begin := func(key string) *answer {
		return p.post(t, "/layers", body, "Idempotency-Key", key).want(t, 201)
	}
	first := begin("k1")
	killUnanswered(t, p.Server)
	if again := begin("k1"); !bytes.Equal(again.Body, first.Body) || again.head("Idempotent-Replay") != "true" {
		t.Errorf("%s\nwant %s", again.Body, first.Body)
	}
	var l struct{ Layer, Dir string }
	first.into(t, &l)
	// It was killed before the layer was whole.
	need.NoError(t, os.Remove(filepath.Join(l.Dir, "layer.json")))
	killUnanswered(t, p.Server)
	if again := begin("k1"); !bytes.Equal(again.Body, first.Body) {
		t.Errorf("%s\nwant %s", again.Body, first.Body)
	}
	need.NoError(t, os.WriteFile(filepath.Join(l.Dir, "upper", "new"), nil, 0o644))
	var list struct{ Layers []any }
	if p.call(t, "GET", "/layers", nil).want(t, 200).into(t, &list); len(list.Layers) != 1 {
		t.Errorf("layers: %v", list.Layers)
	}
	if other := begin("k2"); bytes.Equal(other.Body, first.Body) {
		t.Errorf("another key: %s", other.Body)
	}
	p.post(t, "/layers/"+l.Layer+"/apply", map[string]any{}).want(t, 200)
	p.read(t, "new")
}

// TestMoveAcrossOnceOverAKill: a file that a tool moved to another workspace is moved, also
// where the answer was lost with the server.
func TestMoveAcrossOnceOverAKill(t *testing.T) {
	from, to := folder(t, map[string]string{"a": "1\n"}), folder(t, map[string]string{"z": "z\n"})
	s := harness.Start(t, harness.Options{})
	at := func(prefix, root string) obj {
		return obj{"prefix": prefix, "scope": "READ_WRITE", "store": obj{"type": "physical", "root": root}}
	}
	target := "/toolsets/" + s.Do("POST", "/toolsets", obj{"mounts": []any{at("/p", from), at("/q", to)}}).Expect(201).Text("id") + "/call"
	move := func(key string) string {
		r := s.Do("POST", target, obj{"name": "move_file", "arguments": obj{"from": "/p/a", "to": "/q/b"}}, "Idempotency-Key: "+key).Expect(200)
		return r.Text("status") + " " + r.Text("content")
	}
	want := move("k1")
	killUnanswered(t, s)
	if got := move("k1"); got != want || want != "success Moved /p/a to /q/b" {
		t.Errorf("%s, want %s", got, want)
	}
	// A file that is there again is not the one that was moved.
	need.NoError(t, os.WriteFile(filepath.Join(from, "a"), []byte("2\n"), 0o644))
	killUnanswered(t, s)
	if got := move("k2"); got != "error Error: /q/b exists already; set overwrite to replace it" {
		t.Error(got)
	}
	if raw, err := os.ReadFile(filepath.Join(from, "a")); err != nil || string(raw) != "2\n" {
		t.Errorf("%q %v", raw, err)
	}
}
