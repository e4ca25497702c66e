package areas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

func newFolders(t interface{ Fatal(...any) }, root vfs.FS) *Folders {
	f, err := OpenFolders(root, "t1", FolderOptions{MaxFile: 1 << 20, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func at(a Area, p string) Path { return Path{Area: a, Path: wspath.Path(p)} }

func write(p Path, data string) Op {
	return Op{Area: p.Area, Op: op.Op{Kind: op.OpWrite, Path: p.Path, Data: []byte(data)}}
}

func remove(p Path, recursive bool) Op {
	return Op{Area: p.Area, Op: op.Op{Kind: op.OpDelete, Path: p.Path, Recursive: recursive}}
}

func rename(p, to Path, overwrite bool) Op {
	return Op{Area: p.Area, ToArea: to.Area, Op: op.Op{Kind: op.OpRename, Path: p.Path, To: to.Path, Overwrite: overwrite}}
}

func chmod(p Path, m object.Mode) Op {
	return Op{Area: p.Area, Op: op.Op{Kind: op.OpChmod, Path: p.Path, Mode: &m}}
}

func mkdir(p Path, recursive bool) Op {
	return Op{Area: p.Area, Op: op.Op{Kind: op.OpMkdir, Path: p.Path, Recursive: recursive}}
}

func edit(p Path, change func([]byte) ([]byte, error)) Op {
	return Op{Area: p.Area, Op: op.Op{Kind: op.OpEdit, Path: p.Path, Edit: change}}
}

// match gives an operation the condition that the file has these bytes.
func match(o Op, data string) Op {
	o.If.Match = []string{object.Hash(object.Blob, []byte(data)).String()}
	return o
}

func do(f *Folders, o Op) (Result, error) {
	r, err := f.Apply(context.Background(), []Op{o}, nil)
	if err != nil {
		return Result{}, err
	}
	return r[0], nil
}

func put(f *Folders, p Path, data string) (Result, error) { return do(f, write(p, data)) }

func apply(f *Folders, o Op) error {
	_, err := do(f, o)
	return err
}

// contents reads both areas whole, as "area/path" to "mode content".
func contents(t interface{ Fatal(...any) }, f *Folders) map[string]string {
	out := map[string]string{}
	for _, a := range All() {
		files, err := f.List(context.Background(), a)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			h, _, err := f.Open(context.Background(), Path{a, file.Path})
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(h)
			h.Close()
			if err != nil {
				t.Fatal(err)
			}
			if object.Hash(object.Blob, data) != file.Blob || int64(len(data)) != file.Size {
				t.Fatal("listing tells other bytes than the file has:", file.Path)
			}
			out[string(a)+"/"+string(file.Path)] = file.Mode.String() + " " + string(data)
		}
	}
	return out
}

func noLeftovers(t interface{ Fatal(...any) }, f *Folders) {
	entries, err := f.fs.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if wspath.IsTemp(e.Name) {
			t.Fatal("left over: ", e.Name)
		}
	}
}

func TestFoldersOperations(t *testing.T) {
	for name, root := range map[string]vfs.FS{"mem": vfs.NewMem(vfs.MemOptions{}), "os": osRoot(t)} {
		t.Run(name, func(t *testing.T) {
			f := newFolders(t, root)
			r, err := put(f, at(Scratch, "a/b"), "one")
			if err != nil || r.Operation != "create" || r.Blob != object.Hash(object.Blob, []byte("one")) || r.Size != 3 {
				t.Fatalf("create: %+v, %v", r, err)
			}
			if r, err = do(f, match(write(at(Scratch, "a/b"), "two"), "one")); err != nil || r.Operation != "modify" {
				t.Fatalf("modify: %+v, %v", r, err)
			}
			upper := func(b []byte) ([]byte, error) { return bytes.ToUpper(b), nil }
			newOnly := write(at(Scratch, "a/b"), "three")
			newOnly.If.NoneMatchAny = true
			noFile, noDir := remove(at(Scratch, "a"), true), remove(at(Scratch, "a/b"), true)
			noFile.MustBe, noDir.MustBe = op.KindFile, op.KindDir
			large := edit(at(Scratch, "a/b"), upper)
			large.MaxEdit = 2
			checks := []struct {
				name string
				op   Op
				code string
			}{
				{"If-Match of old bytes", match(remove(at(Scratch, "a/b"), false), "one"), "precondition_failed"},
				{"If-Match of nothing", match(remove(at(Scratch, "x"), false), "one"), "precondition_failed"},
				{"a write with If-Match of nothing", match(write(at(Scratch, "x"), "x"), "one"), "precondition_failed"},
				{"new only", newOnly, "precondition_failed"},
				{"delete of nothing", remove(at(Scratch, "x"), false), "file_not_found"},
				{"delete of a full folder", remove(at(Scratch, "a"), false), "directory_not_empty"},
				{"delete of a file that is a folder", noFile, "is_a_directory"},
				{"delete of a folder that is a file", noDir, "not_a_directory"},
				{"the folder itself", remove(at(Scratch, "."), true), "bad_path"},
				{"rename of nothing", rename(at(Scratch, "x"), at(Scratch, "y"), false), "file_not_found"},
				{"rename to what is there", rename(at(Scratch, "e"), at(Scratch, "a"), false), "target_exists"},
				{"rename over a full folder", rename(at(Scratch, "e"), at(Scratch, "a"), true), "directory_not_empty"},
				{"into itself", rename(at(Scratch, "a"), at(Scratch, "a/c/d"), false), "move_into_itself"},
				{"over a parent", rename(at(Scratch, "a/b"), at(Scratch, "a"), true), "target_exists"},
				{"below a file", rename(at(Scratch, "a"), at(Scratch, "a/b/c"), false), "move_into_itself"},
				{"write below a file", write(at(Scratch, "a/b/c"), "x"), "not_a_directory"},
				{"write over a folder", write(at(Scratch, "a"), "x"), "is_a_directory"},
				{"chmod of a folder", chmod(at(Scratch, "a"), object.Executable), "is_a_directory"},
				{"a folder that is there", mkdir(at(Scratch, "a"), false), "target_exists"},
				{"a folder where a file is", mkdir(at(Scratch, "a/b"), true), "target_exists"},
				{"a folder without one above", mkdir(at(Scratch, "x/y"), false), "parent_not_found"},
				{"edit of nothing", edit(at(Scratch, "x"), upper), "file_not_found"},
				{"edit of other bytes", match(edit(at(Scratch, "a/b"), upper), "one"), "precondition_failed"},
				{"edit of too much", large, "file_too_large"},
			}
			if r, err := do(f, mkdir(at(Scratch, "e"), false)); err != nil || !r.Created {
				t.Fatalf("mkdir: %+v, %v", r, err)
			}
			for _, c := range checks {
				before := contents(t, f)
				if err := apply(f, c.op); errs.CodeOf(err) != c.code {
					t.Errorf("%s: %v, want %s", c.name, err, c.code)
				}
				if after := contents(t, f); !maps.Equal(before, after) {
					t.Errorf("%s changed something: %v", c.name, after)
				}
			}
			if r, err := do(f, mkdir(at(Scratch, "a"), true)); err != nil || r.Created {
				t.Errorf("mkdir of what is there: %+v, %v", r, err)
			}
			gone := remove(at(Scratch, "x"), false)
			gone.Force = true
			if r, err := do(f, gone); err != nil || r.Existed {
				t.Errorf("forced delete of nothing: %+v, %v", r, err)
			}
			if r, err := do(f, match(edit(at(Scratch, "a/b"), upper), "two")); err != nil || r.Operation != "modify" || r.Size != 3 {
				t.Errorf("edit: %+v, %v", r, err)
			}
			if err := apply(f, chmod(at(Scratch, "a/b"), object.Executable)); err != nil {
				t.Fatal(err)
			}
			if err := apply(f, rename(at(Scratch, "a"), at(Artifacts, "kept/a"), false)); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"artifacts/kept/a/b": "100755 TWO"}
			if got := contents(t, f); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if err := apply(f, remove(at(Artifacts, "kept"), true)); err != nil {
				t.Fatal(err)
			}
			noLeftovers(t, f)
		})
	}
}

