package exec

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"umbra/internal/calls"
	"umbra/internal/layer"
	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// world is a data directory with the services that layers need, and a workspace. It
// can be closed and opened again.
type world struct {
	t          *testing.T
	data, root string
	records    *workspaces.MemRecords
	db         *state.DB
	m          *workspaces.Manager
	files      []vfs.FS
	calls      *calls.Service
	tasks      *task.Service
	layers     *Service
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, data: t.TempDir(), root: filepath.Join(t.TempDir(), "ws"), records: &workspaces.MemRecords{}}
	need.NoError(t, os.Mkdir(w.root, 0o755))
	t.Cleanup(func() { w.close() })
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open() {
	w.t.Helper()
	var err error
	w.db, err = state.Open(filepath.Join(w.data, "state.db"))
	w.ok(err)
	w.m, err = workspaces.NewManager(workspaces.Options{DataDir: w.data, Records: w.records})
	w.ok(err)
	dir := func(name string) vfs.FS {
		w.ok(os.MkdirAll(filepath.Join(w.data, name), 0o700))
		f, err := vfs.OS(filepath.Join(w.data, name))
		w.ok(err)
		w.files = append(w.files, f)
		return f
	}
	w.calls, err = calls.New(calls.Options{Workspaces: w.m, State: w.db, FS: dir("calls")})
	w.ok(err)
	w.tasks, err = task.New(context.Background(), task.Options{Workspaces: w.m, State: w.db, FS: dir("tasks"), Dir: filepath.Join(w.data, "tasks"), Log: slog.New(slog.DiscardHandler)})
	w.ok(err)
	w.calls.Attach(w.tasks)
	w.m.Resume()
	w.layers, err = New(Options{Dir: filepath.Join(w.data, "layers"), Workspaces: w.m, Calls: w.calls, Log: slog.New(slog.DiscardHandler)})
	w.ok(err)
	w.layers.cleaner.inline = true
	w.layers.Resume(context.Background())
}

func (w *world) close() {
	if w.db == nil {
		return
	}
	w.layers.Close()
	w.tasks.Close()
	err := errors.Join(w.calls.Close(), w.m.Close(context.Background()))
	for _, f := range w.files {
		err = errors.Join(err, f.Close())
	}
	w.ok(errors.Join(err, w.db.Close()))
	w.db, w.files = nil, nil
}

// run runs a shell command in a new layer, which is not applied.
func (w *world) run(line string) string {
	w.t.Helper()
	b, err := w.layers.Begin(context.Background(), calls.Begin{Agent: "a", Session: "s", Cwd: w.root})
	w.ok(err)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	w.ok(err)
	defer null.Close()
	release, err := Hold(b.Dir) // else its client counts as killed, and the command is ended
	w.ok(err)
	defer release()
	exit, err := layer.Run(layer.Command{Root: w.root, Upper: filepath.Join(b.Dir, "upper"), Work: filepath.Join(b.Dir, "work"), Dir: w.root,
		Args: []string{"sh", "-ec", line}, Env: os.Environ(), Files: [3]*os.File{null, null, null}})
	if errors.Is(err, layer.ErrUnsupported) {
		need.Missing(w.t, err.Error())
	}
	w.ok(err)
	if exit.Status != 0 {
		w.t.Fatal(exit)
	}
	return b.ID
}

// tree describes the workspace's files.
func (w *world) tree() string {
	w.t.Helper()
	return need.Tree(w.t, w.root)
}

var errStopped = errors.New("stopped")

