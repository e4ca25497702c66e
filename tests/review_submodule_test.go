package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// superproject makes a repository with a file and with the submodule sub, which has the
// files f and in/g.
func superproject(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	lib, super := filepath.Join(dir, "lib"), filepath.Join(dir, "super")
	for _, d := range []string{lib, super} {
		need.NoError(t, os.Mkdir(d, 0o755))
		harness.Git(t, d, "init", "-q", "-b", "main")
	}
	for name, text := range map[string]string{lib + "/f": numbered(30), lib + "/in/g": "g\n", super + "/a": "1\n"} {
		need.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		need.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	harness.Git(t, lib, "add", ".")
	harness.Git(t, lib, "commit", "-qm", "the library")
	harness.Git(t, super, "-c", "protocol.file.allow=always", "submodule", "add", "-q", lib, "sub")
	harness.Git(t, super, "add", ".")
	harness.Git(t, super, "commit", "-qm", "the project")
	return super
}

// TestReviewSubmodule holds that the files of a submodule are reviewed, taken back and
// blamed as all others, that its own git sees them as they were, and that a commit
// that a call's shell makes in it is no change of the task.
func TestReviewSubmodule(t *testing.T) {
	super := superproject(t)
	p := &project{dir: super, Server: harness.Start(t, harness.Options{})}
	k := p.task(t)
	ws, sub := k.str("workspace_id"), filepath.Join(super, "sub")
	commit := harness.Git(t, sub, "rev-parse", "HEAD")
	for path, of := range map[string]string{"sub/f": commit, "sub/in/g": commit, "a": harness.Git(t, super, "rev-parse", "HEAD")} {
		if b := p.blame(t, ws, path, ""); len(b.Ranges) != 1 || b.Ranges[0].Project == nil || b.Ranges[0].Project.Commit != of {
			t.Errorf("%s: %+v", path, b.Ranges)
		}
	}

	text := strings.NewReplacer("line 3\n", "three\n", "line 25\n", "twenty-five\n").Replace(numbered(30))
	k.put(t, "sub/f", text).want(t, 200)
	p.post(t, k.url("/symlink"), map[string]any{"path": "sub/in/l", "target": "g"}).want(t, 201)
	p.call(t, "PUT", k.file("sub/.git"), []byte("gitdir: /tmp\n")).fails(t, 400, "bad_path")
	list, _ := k.hunks(t, "")
	if len(list) != 3 || list[0].Path != "sub/f" || list[2].Path != "sub/in/l" {
		t.Fatalf("%+v", list)
	}
	p.post(t, k.url("/review"), map[string]any{"reject": []string{list[0].ID, list[2].ID}, "accept": []string{list[1].ID}}).want(t, 200)
	if got, want := p.read(t, "sub/f"), strings.Replace(numbered(30), "line 25\n", "twenty-five\n", 1); got != want {
		t.Errorf("%q", got)
	}
	if got := harness.Git(t, sub, "status", "--porcelain"); got != " M f" {
		t.Errorf("the submodule's status: %q", got)
	}

	// A commit in the submodule moves its git alone; a checkout there is a change of files.
	c := p.begin(t, "s", map[string]any{"task_id": k.ID})
	p.shell(t, "cd sub && git -c user.name=n -c user.email=e commit -qam edit")
	p.end(t, c, nil)
	if list, _ := k.hunks(t, "?status=open"); len(list) != 0 {
		t.Errorf("a commit in the submodule: %+v", list)
	}
	c = p.begin(t, "s", map[string]any{"task_id": k.ID})
	p.shell(t, "git submodule -q update")
	p.end(t, c, nil)
	if p.read(t, "sub/f") != numbered(30) {
		t.Fatal("submodule update")
	}
	if b := p.blame(t, ws, "sub/f", "&lines=25-25"); len(b.Ranges) != 1 {
		t.Errorf("%+v", b.Ranges)
	}
	p.post(t, k.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
	if got := harness.Git(t, super, "status", "--porcelain"); got != "" {
		t.Errorf("after all is rejected: %q", got)
	}
	k.fsck(t)
}
