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
	"umbra/internal/wspath"
)

func newFolders(t interface{ Fatal(...any) }, root vfs.FS) *Folders {
	f, err := OpenFolders(root, "t1", FolderOptions{MaxFile: 1 << 20, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func at(a Area, p string) AreaPath { return AreaPath{Area: a, Path: wspath.Path(p)} }

func put(f *Folders, p AreaPath, data string, change func(*AreaOp)) (AreaResult, error) {
	s, err := f.Stage(context.Background(), strings.NewReader(data))
	if err != nil {
		return AreaResult{}, err
	}
	defer s.Discard()
	op := AreaOp{Kind: AreaWrite, Path: p, Content: s}
	if change != nil {
		change(&op)
	}
	r, err := f.Apply(context.Background(), []AreaOp{op}, nil)
	if err != nil {
		return AreaResult{}, err
	}
	return r[0], nil
}

func apply(f *Folders, op AreaOp) error {
	_, err := f.Apply(context.Background(), []AreaOp{op}, nil)
	return err
}

// contents reads both areas whole, as "area/path" to "mode content".
func contents(t interface{ Fatal(...any) }, f *Folders) map[string]string {
	out := map[string]string{}
	for _, a := range Areas() {
		files, err := f.List(context.Background(), a)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			h, _, err := f.Open(context.Background(), AreaPath{a, file.Path})
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
			r, err := put(f, at(Scratch, "a/b"), "one", nil)
			if err != nil || r.Operation != "create" || r.Blob != object.Hash(object.Blob, []byte("one")) || r.Size != 3 {
				t.Fatalf("create: %+v, %v", r, err)
			}
			if r, err = put(f, at(Scratch, "a/b"), "two", func(op *AreaOp) { op.Match = []string{r.Blob.String()} }); err != nil || r.Operation != "modify" {
				t.Fatalf("modify: %+v, %v", r, err)
			}
			checks := []struct {
				name string
				op   AreaOp
				code string
			}{
				{"If-Match of old bytes", AreaOp{Kind: AreaDelete, Path: at(Scratch, "a/b"), Match: []string{object.Hash(object.Blob, []byte("one")).String()}}, "precondition_failed"},
				{"delete of nothing", AreaOp{Kind: AreaDelete, Path: at(Scratch, "x")}, "file_not_found"},
				{"delete of a full folder", AreaOp{Kind: AreaDelete, Path: at(Scratch, "a")}, "directory_not_empty"},
				{"the folder itself", AreaOp{Kind: AreaDelete, Path: at(Scratch, "."), Recursive: true}, "bad_path"},
				{"rename of nothing", AreaOp{Kind: AreaRename, Path: at(Scratch, "x"), To: at(Scratch, "y")}, "file_not_found"},
				{"into itself", AreaOp{Kind: AreaRename, Path: at(Scratch, "a"), To: at(Scratch, "a/c/d")}, "move_into_itself"},
				{"over a parent", AreaOp{Kind: AreaRename, Path: at(Scratch, "a/b"), To: at(Scratch, "a"), Overwrite: true}, "target_exists"},
				{"below a file", AreaOp{Kind: AreaRename, Path: at(Scratch, "a"), To: at(Scratch, "a/b/c")}, "move_into_itself"},
				{"chmod of a folder", AreaOp{Kind: AreaChmod, Path: at(Scratch, "a"), Mode: object.Executable}, "is_a_directory"},
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
			if _, err := put(f, at(Scratch, "a/b"), "three", func(op *AreaOp) { op.NewOnly = true }); errs.CodeOf(err) != "precondition_failed" {
				t.Errorf("new only: %v", err)
			}
			if _, err := put(f, at(Scratch, "a/b/c"), "x", nil); errs.CodeOf(err) != "not_a_directory" {
				t.Errorf("below a file: %v", err)
			}
			if _, err := put(f, at(Scratch, "a"), "x", nil); errs.CodeOf(err) != "is_a_directory" {
				t.Errorf("over a folder: %v", err)
			}
			if err := apply(f, AreaOp{Kind: AreaChmod, Path: at(Scratch, "a/b"), Mode: object.Executable}); err != nil {
				t.Fatal(err)
			}
			if err := apply(f, AreaOp{Kind: AreaRename, Path: at(Scratch, "a"), To: at(Artifacts, "kept/a")}); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"artifacts/kept/a/b": "100755 two"}
			if got := contents(t, f); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if err := apply(f, AreaOp{Kind: AreaDelete, Path: at(Artifacts, "kept"), Recursive: true}); err != nil {
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
		if _, err := put(f, at(Scratch, p), "x", nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := put(f, at(Scratch, "r/refs/heads/x"), "x", nil); errs.CodeOf(err) != "bad_path" {
		t.Errorf("a repository's shape came about: %v", err)
	}
	if _, err := f.Stage(context.Background(), bytes.NewReader(make([]byte, 1<<20+1))); errs.CodeOf(err) != "file_too_large" {
		t.Errorf("too large: %v", err)
	}
	noLeftovers(t, f)
}

func TestFoldersLinks(t *testing.T) {
	root := osRoot(t)
	f := newFolders(t, root)
	if _, err := put(f, at(Scratch, "real"), "one", nil); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"in": "real", "out": "../../other/secret", "abs": "/etc/passwd", "round": "round", "gone": "nothing"} {
		if err := f.fs.Symlink(target, "scratch/"+name); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := put(f, at(Scratch, "in"), "two", nil); err != nil || r.Operation != "modify" {
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
	if err := apply(f, AreaOp{Kind: AreaDelete, Path: at(Scratch, "in")}); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, f); got["scratch/real"] != "100644 two" {
		t.Errorf("deleting a link took its target: %v", got)
	}
}

// someOps are a batch that touches everything there is to undo.
func someOps(t *testing.T, f *Folders) []AreaOp {
	stage := func(data string) *Staged {
		s, err := f.Stage(context.Background(), strings.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return []AreaOp{
		{Kind: AreaWrite, Path: at(Scratch, "old"), Content: stage("new bytes")},
		{Kind: AreaWrite, Path: at(Scratch, "deep/er/new"), Content: stage("x"), Mode: object.Executable},
		{Kind: AreaDelete, Path: at(Scratch, "dir"), Recursive: true},
		{Kind: AreaRename, Path: at(Artifacts, "a"), To: at(Artifacts, "b"), Overwrite: true},
		{Kind: AreaChmod, Path: at(Artifacts, "c"), Mode: object.Executable},
	}
}

func fill(t *testing.T, f *Folders) {
	for _, p := range []AreaPath{at(Scratch, "old"), at(Scratch, "dir/1"), at(Scratch, "dir/2/3"), at(Artifacts, "a"), at(Artifacts, "b"), at(Artifacts, "c")} {
		if _, err := put(f, p, "content of "+p.name(), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// An error at any call takes all back; so does one of what comes after.
func TestFoldersApplyIsAtomic(t *testing.T) {
	prepare := func() (*vfs.Hook, *Folders, []AreaOp, map[string]string) {
		hook := &vfs.Hook{Reads: true}
		f := newFolders(t, vfs.Inject(vfs.NewMem(vfs.MemOptions{}), hook))
		fill(t, f)
		return hook, f, someOps(t, f), contents(t, f)
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
		for _, op := range ops {
			if op.Content != nil {
				op.Content.Discard()
			}
		}
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
		if _, err := f.Apply(context.Background(), someOps(t, f), nil); err != nil {
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
				if _, err := put(f, at(Scratch, p), data, nil); err == nil {
					model["scratch/"+p] = "100644 " + data
				}
			case 1:
				if err := apply(f, AreaOp{Kind: AreaDelete, Path: at(Scratch, p)}); (err == nil) != (len(under("scratch/"+p)) == 1) {
					t.Fatalf("delete %s: %v with %v", p, err, model)
				} else if err == nil {
					delete(model, "scratch/"+p)
				}
			case 2:
				dir := rapid.SampledFrom([]string{"d", "d/e"}).Draw(t, "dir")
				if err := apply(f, AreaOp{Kind: AreaDelete, Path: at(Scratch, dir), Recursive: true}); err == nil {
					for _, k := range under("scratch/" + dir) {
						delete(model, k)
					}
				}
			case 3:
				to := rapid.SampledFrom(names).Draw(t, "to")
				over := rapid.Bool().Draw(t, "overwrite")
				_, has := model["scratch/"+p]
				_, taken := model["scratch/"+to]
				err := apply(f, AreaOp{Kind: AreaRename, Path: at(Scratch, p), To: at(Scratch, to), Overwrite: over})
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
