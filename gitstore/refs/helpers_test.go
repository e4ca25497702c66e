package refs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// repo is a repository made by Init on a real directory.
type repo struct {
	*Store
	t    *testing.T
	root string // the workspace's folder
	dir  string // repo.git in it
	fs   vfs.FS
}

func newRepo(t *testing.T) *repo {
	t.Helper()
	root := t.TempDir()
	f, err := vfs.OS(root)
	need.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	need.NoError(t, Init(f, "repo.git"))
	r := &repo{t: t, root: root, dir: filepath.Join(root, "repo.git"), fs: f}
	r.Store = r.open()
	return r
}

func (r *repo) open() *Store {
	r.t.Helper()
	s, err := Open(Options{FS: r.fs, Repo: "repo.git", Peel: r.peel})
	need.NoError(r.t, err)
	return s
}

// peel asks git.
func (r *repo) peel(id object.ID) (object.ID, bool, error) {
	kind, err := r.tryGit("cat-file", "-t", id.String())
	if err != nil || kind != "tag" {
		return object.Zero, false, err
	}
	out, err := r.tryGit("rev-parse", id.String()+"^{}")
	if err != nil {
		return object.Zero, false, err
	}
	peeled, err := object.ParseID(out)
	return peeled, true, err
}

func gitIn(dir, stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C",
		"GIT_AUTHOR_NAME=p", "GIT_AUTHOR_EMAIL=p@x.invalid", "GIT_COMMITTER_NAME=p", "GIT_COMMITTER_EMAIL=p@x.invalid")
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %v: %w\n%s%s", args, err, out.String(), errOut.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func (r *repo) tryGit(args ...string) (string, error) { return gitIn(r.dir, "", args...) }

func (r *repo) git(args ...string) string {
	r.t.Helper()
	out, err := r.tryGit(args...)
	need.NoError(r.t, err)
	return out
}

// fsck wants git's silence.
func (r *repo) fsck() {
	r.t.Helper()
	if out := r.git("fsck", "--strict", "--full", "--no-dangling"); out != "" && !strings.HasPrefix(out, "notice:") {
		r.t.Errorf("fsck: %s", out)
	}
}

// commit puts a commit into the repository.
func (r *repo) commit(subject string, parents ...object.ID) object.ID {
	r.t.Helper()
	tree, err := gitIn(r.dir, "", "mktree")
	need.NoError(r.t, err)
	args := []string{"commit-tree", tree, "-m", subject}
	for _, p := range parents {
		args = append(args, "-p", p.String())
	}
	return parseID(r.t, r.git(args...))
}

// tag puts an annotated tag of a commit into the repository.
func (r *repo) tag(on object.ID, name string) object.ID {
	r.t.Helper()
	out, err := gitIn(r.dir, "object "+on.String()+"\ntype commit\ntag "+name+"\ntagger u <u@x.invalid> 1 +0000\n\nx\n", "mktag")
	need.NoError(r.t, err)
	return parseID(r.t, out)
}

func parseID(t *testing.T, s string) object.ID {
	t.Helper()
	id, err := object.ParseID(s)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return id
}

// update wants no error, and gives what was foreign.
func update(t *testing.T, s *Store, updates ...Update) []Foreign {
	t.Helper()
	foreign, failed := s.Update(t.Context(), updates)
	if len(failed) > 0 {
		t.Fatal(failed)
	}
	return foreign
}

func value(t *testing.T, s *Store, name string) object.ID {
	t.Helper()
	id, _, err := s.Resolve(name)
	need.NoError(t, err)
	return id
}

// noTrash wants no locks and no temporary files.
func noTrash(t *testing.T, f vfs.FS) {
	t.Helper()
	s := &Store{fs: f, repo: "repo.git"}
	for _, dir := range []string{"refs", ownDir} {
		err := s.walk(dir, func(name string) error {
			if strings.HasSuffix(name, lockSuffix) || strings.Contains(name, tempPrefix) {
				t.Errorf("%s is left over", name)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// was are the values that a ref may have before an update.
func was(ids ...object.ID) []object.ID { return ids }
