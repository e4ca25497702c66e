package revert

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/workspace/wstest"
)

// copyProject fills a folder with up to n files of a real project, Go's own
// sources, and gives their names.
func copyProject(t testing.TB, to string, n int) []string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	need.NoError(t, err)
	from := filepath.Join(strings.TrimSpace(string(root)), "src")
	var names []string
	err = filepath.WalkDir(from, func(full string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !d.Type().IsRegular() {
			return err
		}
		if len(names) == n {
			return fs.SkipAll
		}
		info, err := d.Info()
		if err != nil || info.Size() > 64<<10 {
			return err
		}
		name, err := filepath.Rel(from, full)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(to, filepath.Dir(name)), 0o755); err != nil {
			return err
		}
		names = append(names, filepath.ToSlash(name))
		return os.WriteFile(filepath.Join(to, name), data, info.Mode().Perm()|0o600)
	})
	need.NoError(t, err)
	return names
}

// TestProject: the full revert of the only task gives back a copy of a real
// project, byte for byte, mode for mode, and leaves every file alone that the
// task never touched.
func TestProject(t *testing.T) {
	files, rounds := 10_000, 300
	if testing.Short() {
		files, rounds = 2_000, 60
	}
	g := newRig(t, map[string]string{".gitignore": "*.log\n", "build.log": "ignored\n", "fmt/test.log": "ignored too\n", "link": "->fmt/print.go"})
	g.close()
	names := copyProject(t, g.root, files)
	if len(names) < files*8/10 {
		t.Fatalf("only %d files to copy", len(names))
	}
	g.open()
	g.task("A")
	top, err := vfs.OS(g.top)
	need.NoError(t, err)
	defer top.Close()
	look := func() wstest.Folder {
		t.Helper()
		f, err := wstest.Disk(top, "ws")
		need.NoError(t, err)
		return f
	}
	before := look()
	r := rand.New(rand.NewPCG(7, 7))
	dirs := make(map[string]bool)
	for _, n := range names {
		for d := path.Dir(n); d != "."; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	folders := slices.Sorted(func(yield func(string) bool) {
		for d := range dirs {
			if !yield(d) {
				return
			}
		}
	})
	refused := 0
	for i := range rounds {
		name := names[r.IntN(len(names))]
		var script []string
		switch r.IntN(12) {
		case 0:
			script = []string{"del " + name}
		case 1:
			script = []string{fmt.Sprintf("mv %s moved/%d/%s", name, i%7, path.Base(name))}
		case 2:
			script = []string{"chmod+x " + name}
		case 3:
			script = []string{fmt.Sprintf("put new/%d/made.go package made%d\\n", i, i)}
		case 4:
			script = []string{fmt.Sprintf("mv %s folders/%d", folders[r.IntN(len(folders))], i)}
		case 5:
			other := names[r.IntN(len(names))]
			script = []string{"mv " + name + " swap.tmp", "mv " + other + " " + name, "mv swap.tmp " + other}
		case 6:
			script = []string{"del " + name, "ln " + name + " link"}
		case 7:
			script = []string{fmt.Sprintf("put out/%d.log text %d", i, i), "put " + name + " \x00binary"}
		case 8:
			script = []string{"del " + folders[r.IntN(len(folders))]}
		default:
			script = []string{fmt.Sprintf("put %s // edited %d\\r\\n", name, i)}
		}
		if err := g.try(fmt.Sprintf("A s%d", i%3), script...); err != nil {
			refused++ // gone or moved by now
		}
	}
	hist, err := g.cache.Task(t.Context(), g.w, "A")
	need.NoError(t, err)
	if len(hist.Entries) < rounds {
		t.Fatalf("only %d changes, %d requests refused", len(hist.Entries), refused)
	}
	touched := make(map[string]bool)
	for i := range hist.Entries {
		e := &hist.Entries[i]
		touched[e.Path], touched[e.NewPath] = true, true
	}
	res := g.mustRevert(Request{Task: "A"})
	after := look()
	t.Logf("%d files, %d changes, %d requests refused; undone %d, %d files", len(before), len(hist.Entries), refused, res.Reverted, len(res.Files))
	if d := wstest.Differ("after", after, "before", before); d != "" {
		t.Fatalf("the project is not what it was:\n%s", d)
	}
	for name, was := range before {
		is := after[name]
		if touched[name] || was.Mode == object.Dir || strings.HasSuffix(name, ".log") {
			continue
		}
		if is.Info.MtimeNs != was.Info.MtimeNs || is.Info.Ino != was.Info.Ino || is.Info.Mode != was.Info.Mode {
			t.Errorf("%s was never touched, and was rewritten", name)
		}
	}
	// One change of a revert of that many files can be taken back alone.
	hist, err = g.cache.Task(t.Context(), g.w, "A")
	need.NoError(t, err)
	for i := range hist.Entries {
		e := &hist.Entries[i]
		if !e.IsRevert() || e.Operation != "modify" || len(e.Reverts) != 1 || hist.Find(e.Reverts[0].ID).Path != e.Path {
			continue
		}
		g.mustRevert(Request{Task: "A", Scope: Scope{Change: e.ID}})
		now, err := g.cache.Task(t.Context(), g.w, "A")
		need.NoError(t, err)
		if work := now.Work(); len(work) != 1 || work[0].ID != e.Reverts[0].ID {
			t.Fatalf("taking back change %d brings %d changes back", e.ID, len(work))
		}
		return
	}
	t.Fatal("the revert modified nothing that one change had made")
}
