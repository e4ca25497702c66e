package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

// TestCallsOfLinkedFiles: a write by one name of a file changes all of its names, and raises
// an event for the one alone. All are the writer's, not those of the next call, which may
// be the first to raise an event for another name.
func TestCallsOfLinkedFiles(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n", "sub/x": "x\n"})
	need.NoError(t, os.Link(filepath.Join(p.dir, "a"), filepath.Join(p.dir, "sub/b")))
	p.end(t, p.begin(t, "first", nil), nil)
	a := p.begin(t, "writer", nil)
	p.shell(t, "echo two >> a")
	if got := p.end(t, a, nil).text(); got != "a modify window, sub/b modify window" {
		t.Error(got)
	}
	b := p.begin(t, "other", nil)
	p.shell(t, "touch sub/b")
	p.post(t, "/workspaces/"+b.WorkspaceID+"/sync", nil).want(t, 200)
	if got := p.end(t, b, nil).text(); got != "" {
		t.Errorf("the other call was given %s", got)
	}
	undone := p.post(t, "/calls/"+a.CallID+"/revert", map[string]any{})
	if undone.want(t, 200); p.read(t, "a") != "1\n" || p.read(t, "sub/b") != "1\n" {
		t.Errorf("undone: %q %q", p.read(t, "a"), p.read(t, "sub/b"))
	}
}

// TestCallsOfLinkedFilesThatAreDeclared: what an editing tool writes by the path that it
// declared is its change at all names of the file, also while another agent's shell is open.
func TestCallsOfLinkedFilesThatAreDeclared(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n", "sub/x": "x\n"})
	need.NoError(t, os.Link(filepath.Join(p.dir, "a"), filepath.Join(p.dir, "sub/b")))
	p.end(t, p.begin(t, "first", nil), nil)
	shell := p.begin(t, "shell", nil)
	edit := p.begin(t, "edit", map[string]any{"paths": []string{"a"}, "only_paths": true})
	p.shell(t, "echo two >> a")
	if got := p.end(t, edit, nil).text(); got != "a modify declared, sub/b modify declared" {
		t.Error(got)
	}
	if got := p.end(t, shell, nil); got.text() != "" || len(got.Shared) != 0 {
		t.Errorf("the shell was given %s, %+v", got.text(), got.Shared)
	}
}

// TestCallsOfManyLinks: all names of a file with thousands are given to the call that
// declared one of them.
func TestCallsOfManyLinks(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n"})
	const n = 3000
	for i := range n {
		need.NoError(t, os.Link(filepath.Join(p.dir, "a"), filepath.Join(p.dir, fmt.Sprintf("n%d", i))))
	}
	p.end(t, p.begin(t, "first", nil), nil)
	shell := p.begin(t, "shell", nil)
	edit := p.begin(t, "edit", map[string]any{"paths": []string{"n2999"}, "only_paths": true})
	p.shell(t, "echo two >> n2999")
	list := p.end(t, edit, nil).Entries
	for _, e := range list {
		if !strings.HasSuffix(e.text(), " modify declared") {
			t.Fatal(e.text())
		}
	}
	if got := p.end(t, shell, nil); len(list) != n+1 || len(got.Entries)+len(got.Shared) > 0 {
		t.Errorf("the tool was given %d, the shell %d and %d", len(list), len(got.Entries), len(got.Shared))
	}
}

// TestCallsAndAChangeWithoutAnEvent: a change that raised no event is found by a sync while
// another call is open. It may be of any call since the scan before, so it is not that one's.
func TestCallsAndAChangeWithoutAnEvent(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n"})
	outside := filepath.Join(t.TempDir(), "outside")
	need.NoError(t, os.WriteFile(outside, []byte("1\n"), 0o644))
	need.NoError(t, os.Link(outside, filepath.Join(p.dir, "linked")))
	p.end(t, p.begin(t, "first", nil), nil)
	a := p.begin(t, "writer", nil)
	need.NoError(t, os.WriteFile(outside, []byte("two\n"), 0o644))
	p.end(t, a, nil)
	b := p.begin(t, "other", nil)
	p.post(t, "/workspaces/"+b.WorkspaceID+"/sync", nil).want(t, 200)
	ended := p.end(t, b, nil)
	if got := ended.text(); got != "" {
		t.Errorf("the other call was given %s", got)
	}
	if len(ended.Shared) == 1 && slices.Contains(ended.Shared[0].Claimants, a.CallID) && slices.Contains(ended.Shared[0].Claimants, b.CallID) {
		return
	}
	t.Errorf("%+v", ended.Shared)
}
