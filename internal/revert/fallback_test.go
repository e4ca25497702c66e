package revert

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspace/wstest"
)

// refuse makes the renames to a path fail a number of times, as if a directory
// existed there that no stat shows, and counts them. -1: always.
func (p *machine) refuse(to func(name string) bool, times int) (tried *int) {
	tried = new(int)
	p.hook.OnCall = func(c vfs.Call) error {
		if (c.Op == vfs.OpRename || c.Op == vfs.OpRenameNoReplace) && to(c.Name) {
			if *tried++; times < 0 || *tried <= times {
				return syscall.EISDIR
			}
		}
		return nil
	}
	return tried
}

// A directory that cannot move back as one, for a reason that no stat shows, does
// not stop the revert: its files move by themselves, and unrecorded files stay. One
// failure may be another process's rename: the directory is tried once more.
func TestFolderThatDoesNotMove(t *testing.T) {
	old, done, _ := sides(t, false)
	for times, bare := range map[int]string{-1: "moved/bare", 1: "dir/bare"} {
		p := newMachine(t)
		check(t, wstest.MkdirAll(p.mem, "ws/moved/bare")) // in no history
		tried := p.refuse(func(name string) bool { return name == "ws/dir" }, times)
		if _, err := p.revert(); err != nil {
			t.Fatal(err)
		}
		p.hook.OnCall = nil
		if whole, err := p.undoneWhole(old, done); err != nil || !whole {
			t.Errorf("refused %d times: reverted %t: %v", times, whole, err)
		}
		if *tried != 2 {
			t.Errorf("refused %d times: the folder was tried %d times", times, *tried)
		}
		if _, ok := p.disk()[bare]; !ok {
			t.Errorf("refused %d times: no %s: %q", times, bare, slices.Sorted(maps.Keys(p.disk())))
		}
		p.stop()
	}
}

// Where it never works the revert ends, and has done nothing.
func TestRevertThatNeverWorks(t *testing.T) {
	old, done, _ := sides(t, false)
	p := newMachine(t)
	defer p.stop()
	before := p.disk()
	tried := p.refuse(func(name string) bool { return strings.HasPrefix(name, "ws/dir") }, -1)
	_, err := p.revert()
	p.hook.OnCall = nil
	if errs.CodeOf(err) != "file_changing" || *tried < maxTries {
		t.Errorf("after %d tries: %v", *tried, err)
	}
	if whole, err := p.undoneWhole(old, done); err != nil || whole {
		t.Errorf("reverted %t: %v", whole, err)
	}
	if d := wstest.Differ("after", p.disk().Files(), "before", before.Files()); d != "" {
		t.Errorf("files changed:\n%s", d)
	}
}

// A plan is carried out as it was shown or not at all: nothing else is tried
// instead.
func TestPlanThatDoesNotWork(t *testing.T) {
	old, done, _ := sides(t, false)
	p := newMachine(t)
	defer p.stop()
	preview, err := Do(t.Context(), p.w, history.NewCache(), Request{Task: "A", DryRun: true})
	need.NoError(t, err)
	req := Request{Task: "A", Plan: preview.Plan, By: workspace.By{TaskID: "A"}}
	tried := p.refuse(func(name string) bool { return name == "ws/dir" }, -1)
	_, err = Do(t.Context(), p.w, history.NewCache(), req)
	p.hook.OnCall = nil
	if errs.CodeOf(err) != "plan_stale" || *tried != 1 {
		t.Errorf("after %d tries: %v", *tried, err)
	}
	if whole, err := p.undoneWhole(old, done); err != nil || whole {
		t.Errorf("reverted %t: %v", whole, err)
	}
	// It still holds.
	if _, err := Do(t.Context(), p.w, history.NewCache(), req); err != nil {
		t.Fatal(err)
	}
	if whole, err := p.undoneWhole(old, done); err != nil || !whole {
		t.Errorf("reverted %t: %v", whole, err)
	}
}

// A file that a person saves while the revert is at work is recorded, and merged
// in another try; a plan does not cover it.
func TestSavedMeanwhile(t *testing.T) {
	for _, planned := range []bool{false, true} {
		p := newMachine(t)
		preview, err := Do(t.Context(), p.w, history.NewCache(), Request{Task: "A", DryRun: true})
		need.NoError(t, err)
		req := Request{Task: "A", By: workspace.By{TaskID: "A"}}
		if planned {
			req.Plan = preview.Plan
		}
		const saved = "A\n2\n3\n4\nby hand\n6\n7\nB\n"
		done := false
		p.hook.OnCall = func(c vfs.Call) error {
			// The first thing that a commit does to the folder itself.
			if !done && strings.HasPrefix(c.Name, "ws/") && (c.Op == vfs.OpExchange || c.Op == vfs.OpRenameNoReplace || c.Op == vfs.OpRename) {
				done = true
				return wstest.Write(p.mem, "ws/a", wstest.Thing{Mode: object.Regular, Data: saved})
			}
			return nil
		}
		_, err = Do(t.Context(), p.w, history.NewCache(), req)
		p.hook.OnCall = nil
		want := strings.Replace(saved, "A\n", "1\n", 1)
		if planned {
			want = saved
			if errs.CodeOf(err) != "plan_stale" {
				t.Errorf("planned: %v", err)
			}
		} else if err != nil {
			t.Error(err)
		}
		if !done {
			t.Error("nothing was saved meanwhile")
		}
		if got := p.disk()["a"].Data; got != want {
			t.Errorf("planned %t: a is %q, not %q", planned, got, want)
		}
		p.stop()
	}
}