func osRoot(t *testing.T) vfs.FS {
	root, err := vfs.OS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func TestFoldersRefuse(t *testing.T) {
	f := newFolders(t, vfs.NewMem(vfs.MemOptions{}))
	for _, p := range []string{"r/HEAD", "r/config", "r/objects/x"} {
		if _, err := put(f, at(Scratch, p), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := put(f, at(Scratch, "r/refs/heads/x"), "x"); errs.CodeOf(err) != "bad_path" {
		t.Errorf("a repository's shape came about: %v", err)
	}
	if _, err := put(f, at(Scratch, "large"), strings.Repeat("x", 1<<20+1)); errs.CodeOf(err) != "file_too_large" {
		t.Errorf("too large: %v", err)
	}
	noLeftovers(t, f)
}

func TestFoldersLinks(t *testing.T) {
	root := osRoot(t)
	f := newFolders(t, root)
	if _, err := put(f, at(Scratch, "real"), "one"); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"in": "real", "out": "../../other/secret", "abs": "/etc/passwd", "round": "round", "gone": "nothing"} {
		if err := f.fs.Symlink(target, "scratch/"+name); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := put(f, at(Scratch, "in"), "two"); err != nil || r.Operation != "modify" {
		t.Fatalf("through a link: %+v, %v", r, err)
	}
	if got := contents(t, f); got["scratch/real"] != "100644 two" || got["scratch/in"] != "100644 two" || len(got) != 2 {
		t.Errorf("got %v", got)
	}
	for name, code := range map[string]string{"out": "bad_path", "abs": "bad_path", "round": "bad_path", "gone": "file_not_found"} {
		if _, _, err := f.Open(context.Background(), at(Scratch, name)); errs.CodeOf(err) != code {
			t.Errorf("%s: %v, want %s", name, err, code)
		}
	}
	if err := apply(f, remove(at(Scratch, "in"), false)); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, f); got["scratch/real"] != "100644 two" {
		t.Errorf("deleting a link took its target: %v", got)
	}
}

// someOps are a batch that touches everything there is to undo.
func someOps() []Op {
	executable, mode := write(at(Scratch, "deep/er/new"), "x"), object.Executable
	executable.Mode = &mode
	return []Op{
		write(at(Scratch, "old"), "new bytes"),
		executable,
		remove(at(Scratch, "dir"), true),
		rename(at(Artifacts, "a"), at(Artifacts, "b"), true),
		chmod(at(Artifacts, "c"), mode),
		edit(at(Artifacts, "c"), func(b []byte) ([]byte, error) { return append(b, "more"...), nil }),
		mkdir(at(Artifacts, "d/e"), true),
	}
}

func fill(t *testing.T, f *Folders) {
	for _, p := range []Path{at(Scratch, "old"), at(Scratch, "dir/1"), at(Scratch, "dir/2/3"), at(Artifacts, "a"), at(Artifacts, "b"), at(Artifacts, "c")} {
		if _, err := put(f, p, "content of "+p.name()); err != nil {
			t.Fatal(err)
		}
	}
}

// An error at any call takes all back; so does one of what comes after.
func TestFoldersApplyIsAtomic(t *testing.T) {
	prepare := func() (*vfs.Hook, *Folders, []Op, map[string]string) {
		hook := &vfs.Hook{Reads: true}
		f := newFolders(t, vfs.Inject(vfs.NewMem(vfs.MemOptions{}), hook))
		fill(t, f)
		return hook, f, someOps(), contents(t, f)
	}
	hook, f, ops, _ := prepare()
	start := hook.Count()
	if _, err := f.Apply(context.Background(), ops, nil); err != nil {
		t.Fatal(err)
	}
	after, calls := contents(t, f), hook.Count()-start
	points := 0
	for n := 1; n <= calls; n++ {
		hook, f, ops, before := prepare()
		from, armed := hook.Count(), true
		hook.OnCall = func(c vfs.Call) error {
			if armed && c.N == from+n {
				armed = false
				return syscall.EIO
			}
			return nil
		}
		_, err := f.Apply(context.Background(), ops, nil)
		armed = false
		got := contents(t, f)
		switch {
		case err != nil && !maps.Equal(got, before):
			t.Fatalf("call %d failed (%v) and left %v, was %v", n, err, got, before)
		case err == nil && !maps.Equal(got, after):
			t.Fatalf("call %d: no error, and %v", n, got)
		}
		if err != nil {
			points++
			noLeftovers(t, f)
		}
	}
	if points < 30 {
		t.Errorf("only %d of %d failing calls were told", points, calls)
	}

	_, f, ops, before := prepare()
	stop := errors.New("the commit failed")
	if _, err := f.Apply(context.Background(), ops, func() error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if got := contents(t, f); !maps.Equal(got, before) {
		t.Errorf("left %v, was %v", got, before)
	}
}

// What Apply answered survives a power cut.
func TestFoldersAreDurable(t *testing.T) {
	for seed := range uint64(40) {
		mem := vfs.NewMem(vfs.MemOptions{})
		f := newFolders(t, mem)
		fill(t, f)
		if _, err := f.Apply(context.Background(), someOps(), nil); err != nil {
			t.Fatal(err)
		}
		want := contents(t, f)
		mode := []vfs.CrashMode{vfs.CrashRandom, vfs.CrashSyncedOnly, vfs.CrashNamesOnly}[seed%3]
		g := newFolders(t, mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(seed, 7))}))
		if got := contents(t, g); !maps.Equal(got, want) {
			t.Fatalf("seed %d, %s: %v, want %v", seed, mode, got, want)
		}
		noLeftovers(t, g)
	}
}

