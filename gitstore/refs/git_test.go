package refs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
)

func TestInitForGit(t *testing.T) {
	r := newRepo(t)
	r.fsck()
	if err := Init(r.fs, "repo.git"); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if got := r.git("symbolic-ref", "HEAD"); got != ShadowRef {
		t.Errorf("HEAD is %s", got)
	}
	for key, want := range map[string]string{"core.bare": "true", "gc.auto": "0", "maintenance.auto": "false", "core.repositoryformatversion": "0"} {
		if got := r.git("config", key); got != want {
			t.Errorf("%s is %s", key, got)
		}
	}
	c := r.commit("one")
	update(t, r.Store, Update{Name: ShadowRef, New: c})
	r.fsck()
	if got := r.git("for-each-ref", "--format=%(refname) %(objectname) %(symref)"); got !=
		ShadowRef+" "+c.String()+" \n"+HeadRef+" "+c.String()+" "+ShadowRef {
		t.Errorf("refs are\n%s", got)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	r.git("clone", "-q", "file://"+r.dir, clone)
	if got, err := gitIn(clone, "", "log", "--format=%s"); err != nil || got != "one" {
		t.Errorf("log of the clone: %q, %v", got, err)
	}
	theirs, err := gitIn(clone, "", "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "x")
	need.NoError(t, err)
	for ref, refused := range map[string]bool{ShadowRef: true, HeadRef: true, TasksPrefix + "t/head": true, "refs/heads/theirs": false} {
		if _, err := gitIn(clone, "", "push", "-q", "-f", "origin", theirs+":"+ref); (err != nil) != refused {
			t.Errorf("push to %s: %v", ref, err)
		}
	}
	if value(t, r.Store, HEAD) != c || value(t, r.Store, HeadRef) != c {
		t.Error("HEAD and refs/umbra/head do not lead to the shadow ref")
	}
}

func TestReadsWhatGitWrote(t *testing.T) {
	r := newRepo(t)
	a, b := r.commit("a"), r.commit("b")
	r.git("update-ref", "refs/heads/x", a.String())
	r.git("update-ref", "refs/heads/y", a.String())
	tag := r.tag(b, "v1")
	r.git("update-ref", "refs/tags/v1", tag.String())
	r.git("pack-refs", "--all")
	r.git("update-ref", "refs/heads/y", b.String())
	r.git("symbolic-ref", "refs/heads/s", "refs/heads/y")
	got, err := r.List("refs/")
	need.NoError(t, err)
	want := []Ref{{Name: "refs/heads/s", Symbolic: "refs/heads/y", loose: true}, {Name: "refs/heads/x", ID: a},
		{Name: "refs/heads/y", ID: b, loose: true}, {Name: "refs/tags/v1", ID: tag}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	p, err := r.packed()
	need.NoError(t, err)
	data, _ := os.ReadFile(filepath.Join(r.dir, packedName))
	if string(p.encode()) != string(data) {
		t.Errorf("git wrote\n%s\nwe would write\n%s", data, p.encode())
	}
	if value(t, r.Store, "refs/heads/s") != b {
		t.Error("a symbolic ref leads elsewhere")
	}
}

func TestPackAsGit(t *testing.T) {
	r := newRepo(t)
	c := r.commit("c")
	var updates []Update
	for _, task := range []string{"t1", "t2", "a.b"} {
		tag := r.tag(c, "umbra/tasks/"+task+"/info")
		updates = append(updates, Update{Name: TasksPrefix + task + "/base", New: c},
			Update{Name: TasksPrefix + task + "/head", New: c}, Update{Name: TasksPrefix + task + "/info", New: tag})
	}
	update(t, r.Store, append(updates, Update{Name: ShadowRef, New: c})...)
	r.git("update-ref", "refs/heads/persons", c.String())
	if n, err := r.CountLoose(); n != 9 || err != nil {
		t.Errorf("%d loose refs, %v", n, err)
	}
	before := r.git("show-ref", "-d")
	need.NoError(t, r.Pack(t.Context()))
	if after := r.git("show-ref", "-d"); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	if n, err := r.CountLoose(); n != 0 || err != nil {
		t.Errorf("%d loose refs, %v", n, err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, TasksPrefix, "t1")); !os.IsNotExist(err) {
		t.Error("an empty folder is left over")
	}
	ours, _ := os.ReadFile(filepath.Join(r.dir, packedName))
	r.git("update-ref", TasksPrefix+"t1/base", c.String()) // no change, but git looks
	r.git("pack-refs")                                     // without --all only what is packed already
	gits, _ := os.ReadFile(filepath.Join(r.dir, packedName))
	if string(gits) != string(ours) {
		t.Errorf("ours\n%s\ngit's\n%s", ours, gits)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "refs/heads/persons")); err != nil {
		t.Error("a person's ref was packed")
	}
	r.fsck()

	// Packed refs move, and go.
	d := r.commit("d", c)
	if f := update(t, r.Store, Update{Name: TasksPrefix + "t1/head", New: d, Before: was(c)},
		Update{Name: TasksPrefix + "t2/base", Before: was(c)}, Update{Name: TasksPrefix + "t2/head", Before: was(c)},
		Update{Name: TasksPrefix + "t2/info", Before: was(updates[5].New)}); len(f) > 0 {
		t.Errorf("foreign: %v", f)
	}
	if got := r.git("for-each-ref", "--format=%(refname:lstrip=3) %(objectname)", "refs/umbra/tasks/t1/head", "refs/umbra/tasks/t2"); got != "t1/head "+d.String() && got != "tasks/t1/head "+d.String() {
		t.Errorf("got %s", got)
	}
	noTrash(t, r.fs)
	r.fsck()
}

// TestBesideGit has goroutines of ours and loops of git move refs at the same
// time: each value that was set last is there in the end.
func TestBesideGit(t *testing.T) {
	r := newRepo(t)
	const rounds = 25
	ids := []object.ID{r.commit("c0")}
	for range 5 {
		ids = append(ids, r.commit("c", ids[len(ids)-1]))
	}
	update(t, r.Store, Update{Name: ShadowRef, New: ids[0]})
	// Without it gc prunes the commit that no ref is on for an instant.
	if out, err := r.tryGit("update-ref", "refs/tags/all", ids[len(ids)-1].String()); err != nil {
		t.Fatal(out, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var gits, ours sync.WaitGroup
	loop := func(args ...string) {
		gits.Go(func() {
			for ctx.Err() == nil {
				// It may fail where ours holds a lock for an instant: only what
				// it does to ours counts.
				r.tryGit(args...)
			}
		})
	}
	loop("pack-refs", "--all")
	loop("gc", "-q", "--prune=now")
	gits.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			id := ids[i%len(ids)]
			if _, err := r.tryGit("update-ref", "refs/heads/persons", id.String()); err == nil {
				if got, err := r.tryGit("rev-parse", "refs/heads/persons"); err == nil && got != id.String() {
					t.Errorf("the person's ref is %s, not %s", got, id)
				}
			}
		}
	})
	for g, task := range []string{"a", "b", "c", "d"} {
		ours.Go(func() {
			head := object.Zero
			for i := range rounds {
				next := ids[(g+i)%len(ids)]
				f, failed := r.Update(t.Context(), []Update{{Name: TasksPrefix + task + "/head", New: next, Before: was(head)},
					{Name: TasksPrefix + task + "/base", New: ids[0], Before: was(ids[0], object.Zero)}})
				if len(failed)+len(f) > 0 {
					t.Errorf("%v, foreign: %v", failed, f)
					return
				}
				head = next
				got, found, err := r.Resolve(TasksPrefix + task + "/head")
				if err != nil || !found || got != head {
					t.Errorf("read %s (%v, %v), set %s", got, found, err, head)
				}
				if i%8 == 7 {
					if err := r.Pack(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
			got, err := r.tryGit("rev-parse", TasksPrefix+task+"/head")
			if err != nil || got != head.String() {
				t.Errorf("git reads %s (%v), set %s", got, err, head)
			}
		})
	}
	ours.Wait()
	stop()
	gits.Wait()
	if value(t, r.Store, ShadowRef) != ids[0] {
		t.Error("the shadow ref moved")
	}
	noTrash(t, r.fs)
	r.fsck()
}

func TestWorktreeMovesShadow(t *testing.T) {
	r := newRepo(t)
	c := r.commit("c")
	update(t, r.Store, Update{Name: ShadowRef, New: c})
	tree := filepath.Join(t.TempDir(), "w")
	r.git("worktree", "add", "-q", tree, "shadow")
	if _, err := gitIn(tree, "", "commit", "-q", "--allow-empty", "-m", "theirs"); err != nil {
		t.Fatal(err)
	}
	theirs := parseID(t, r.git("rev-parse", ShadowRef))
	d := r.commit("d", c)
	f := update(t, r.Store, Update{Name: ShadowRef, New: d, Before: was(c)})
	want := Foreign{Ref: ShadowRef, ID: theirs, KeptAs: ForeignPrefix + "1"}
	if len(f) != 1 || f[0] != want {
		t.Fatalf("got %v, want %v", f, want)
	}
	if got := r.git("log", "-1", "--format=%s", want.KeptAs); got != "theirs" {
		t.Errorf("kept is %q", got)
	}
	if value(t, r.Store, ShadowRef) != d {
		t.Error("ours is not back")
	}
	r.fsck()
	if out := r.git("worktree", "list"); !strings.Contains(out, tree) {
		t.Errorf("worktrees: %s", out)
	}
}