// What cannot be merged line by line is a conflict, and stays as it is; forced,
// the task's before-state comes back.
func TestNotMerged(t *testing.T) {
	big := strings.Repeat(strings.Repeat("x", 1023)+"\n", maxMerged>>10)
	for name, c := range map[string]struct {
		run          func(g *rig)
		path, reason string
		now          string // what is there
	}{
		"binary":                     {func(g *rig) { g.do("A", "put b \x00A"); g.do("B", "put b \x00B") }, "b", "binary", "\x00B"},
		"larger than what is merged": {func(g *rig) { g.do("A", "put b "+big+"A"); g.do("B", "put b B"+big) }, "b", "binary", "B" + big},
		"both changed one line":      {func(g *rig) { g.do("A", "put b A"); g.do("B", "put b B") }, "b", "overlapping", "B"},
		"a link to elsewhere":        {func(g *rig) { g.do("A", "ln link b"); g.do("B", "ln link dir") }, "link", "modified", "->dir"},
		"a file that became a link, and the link another": {func(g *rig) { g.do("A", "del b", "ln b a"); g.do("B", "ln b dir") },
			"b", "modified", "->dir"},
		"an executable that became a link": {func(g *rig) { g.do("A", "chmod+x b"); g.do("B", "ln b a") }, "b", "modified", "->a"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, start)
			g.task("A")
			g.task("B")
			c.run(g)
			after := with(start, map[string]string{c.path: c.now})
			g.onDisk(after)
			res, err := g.revert(Request{Task: "A"})
			if codeOf(err) != "revert_conflict" || len(res.Conflicts) != 1 || res.Conflicts[0].Path != c.path || res.Conflicts[0].Reason != c.reason || res.Conflicts[0].By.Task != "B" {
				t.Errorf("%v: %+v", err, res)
			}
			g.onDisk(after)
			g.mustRevert(Request{Task: "A", OnConflict: Force})
			g.onDisk(start)
		})
	}
}

// onDisk is want for the disk alone, and shortens large files.
func (g *rig) onDisk(files map[string]string) {
	g.t.Helper()
	got := g.disk()
	for name := range with(files, got) {
		if got[name] != files[name] {
			g.t.Errorf("%s: %.40q, not %.40q", name, got[name], files[name])
		}
	}
}

// A folder that a person moved by hand, on behalf of the task, moves back as one:
// what history does not know of goes along, as it did on the way there.
func TestFolderMovedByHand(t *testing.T) {
	for name, c := range map[string]struct {
		move func(g *rig)
		want map[string]string
	}{
		"one":                 {func(g *rig) { g.rename("dir", "moved") }, start},
		"with a change in it": {func(g *rig) { g.rename("dir", "moved"); g.sync(); g.do("A", "put moved/x other") }, start},
		"into a new one":      {func(g *rig) { g.edit("deep/", ""); g.rename("dir", "deep/dir") }, start},
		"twice":               {func(g *rig) { g.rename("dir", "one"); g.sync(); g.rename("one", "two") }, start},
		// One of its files went elsewhere: the others go back, file by file.
		"in part": {func(g *rig) { g.edit("moved/", ""); g.rename("dir/x", "moved/x") }, start},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, start)
			g.task("A")
			g.alone = "A"
			g.do("A", "put a other")
			c.move(g)
			g.sync()
			g.mustRevert(Request{Task: "A", IncludeExternal: true})
			got := g.disk()
			for _, dir := range []string{"moved/", "deep/", "one/", "two/"} {
				delete(got, dir) // a person made it, and it is in no history
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("on disk: %s\nwanted:  %s", show(got), show(c.want))
			}
		})
	}
}

func (g *rig) rename(from, to string) {
	g.t.Helper()
	if err := os.Rename(filepath.Join(g.root, from), filepath.Join(g.root, to)); err != nil {
		g.t.Fatal(err)
	}
}

// The same request made once more is answered as it was, and undoes nothing
// twice.
func TestRevertReplayed(t *testing.T) {
	g := newRig(t, start)
	g.task("A")
	g.do("A", "put n new", "mv b c", "del dir/x", "put a other", "mkdir void")
	req := Request{Task: "A", By: workspace.By{TaskID: "A", IdempotencyKey: "once"}}
	first := g.mustRevert(req)
	g.want(start)
	g.do("A", "put n again")
	again := g.mustRevert(req)
	if !again.Replayed || again.Commit != first.Commit || again.Reverted != first.Reverted || again.Seq != first.Seq {
		t.Errorf("%+v, not %+v", again, first)
	}
	if a, b := fmt.Sprint(first.Files), fmt.Sprint(again.Files); a != b {
		t.Errorf("files %s, not %s", b, a)
	}
	g.want(with(start, map[string]string{"n": "again"}))
}