// TestStoppedAtEachStep stops an apply before each thing that it does to a disk, as a
// kill would, and opens the data directory again: the layer is applied as a whole, or
// not at all and kept.
func TestStoppedAtEachStep(t *testing.T) {
	if runtime.GOOS != "linux" {
		need.Missing(t, "layers need Linux")
	}
	fill := map[string]string{".gitignore": "out/\n*.o\n", "a": "one\n", "d/gone": "x\n", "d/moved": "moved\n", "both": "base\n",
		"out/old": "old\n", "out/keep/f": "f\n", "k.o": "k\n", "big.o": "big\n", "c/f": "f\n", "c/in/f": "f\n"}
	commands := map[string]string{
		"both":     "echo two > a; rm d/gone; mv d/moved moved; mkdir n; echo n > n/f; chmod 750 n; echo layer > both; rm -rf out; mkdir -p out/new; echo o > out/new/o; rm k.o; echo more >> big.o; ln -s a l",
		"ignored":  "rm -rf out; mkdir -p out/new; echo o > out/new/o; echo more >> big.o; rm k.o; chmod 700 out",
		"recorded": "echo two > a; rm -r d; echo n > n",
		"clock":    "echo two > a; rm -r d; echo n > n; echo o > out/new", // is set back meanwhile
		"closed":   "chmod 700 c c/in; echo n > c/in/n; echo o > c/in/n.o; rm c/f; chmod 0 c/in; chmod 500 c; echo n > d/n; chmod 0 d; echo o > out/keep/o; chmod 0 out/keep; chmod 0 out",
	}
	for name, line := range commands {
		if testing.Short() && name != "both" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			results := map[string]int{}
			want := ""
			for stop := 0; ; stop++ {
				w := newWorld(t)
				for path, text := range fill {
					w.ok(os.MkdirAll(filepath.Join(w.root, filepath.Dir(path)), 0o755))
					w.ok(os.WriteFile(filepath.Join(w.root, path), []byte(text), 0o644))
				}
				w.sh("chmod 0 c/in; chmod 500 c")
				w.open()
				id := w.run(line)
				if name == "clock" {
					l, err := w.layers.Get(id, nil)
					w.ok(err)
					l.Begun = l.Begun.Add(3 * time.Hour)
					raw, err := json.Marshal(l)
					w.ok(errors.Join(err, os.WriteFile(w.layers.path(id, metaFile), raw, 0o600)))
				}
				if name == "both" { // a conflict is kept
					w.ok(os.WriteFile(filepath.Join(w.root, "both"), []byte("person\n"), 0o644))
				}
				before := w.tree()
				n := 0
				w.layers.step = func() error {
					if n++; n > stop && stop > 0 {
						return errStopped
					}
					return nil
				}
				_, err := w.layers.Apply(context.Background(), id, Apply{})
				if stop == 0 {
					w.ok(err)
					want = w.tree()
					if want == before {
						t.Fatal("the layer changes nothing")
					}
					continue
				}
				done := err == nil
				if !done && !errors.Is(err, errStopped) {
					t.Fatalf("stop %d: %v", stop, err)
				}
				w.close()
				w.open()
				list, err := w.layers.List(nil)
				w.ok(err)
				switch now := w.tree(); {
				case len(list) == 0 && now == want:
					results["applied"]++
				case len(list) == 1 && list[0].ID == id && now == before:
					results["kept"]++
					_, err := w.layers.Apply(context.Background(), id, Apply{})
					w.ok(err)
					if now := w.tree(); now != want {
						t.Fatalf("stop %d: applied later:\n%s\nwant\n%s", stop, now, want)
					}
				default:
					t.Fatalf("stop %d: %d layers are left, and there is\n%s\nbefore\n%s\nwant\n%s", stop, len(list), now, before, want)
				}
				r, err := w.calls.Get(id, nil)
				w.ok(err)
				if r.Status != calls.OK || name != "ignored" && len(r.Commits) != 1 {
					t.Fatalf("stop %d: the call is %s with %d commits", stop, r.Status, len(r.Commits))
				}
				if left, err := os.ReadDir(filepath.Join(w.data, "layers")); err != nil || len(left) != 0 {
					t.Fatalf("stop %d: %v is left, %v", stop, left, err)
				}
				w.close()
				if done {
					break
				}
			}
			t.Log(results)
			if results["kept"] == 0 || results["applied"] < 3 {
				t.Errorf("%v", results)
			}
		})
	}
}

// TestDirectoryIsReplaced: a file or link takes the place of a directory in which there
// are directories that history does not have, or a directory that of a file or link. Ignored files in it are in no history, so
// they keep it: a conflict.
func TestDirectoryIsReplaced(t *testing.T) {
	if runtime.GOOS != "linux" {
		need.Missing(t, "layers need Linux")
	}
	for name, x := range map[string]struct {
		before, line string
		conflicts    int
	}{
		"an empty one in it":                         {"mkdir -p d/e/f; echo b > d/b", "rm -rf d; ln -s d/a d", 0},
		"an empty one":                               {"mkdir d", "rmdir d; echo x > d", 0},
		"with a file, moved":                         {"mkdir -p d/e; echo b > d/b", "mv d/b b; rm -r d; mv b d", 0},
		"with files, by a link that is moved":        {"mkdir -p d/e; echo b > d/e/b; echo c > d/c; ln -s d/a b", "rm -r d; mv b d", 0},
		"an empty one, by a file that is moved":      {"mkdir d; echo b > b", "rmdir d; mv b d", 0},
		"of files and ones":                          {"mkdir -p d/e d/g; echo b > d/e/b; echo c > d/c", "rm -r d; echo x > d", 0},
		"a link to itself, by one with an empty one": {"ln -s d/b d", "rm d; mkdir -p d/e; echo a > d/a", 0},
		"a link to one, by one with an empty one":    {"mkdir -p f/e; echo b > f/e/b; ln -s f d", "rm d; mkdir -p d/e", 0},
		"a file, by an empty one":                    {"echo b > d", "rm d; mkdir d", 0},
		"a file, moved, by one with an empty one":    {"echo b > d", "mv d b; mkdir -p d/e/f", 0},
		"with an ignored file":                       {"mkdir d; echo b > d/b; echo o > d/x.o", "rm -r d; echo x > d", 1},
		"ignored, by a link":                         {"mkdir -p out/d; echo b > out/d/b", "rm -r out; ln -s x out", 1},
		"with a person's file":                       {"mkdir -p d", "rmdir d; echo x > d", 1},
		"one made by a person ":                      {"true", "echo x > d", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ok(os.WriteFile(filepath.Join(w.root, ".gitignore"), []byte("out/\n*.o\n"), 0o644))
			w.sh(x.before)
			w.open()
			id := w.run(x.line)
			want := ""
			switch name {
			case "with a person's file":
				w.sh("echo p > d/p")
			case "one made by a person ":
				w.sh("mkdir d")
			}
			if x.conflicts == 0 { // what the command made of it
				copied := newWorld(t)
				w.ok(os.WriteFile(filepath.Join(copied.root, ".gitignore"), []byte("out/\n*.o\n"), 0o644))
				copied.sh(x.before)
				copied.sh(x.line)
				want = copied.tree()
			}
			a, err := w.layers.Apply(context.Background(), id, Apply{})
			w.ok(err)
			if len(a.Conflicts) != x.conflicts {
				t.Fatalf("%+v\n%s", a.Conflicts, w.tree())
			}
			if now := w.tree(); want != "" && now != want {
				t.Errorf("there is\n%s\nwant\n%s", now, want)
			}
		})
	}
}

// sh runs a shell command in the workspace.
func (w *world) sh(line string) {
	w.t.Helper()
	cmd := exec.Command("sh", "-ec", line)
	cmd.Dir = w.root
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}
