package refs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
)

func TestForeignValues(t *testing.T) {
	r := newRepo(t)
	a, b, c, x := r.commit("a"), r.commit("b"), r.commit("c"), r.commit("x")
	other := r.commit("other")
	const ref = TasksPrefix + "t/head"
	set := func(id object.ID) func() { return func() { r.git("update-ref", ref, id.String()) } }
	write := func(data string) func() {
		return func() {
			need.NoError(t, os.WriteFile(filepath.Join(r.dir, ref), []byte(data), 0o666))
		}
	}
	r.git("update-ref", "refs/heads/other", other.String())
	for _, tc := range []struct {
		name string
		do   func()
		u    Update
		want []Foreign
	}{
		{"new", func() {}, Update{New: a}, nil},
		{"again", func() {}, Update{New: a, Before: was(b)}, nil},
		{"as noted", set(b), Update{New: c, Before: was(b)}, nil},
		{"as the journals say", set(b), Update{New: c, Before: was(a, x, b)}, nil},
		{"moved", set(x), Update{New: a, Before: was(c)}, []Foreign{{Ref: ref, ID: x, KeptAs: "refs/foreign/1"}}},
		{"moved there again", set(x), Update{New: b, Before: was(a)}, []Foreign{{Ref: ref, ID: x, KeptAs: "refs/foreign/1"}}},
		{"moved elsewhere", set(other), Update{New: c, Before: was(b)}, []Foreign{{Ref: ref, ID: other, KeptAs: "refs/foreign/2"}}},
		{"moved and packed", func() { set(a)(); r.git("pack-refs", "--all") }, Update{New: b, Before: was(c)}, []Foreign{{Ref: ref, ID: a, KeptAs: "refs/foreign/3"}}},
		{"removed", func() { r.git("update-ref", "-d", ref) }, Update{New: c, Before: was(b)}, []Foreign{{Ref: ref}}},
		{"made symbolic", func() { r.git("symbolic-ref", ref, "refs/heads/other") }, Update{New: c, Before: was(c)},
			[]Foreign{{Ref: ref, ID: other, Symbolic: "refs/heads/other", KeptAs: "refs/foreign/2"}}},
		{"emptied", write(""), Update{New: a, Before: was(c)}, []Foreign{{Ref: ref, Damaged: true}}},
		{"torn", write(a.String()[:20]), Update{New: b, Before: was(a)}, []Foreign{{Ref: ref, Damaged: true}}},
		{"deleted by us", func() {}, Update{Before: was(b)}, nil},
		{"deleted twice", func() {}, Update{Before: was(b)}, nil},
		{"made by them", set(x), Update{New: a}, []Foreign{{Ref: ref, ID: x, KeptAs: "refs/foreign/1"}}},
		{"moved, then deleted", set(b), Update{Before: was(a)}, []Foreign{{Ref: ref, ID: b, KeptAs: "refs/foreign/4"}}},
	} {
		tc.do()
		tc.u.Name = ref
		got := update(t, r.Store, tc.u)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
		if value(t, r.Store, ref) != tc.u.New {
			t.Errorf("%s: it is %s", tc.name, value(t, r.Store, ref))
		}
		if git, _ := r.tryGit("rev-parse", "-q", "--verify", ref); git != tc.u.New.String() && !(git == "" && tc.u.deletes()) {
			t.Errorf("%s: git reads %q", tc.name, git)
		}
		r.fsck()
	}
	noTrash(t, r.fs)
}

func TestUnreadableForeignIsNotKept(t *testing.T) {
	r := newRepo(t)
	a, gone := r.commit("a"), object.ID{1}
	r.opt.HasObject = func(id object.ID) bool { return id != gone }
	need.NoError(t, os.WriteFile(filepath.Join(r.dir, ShadowRef), []byte(gone.String()+"\n"), 0o666))
	f := update(t, r.Store, Update{Name: ShadowRef, New: a, Before: was(a)})
	if want := []Foreign{{Ref: ShadowRef, ID: gone}}; !slices.Equal(f, want) {
		t.Errorf("got %v, want %v", f, want)
	}
	r.fsck()
}

func TestFoldersInTheWay(t *testing.T) {
	for _, packed := range []bool{false, true} {
		r := newRepo(t)
		a, b := r.commit("a"), r.commit("b")
		for _, name := range []string{"t1", "t2/head/x/y", "t2/head/z"} {
			r.git("update-ref", TasksPrefix+name, b.String())
		}
		if packed {
			r.git("pack-refs", "--all")
		}
		f := update(t, r.Store, Update{Name: TasksPrefix + "t1/head", New: a}, Update{Name: TasksPrefix + "t2/head", New: a})
		if len(f) != 3 {
			t.Errorf("packed %v: foreign: %v", packed, f)
		}
		for _, v := range f {
			if v.ID != b || v.KeptAs != ForeignPrefix+"1" {
				t.Errorf("packed %v: %v", packed, v)
			}
		}
		if value(t, r.Store, TasksPrefix+"t1/head") != a || r.git("rev-parse", TasksPrefix+"t2/head") != a.String() {
			t.Errorf("packed %v: ours are not there", packed)
		}
		if out := r.git("for-each-ref", "--format=%(refname)"); out != "refs/foreign/1\nrefs/umbra/tasks/t1/head\nrefs/umbra/tasks/t2/head" {
			t.Errorf("packed %v: refs are\n%s", packed, out)
		}
		r.fsck()
		noTrash(t, r.fs)
	}
}

