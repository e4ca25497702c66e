package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// ground is a folder for a workspace beside one for staging.
type ground struct {
	t       *testing.T
	dir     string // the workspace's
	root    *Root
	staging *Staging
}

func newGround(t *testing.T, hook *vfs.Hook) *ground {
	top := t.TempDir()
	g := &ground{t: t, dir: filepath.Join(top, "project")}
	for _, name := range []string{"project", "staging", "aside"} {
		need.NoError(t, os.Mkdir(filepath.Join(top, name), 0o755))
	}
	open := func(name string) vfs.FS {
		f, err := vfs.OS(filepath.Join(top, name))
		need.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		if hook != nil {
			f = vfs.Inject(f, hook)
		}
		return f
	}
	var err error
	if g.staging, err = OpenStaging(open("staging")); err != nil {
		t.Fatal(err)
	}
	g.root = New(open("project"), 0o022, g.staging)
	g.root.SetAside(open("aside"))
	return g
}

func (g *ground) stage(target string) *Staged {
	g.t.Helper()
	s, err := g.root.Stage(wspath.Path(target))
	if err == nil {
		_, err = s.Write([]byte("new"))
	}
	if err == nil {
		err = s.Finish()
	}
	need.NoError(g.t, err)
	g.t.Cleanup(func() { s.Discard() })
	return s
}

func (g *ground) want(name, content string) {
	g.t.Helper()
	got, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil || string(got) != content {
		g.t.Fatalf("%s holds %q, %v; want %q", name, got, err, content)
	}
}

func TestPreparedInStaging(t *testing.T) {
	g := newGround(t, nil)
	if s := g.stage("a"); !s.shared {
		t.Fatal("prepared beside its target, in a folder like any other")
	} else if err := s.Place("a", 0o644); err != nil {
		t.Fatal(err)
	}
	g.want("a", "new")
	need.NoError(t, os.WriteFile(filepath.Join(g.dir, "b"), []byte("old"), 0o600))
	s := g.stage("b")
	out, err := s.Swap("b", 0o600)
	need.NoError(t, err)
	g.want("b", "new")
	g.want("../aside/"+out.Temp, "old")
}

// A file that would take something over from its folder is made there.
func TestPreparedBesideItsTarget(t *testing.T) {
	set := map[string]func(dir string) error{
		"set-group-ID": func(dir string) error { return os.Chmod(dir, 0o755|fs.ModeSetgid) },
		"attribute":    func(dir string) error { return unix.Setxattr(dir, "user.umbra", []byte("x"), 0) },
	}
	for name, do := range set {
		t.Run(name, func(t *testing.T) {
			g := newGround(t, nil)
			dir := filepath.Join(g.dir, "d")
			need.NoError(t, os.Mkdir(dir, 0o755))
			if !g.stage("d/a").shared {
				t.Fatal("not prepared in staging before")
			}
			switch err := do(dir); {
			case errors.Is(err, errors.ErrUnsupported):
				need.Missing(t, "extended attributes on this file system")
			case err != nil:
				t.Fatal(err)
			}
			if g.stage("d/a").shared {
				t.Error("prepared in staging")
			}
			if g.stage("d/gone/a").shared {
				t.Error("prepared in staging, for a folder that is still to be made")
			}
		})
	}
}

// Where another mount lies between, content goes the other way, and is not
// prepared in vain again.
func TestStagingApart(t *testing.T) {
	for _, refusal := range []error{syscall.EXDEV, syscall.EPERM} {
		refuse := true
		g := newGround(t, &vfs.Hook{OnCall: func(c vfs.Call) error {
			if c.Op == vfs.OpLinkFile && refuse {
				return refusal
			}
			return nil
		}})
		s := g.stage("a")
		if err := s.Place("a", 0o644); !errors.Is(err, syscall.EXDEV) {
			t.Fatalf("%v: placed with %v", refusal, err)
		}
		refuse = false
		again, err := s.Copy("a")
		need.NoError(t, err)
		t.Cleanup(func() { again.Discard() })
		if again.shared {
			t.Fatalf("%v: prepared in staging once more", refusal)
		}
		need.NoError(t, again.Place("a", 0o644))
		g.want("a", "new")
		if got, want := g.stage("b").shared, refusal != syscall.EXDEV; got != want {
			t.Errorf("after %v the next is prepared in staging: %v", refusal, got)
		}
	}
}

// A folder in which files are slow to make is left, and goes.
func TestStagingMovesOn(t *testing.T) {
	g := newGround(t, nil)
	var clock time.Time
	took := time.Microsecond
	g.staging.now = func() time.Time { clock = clock.Add(took / 2); return clock }
	window := func() string {
		for range stagingWindow {
			f, err := g.staging.create()
			need.NoError(t, err)
			f.Close()
		}
		return g.staging.dir
	}
	if dir := window(); dir != "." {
		t.Fatalf("left for %q though it was fast", dir)
	}
	took = 8 * stagingSlow
	first := window()
	if first == "." {
		t.Fatal("stayed though it was slow")
	}
	if second := window(); second == first {
		t.Fatal("stayed though it was slow")
	}
	if _, err := g.staging.fs.Lstat(first); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder that was left is still there: %v", err)
	}
	// The next start finds what is left.
	if _, err := OpenStaging(g.staging.fs); err != nil {
		t.Fatal(err)
	}
	if left, err := g.staging.fs.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("left after the next start: %v, %v", left, err)
	}
}

// TestStagingKeepsOthersFiles: the directory may be a link to a user's. What the server
// did not put there stays.
func TestStagingKeepsOthersFiles(t *testing.T) {
	top := vfs.NewMem(vfs.MemOptions{})
	for name, stays := range map[string]bool{"thesis": true, "parked-": true, "parked-x": true, "parked-1": false, "17": false} {
		f, err := top.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		need.NoError(t, err)
		need.NoError(t, f.Close())
		_, err = OpenStaging(top)
		need.NoError(t, err)
		if _, err := top.Lstat(name); (err == nil) != stays {
			t.Errorf("%q: %v", name, err)
		}
	}
}
