package calls_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"umbra/internal/calls"
	"umbra/internal/errs"
)

// certain returns how sure it is whose a path's last change is, of an end's answer.
func certain(e *calls.Ended, path string) string {
	for _, x := range e.Entries {
		if x.Path == path {
			return string(x.Certainty)
		}
	}
	for _, x := range e.Shared {
		if x.Path == path {
			return "shared"
		}
	}
	return ""
}

// declare begins a call that declares a path, with its content's SHA-256 if sum has one.
func (w *world) declare(session, path, sum string) string {
	w.t.Helper()
	b, err := w.calls.Begin(context.Background(), calls.Begin{Agent: "a", Session: session, Cwd: w.root, Paths: []calls.Path{{Path: path, Sum: sum}}, OnlyPaths: true})
	w.ok(err)
	return b.ID
}

func (w *world) finish(id string, paths ...calls.Path) *calls.Ended {
	w.t.Helper()
	e, err := w.calls.End(context.Background(), id, calls.End{Paths: paths})
	w.ok(err)
	return e
}

// TestDeclaredByBoth: a path that two calls declared is not the one's that declares it
// again when it ends, as hooks do, while the other one's tool failed and declares none.
func TestDeclaredByBoth(t *testing.T) {
	w := newWorld(t)
	one, two := w.declare("s1", "a", ""), w.declare("s2", "a", "")
	w.write("a", "2\n")
	w.finish(one, calls.Path{Path: "a"})
	w.finish(two)
	for _, id := range []string{one, two} {
		if got := certain(w.finish(id), "a"); got != "shared" {
			t.Errorf("%s: %q", id, got)
		}
	}
}

// TestEndKeepsContent: an end that names a path without its content does not take away
// what the begin said of it.
func TestEndKeepsContent(t *testing.T) {
	const sum = "53c234e5e8472b6ac51c1ae1cab3fe06fad053beb8ebfd8977b010655bfdd3c3" // of "2\n"
	w := newWorld(t)
	one, two := w.declare("s1", "a", sum), w.declare("s2", "a", "")
	w.write("a", "2\n")
	if got := certain(w.finish(one, calls.Path{Path: "a"}), "a"); got != "exact" {
		t.Errorf("%q", got)
	}
	w.finish(two)
}

// TestEndOfOneThatLeft: a client that leaves before its end is answered has ended its
// call; what comes later is not the call's.
func TestEndOfOneThatLeft(t *testing.T) {
	w := newWorld(t)
	id := w.begin("s")
	w.ok(os.Mkdir(filepath.Join(w.root, "d"), 0o755))
	for i := range 300 {
		w.write(fmt.Sprint("d/", i), "2\n")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = w.calls.End(ctx, id, calls.End{})
	w.write("a", "3\n")
	e := w.finish(id)
	if len(e.Entries) != 300 || e.Status != calls.OK {
		t.Errorf("%s, %d entries", e.Status, len(e.Entries))
	}
	if n := w.calls.OpenOf(e.Task); n != 0 {
		t.Errorf("%d are open", n)
	}
}

// TestTouchBesideEnd: a touch that overlaps the end of a call does not open it again.
func TestTouchBesideEnd(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for i := range 200 {
		id := w.begin(fmt.Sprint("s", i%4))
		ids = append(ids, id)
		w.write("a", fmt.Sprint(i, "\n"))
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for {
					if _, err := w.calls.Touch(id, nil); err != nil {
						return
					}
				}
			})
		}
		w.finish(id)
		group.Wait()
	}
	w.close()
	w.open()
	for _, id := range ids {
		if r, err := w.calls.Get(id, nil); err != nil || r.Status != calls.OK || len(r.Commits) != 1 {
			t.Fatalf("%s: %s, commits %v, %v", id, r.Status, r.Commits, err)
		}
	}
}

// TestOpenAtOnce: begins that overlap open no more calls than may be.
func TestOpenAtOnce(t *testing.T) {
	w := newWorld(t)
	var group sync.WaitGroup
	var begun sync.Map
	for i := range 1100 {
		group.Go(func() {
			b, err := w.calls.Begin(context.Background(), calls.Begin{Agent: "a", Session: fmt.Sprint("s", i%8), Cwd: w.root, OnlyPaths: true})
			if err == nil {
				begun.Store(b.ID, true)
			} else if errs.CodeOf(err) != "too_many_calls" {
				t.Error(err)
			}
		})
	}
	group.Wait()
	n := 0
	begun.Range(func(any, any) bool { n++; return true })
	if n != 1000 {
		t.Errorf("%d are open", n)
	}
}

// TestDirectoryThatIsGone: an agent that deleted the directory it works in is in its
// workspace still.
func TestDirectoryThatIsGone(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.root, "d", "e")
	w.ok(os.MkdirAll(dir, 0o755))
	first := w.begin("s")
	w.ok(os.RemoveAll(filepath.Dir(dir)))
	b, err := w.calls.Begin(context.Background(), calls.Begin{Agent: "a", Session: "s", Cwd: dir})
	w.ok(err)
	if r, err := w.calls.Get(first, nil); err != nil || b.Workspace != r.Workspace {
		t.Errorf("%s, %v", b.Workspace, err)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	if _, err := w.calls.Begin(context.Background(), calls.Begin{Agent: "a", Session: "s", Cwd: gone}); errs.CodeOf(err) != "workspace_not_found" {
		t.Errorf("outside: %v", err)
	}
}

// TestPathsThroughLinks: a path leads to the file that the system would write to, also
// where that does not exist yet.
func TestPathsThroughLinks(t *testing.T) {
	w := newWorld(t)
	w.ok(os.MkdirAll(filepath.Join(w.root, "sub", "real"), 0o755))
	for name, target := range map[string]string{"alias": "sub/real", "dangling": "alias/new", "round": "round", "out": "/nowhere/x", "abs": filepath.Join(w.root, "sub", "abs")} {
		w.ok(os.Symlink(target, filepath.Join(w.root, name)))
	}
	for path, want := range map[string]string{
		"alias/../h": "h sub/h", "dangling": "dangling sub/real/new", "alias/x/y": "alias/x/y sub/real/x/y", "round": "round", "round/x": "round/x",
		"out": "out", "abs": "abs sub/abs", "./a//": "a", "sub/../a": "a", "..": "", "../ws/a": "a", "sub/../../x": "",
	} {
		id := w.declare("s", path, "")
		r, err := w.calls.Get(id, nil)
		w.ok(err)
		got := ""
		for i, p := range r.Paths {
			if i > 0 {
				got += " "
			}
			got += p.Path
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