func TestLeftoverFolderOfAPackedRef(t *testing.T) {
	r := newRepo(t)
	a, b := r.commit("a"), r.commit("b")
	const ref = TasksPrefix + "t/head"
	update(t, r.Store, Update{Name: ref, New: a})
	need.NoError(t, r.Pack(t.Context()))
	need.NoError(t, os.MkdirAll(filepath.Join(r.dir, ref, "x/y"), 0o777))
	if f := update(t, r.Store, Update{Name: ref, New: b, Before: was(a)}); len(f) > 0 || value(t, r.Store, ref) != b {
		t.Errorf("foreign %v, it is %s", f, value(t, r.Store, ref))
	}
}

func TestEnsureLinks(t *testing.T) {
	r := newRepo(t)
	a, b := r.commit("a"), r.commit("b")
	if f, err := r.EnsureLinks(t.Context()); err != nil || len(f) > 0 {
		t.Errorf("%v, %v", f, err)
	}
	r.fsck()
	update(t, r.Store, Update{Name: ShadowRef, New: a})
	r.git("update-ref", "--no-deref", HeadRef, b.String())
	need.NoError(t, os.Remove(filepath.Join(r.dir, HEAD)))
	f, err := r.EnsureLinks(t.Context())
	if want := []Foreign{{Ref: HeadRef, ID: b, KeptAs: ForeignPrefix + "1"}}; err != nil || !slices.Equal(f, want) {
		t.Errorf("got %v, %v", f, err)
	}
	if value(t, r.Store, HeadRef) != a || r.git("symbolic-ref", HEAD) != ShadowRef {
		t.Error("the links are not back")
	}
	r.git("symbolic-ref", HEAD, "refs/heads/persons")
	if f, err := r.EnsureLinks(t.Context()); err != nil || len(f) > 0 || r.git("symbolic-ref", HEAD) != "refs/heads/persons" {
		t.Errorf("a person's HEAD was moved: %v, %v", f, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	r := newRepo(t)
	a := r.commit("a")
	var updates []Update
	for i := range 3 * maxBatch {
		updates = append(updates, Update{Name: TasksPrefix + "t" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + "/head", New: a})
	}
	update(t, r.Store, append(updates, Update{Name: ShadowRef, New: a})...)
	if refs, err := r.List(TasksPrefix); err != nil || len(refs) != len(updates) {
		t.Errorf("%d refs, %v", len(refs), err)
	}
	for i := range updates {
		updates[i].Before, updates[i].New = was(a), object.Zero
	}
	update(t, r.Store, updates...)
	if refs, err := r.List(TasksPrefix); err != nil || len(refs) != 0 {
		t.Errorf("%d refs are left, %v", len(refs), err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, TasksPrefix)); err != nil {
		t.Error(err)
	}
	noTrash(t, r.fs)
}

func TestReadErrorIsNoOldValue(t *testing.T) {
	r := newRepo(t)
	a, b := r.commit("a"), r.commit("b")
	update(t, r.Store, Update{Name: "refs/heads/x", New: a})
	r.git("pack-refs", "--all")
	update(t, r.Store, Update{Name: "refs/heads/x", New: b, Before: was(a)})
	need.NoError(t, os.WriteFile(filepath.Join(r.dir, "refs/heads/x"), nil, 0o666))
	_, _, found, err := r.Read("refs/heads/x")
	if damaged, ok := errors.AsType[*DamagedError](err); !ok || found || damaged.Name != "refs/heads/x" {
		t.Errorf("found %v, %v", found, err)
	}
	if refs, err := r.List("refs/heads/x"); err != nil || len(refs) != 1 || !refs[0].Damaged {
		t.Errorf("listed %v, %v", refs, err)
	}
	need.NoError(t, os.WriteFile(filepath.Join(r.dir, packedName), []byte("x"), 0o666))
	if _, _, _, err := r.Read("refs/heads/none"); !errors.Is(err, errPacked) {
		t.Errorf("damaged packed-refs: %v", err)
	}
	for _, bad := range []string{"", "refs", "refs/", "refs/../x", "refs/a//b", "refs/a.lock", "x", "refs/.a", "refs/a b", "refs/a\n", "../HEAD", "refs/a."} {
		if _, _, _, err := r.Read(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
		if _, failed := r.Update(t.Context(), []Update{{Name: bad}}); len(failed) != 1 {
			t.Errorf("%q was updated", bad)
		}
	}
}