// Random operations against a map.
func TestFoldersModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFolders(t, vfs.NewMem(vfs.MemOptions{}))
		model := map[string]string{}
		names := []string{"a", "b", "d/a", "d/b", "d/e/a"}
		under := func(p string) []string {
			var out []string
			for k := range model {
				if k == p || strings.HasPrefix(k, p+"/") {
					out = append(out, k)
				}
			}
			slices.Sort(out)
			return out
		}
		for i := range rapid.IntRange(1, 25).Draw(t, "n") {
			p := rapid.SampledFrom(names).Draw(t, "path")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				data := fmt.Sprint(i)
				if _, err := put(f, at(Scratch, p), data); err == nil {
					model["scratch/"+p] = "100644 " + data
				}
			case 1:
				if err := apply(f, remove(at(Scratch, p), false)); (err == nil) != (len(under("scratch/"+p)) == 1) {
					t.Fatalf("delete %s: %v with %v", p, err, model)
				} else if err == nil {
					delete(model, "scratch/"+p)
				}
			case 2:
				dir := rapid.SampledFrom([]string{"d", "d/e"}).Draw(t, "dir")
				if err := apply(f, remove(at(Scratch, dir), true)); err == nil {
					for _, k := range under("scratch/" + dir) {
						delete(model, k)
					}
				}
			case 3:
				to := rapid.SampledFrom(names).Draw(t, "to")
				over := rapid.Bool().Draw(t, "overwrite")
				_, has := model["scratch/"+p]
				_, taken := model["scratch/"+to]
				err := apply(f, rename(at(Scratch, p), at(Scratch, to), over))
				if want := has && (p == to || !taken || over); (err == nil) != want {
					t.Fatalf("rename %s %s: %v with %v", p, to, err, model)
				}
				if err == nil && p != to {
					model["scratch/"+to] = model["scratch/"+p]
					delete(model, "scratch/"+p)
				}
			}
			if got := contents(t, f); !maps.Equal(got, model) {
				t.Fatalf("got %v, want %v", got, model)
			}
		}
		noLeftovers(t, f)
	})
}
