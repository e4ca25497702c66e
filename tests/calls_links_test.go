package tests

import (
	"os"
	"path/filepath"
	"slices"
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
	if got := p.end(t, a, nil).tell(); got != "a modify window, sub/b modify window" {
		t.Error(got)
	}
	b := p.begin(t, "other", nil)
	p.shell(t, "touch sub/b")
	p.post(t, "/workspaces/"+b.WorkspaceID+"/sync", nil).want(t, 200)
	if got := p.end(t, b, nil).tell(); got != "" {
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
	if got := p.end(t, edit, nil).tell(); got != "a modify declared, sub/b modify declared" {
		t.Error(got)
	}
	if got := p.end(t, shell, nil); got.tell() != "" || len(got.Shared) != 0 {
		t.Errorf("the shell was given %s, %+v", got.tell(), got.Shared)
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
	if got := ended.tell(); got != "" {
		t.Errorf("the other call was given %s", got)
	}
	if len(ended.Shared) == 1 && slices.Contains(ended.Shared[0].Claimants, a.CallID) && slices.Contains(ended.Shared[0].Claimants, b.CallID) {
		return
	}
	t.Errorf("%+v", ended.Shared)
}
