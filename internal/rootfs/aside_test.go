package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

func (g *ground) write(name, content string) {
	g.t.Helper()
	need.NoError(g.t, os.WriteFile(filepath.Join(g.dir, name), []byte(content), 0o644))
}

func (g *ground) swap(target string) (*Staged, *Displaced) {
	g.t.Helper()
	s := g.stage(target)
	out, err := s.Swap(wspath.Path(target), 0o644)
	need.NoError(g.t, err)
	return s, out
}

// names lists a folder that stands beside the workspace's, or the latter (".").
func (g *ground) names(dir string) string {
	g.t.Helper()
	list, err := os.ReadDir(filepath.Join(g.dir, dir))
	need.NoError(g.t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// What comes out waits aside, so that the target's folder never shows a temporary
// name, and goes back and forth between the two.
func TestAside(t *testing.T) {
	g := newGround(t, nil)
	g.write("a", "old")
	s, out := g.swap("a")
	if got := g.names("."); got != "a" {
		t.Fatalf("the folder shows %q", got)
	}
	if f, err := g.root.Open(out); err != nil {
		t.Fatal(err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	back, err := g.root.SwapBack(out, "a")
	if err != nil || !s.Is(back.Info) {
		t.Fatalf("%+v, %v", back, err)
	}
	g.want("a", "old")
	s.Reclaim(back)
	if s.Lost() || s.Placed() {
		t.Fatal("what came back counts as gone")
	}
	if out, err = s.Swap("a", 0o644); err != nil {
		t.Fatal(err)
	}
	g.want("a", "new")
	need.NoError(t, g.root.Drop(out))
	if got := g.names("../aside"); got != "" {
		t.Fatalf("left aside: %q", got)
	}
}

// What was taken back is placed where nothing stands, and what was displaced gets
// its name again.
func TestFromAside(t *testing.T) {
	g := newGround(t, nil)
	g.write("a", "old")
	s, out := g.swap("a")
	if back, err := g.root.SwapBack(out, "a"); err != nil {
		t.Fatal(err)
	} else {
		s.Reclaim(back)
	}
	if err := s.Place("a", 0o644); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("placed over what stands there: %v", err)
	}
	need.NoError(t, s.Place("b", 0o644))
	g.want("b", "new")
	if _, out = g.swap("a"); g.root.PutBack(out, "a") == nil {
		t.Fatal("put back over what stands there")
	}
	need.NoError(t, g.root.PutBack(out, "c"))
	g.want("c", "old")
	if got := g.names("../aside"); got != "" {
		t.Fatalf("left aside: %q", got)
	}
}

// A target that is gone: the content stays aside until it is placed or dropped.
func TestAsideWithoutATarget(t *testing.T) {
	g := newGround(t, nil)
	s := g.stage("a")
	if out, err := s.Swap("a", 0o644); out != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v, %v", out, err)
	}
	need.NoError(t, s.Place("a", 0o644))
	g.want("a", "new")
	s = g.stage("b")
	if _, err := s.Swap("b", 0o644); err == nil {
		t.Fatal("exchanged with nothing")
	}
	s.Discard()
	if got := g.names("../aside"); got != "" {
		t.Fatalf("left aside: %q", got)
	}
}

// What is not removed at once comes home: beside its target, or as near as there
// is a folder, and never over anything.
func TestHome(t *testing.T) {
	g := newGround(t, nil)
	for _, dir := range []string{"d", "d/e"} {
		need.NoError(t, os.Mkdir(filepath.Join(g.dir, dir), 0o755))
	}
	g.write("d/e/a", "one")
	_, out := g.swap("d/e/a")
	taken := wspath.TempName(func() uint64 { by, _, _ := parseAside(out.Temp); return by }())
	g.write("d/e/"+taken, "in the way")
	need.NoError(t, g.root.Home(out, "d/e/a"))
	g.want("d/e/"+taken, "in the way")
	g.want(out.Temp, "one")
	if digits, ok := wspath.ParseTemp(wspath.Path(out.Temp).Base()); !ok || !TakenFrom(digits, "a") {
		t.Errorf("home as %s", out.Temp)
	}
	_, out = g.swap("d/e/a")
	need.NoError(t, os.RemoveAll(filepath.Join(g.dir, "d/e")))
	need.NoError(t, g.root.Home(out, "d/e/a"))
	if wspath.Path(out.Temp).Dir() != "d" {
		t.Errorf("home as %s", out.Temp)
	}
	g.want(out.Temp, "new")
}

// However many wait under the names that tell where they stood, another one comes
// home.
func TestHomeAmongMany(t *testing.T) {
	g := newGround(t, nil)
	g.write("a", "old")
	_, out := g.swap("a")
	by, _, _ := parseAside(out.Temp)
	g.write(wspath.TempName(by), "waits")
	for try := range takenTries {
		g.write(wspath.TempName(takenDigits("a", try)), "waits")
	}
	need.NoError(t, g.root.Home(out, "a"))
	g.want(out.Temp, "old")
	if digits, ok := wspath.ParseTemp(out.Temp); !ok || IsMaking(digits) {
		t.Errorf("home as %s", out.Temp)
	}
}

// A start tells what was prepared from what was displaced, and where.
func TestAsides(t *testing.T) {
	g := newGround(t, nil)
	g.write("a", "old")
	if _, err := g.stage("gone").Swap("gone", 0o644); err == nil {
		t.Fatal("exchanged with nothing")
	}
	g.swap("a")
	now, err := g.root.fs.Lstat("a")
	need.NoError(t, err)
	list, err := g.root.Asides()
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, a := range list {
		if displaced := a.Info.Size == 3 && a.By(now.Ino); a.Prepared() == displaced || a.From("a") != displaced || a.From("gone") == displaced {
			t.Errorf("%s: prepared %v, from a %v", a.Temp, a.Prepared(), a.From("a"))
		}
	}
}

// Where the two folders cannot exchange, it is done beside the target.
func TestAsideRefused(t *testing.T) {
	for _, refusal := range []error{syscall.EXDEV, syscall.EACCES, syscall.EOPNOTSUPP} {
		g := newGround(t, nil)
		hook := &vfs.Hook{}
		hook.OnCall = func(c vfs.Call) error {
			if c.Op == vfs.OpExchange && hook.CountOf(vfs.OpExchange) == 1 {
				return refusal
			}
			return nil
		}
		g.root.fs = vfs.Inject(g.root.fs, hook)
		g.write("a", "old")
		s, out := g.swap("a")
		if out.aside {
			t.Fatalf("%v: exchanged all the same", refusal)
		}
		g.want("a", "new")
		g.want(out.Temp, "old")
		s.Discard()
		if got := g.names("../aside"); got != "" {
			t.Fatalf("%v: left aside: %q", refusal, got)
		}
	}
}
