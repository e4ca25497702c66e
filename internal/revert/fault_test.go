package revert

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspace/wstest"
	"umbra/internal/workspaces"
	"umbra/internal/workspaces/recordstest"
)

// soak asks for all points instead of a part of them.
func soak() bool { return os.Getenv("UMBRA_SOAK") != "" }

// machine is a machine in memory with one workspace, on which a task has done
// much that is to be undone.
type machine struct {
	t    testing.TB
	mem  *vfs.Mem
	hook *vfs.Hook
	recs *recordstest.Records
	m    *workspaces.Manager
	w    *workspace.Workspace

	littered bool // a file that was displaced could not be removed
}

var faultFiles = map[string]string{
	"a": "1\n2\n3\n4\n5\n6\n7\n8\n", "b": "b\n", "c": "c\n", "dir/x": "x\n", "dir/sub/y": "y\n", "mode": "m\n", "gone/1": "1\n", "gone/2": "2\n", "swap1": "s1\n", "swap2": "s2\n",
}

// newMachine makes the files, and has the task and another one work on them.
func newMachine(t testing.TB) *machine {
	t.Helper()
	mem := vfs.NewMem(vfs.MemOptions{})
	for _, dir := range []string{"ws", "data"} {
		check(t, wstest.MkdirAll(mem, dir))
	}
	for name, data := range faultFiles {
		check(t, wstest.Write(mem, "ws/"+name, wstest.Thing{Mode: object.Regular, Data: data}))
	}
	p := &machine{t: t, recs: &recordstest.Records{}}
	check(t, p.start(mem, "one"))
	w, _, err := p.m.Open(context.Background(), "/ws", workspaces.OpenOptions{})
	check(t, err)
	p.w = w
	g := &rig{t: t, w: w}
	for _, id := range []string{"A", "B"} {
		g.task(id)
	}
	g.do("A", "put a A\n2\n3\n4\n5\n6\n7\n8\n", "put new/er/n new", "chmod+x mode")
	g.do("A", "mv dir moved", "mv swap1 t", "mv swap2 swap1", "mv t swap2")
	g.do("B", "put a A\n2\n3\n4\n5\n6\n7\nB\n", "put b B")
	g.do("A", "del gone", "put gone file", "mv c moved/c", "mkdir void")
	for i := range 12 {
		g.do("A", fmt.Sprintf("put many/f%d %d", i, i))
	}
	// A clean stop syncs all this, so that a crash is one of the revert alone.
	p.stop()
	p, err = p.reboot(mem, "one")
	check(t, err)
	return p
}

func check(t testing.TB, err error) {
	t.Helper()
	need.NoError(t, err)
}

func (p *machine) start(mem *vfs.Mem, boot string) error {
	p.mem, p.hook = mem, &vfs.Hook{}
	m, err := workspaces.NewManager(workspaces.Options{DataDir: "/data", Host: &wstest.MemHost{Top: vfs.Inject(mem, p.hook), Boot: boot}, Records: p.recs,
		Foreground: true, Store: func(o *gitstore.Options) { o.Foreground = true }})
	p.m = m
	return err
}

func (p *machine) stop() {
	p.t.Helper()
	if p.w != nil {
		p.w.Release()
	}
	check(p.t, p.m.Close(context.Background()))
}

// reboot starts on what a crash left.
func (p *machine) reboot(mem *vfs.Mem, boot string) (*machine, error) {
	n := &machine{t: p.t, recs: p.recs}
	if err := n.start(mem, boot); err != nil {
		return nil, err
	}
	w, _, err := n.m.Open(context.Background(), "/ws", workspaces.OpenOptions{})
	n.w = w
	return n, err
}

func (p *machine) revert() (*Result, error) {
	return Do(context.Background(), p.w, history.NewCache(), Request{Task: "A", By: workspace.By{TaskID: "A", Actor: "A"}})
}

func (p *machine) disk() wstest.Folder {
	p.t.Helper()
	f, err := wstest.Disk(p.mem, "ws")
	check(p.t, err)
	return f
}

func (p *machine) tree() wstest.Folder {
	p.t.Helper()
	f, err := wstest.Tree(context.Background(), p.w.Store(), p.w.Store().Snapshot())
	check(p.t, err)
	return f
}

// undoneWhole reports whether the revert is there whole; an error where it is
// there in part.
func (p *machine) undoneWhole(old, done wstest.Folder) (bool, error) {
	disk := p.disk().Files()
	// One that could not be removed is tried again later.
	maps.DeleteFunc(disk, func(name string, _ wstest.Thing) bool { return p.littered && strings.Contains(name, ".umbra-") })
	if d := wstest.Differ("on disk", disk, "in history", p.tree()); d != "" {
		return false, fmt.Errorf("disk and history differ:\n%s", d)
	}
	task, err := history.NewCache().Task(context.Background(), p.w, "A")
	if err != nil {
		return false, err
	}
	is := p.tree()
	switch dOld, dDone := wstest.Differ("is", is, "before", old), wstest.Differ("is", is, "reverted", done); {
	case dDone == "" && len(task.Work()) == 0:
		return true, nil
	case dOld == "" && len(task.Work()) > 0:
		return false, nil
	default:
		return false, fmt.Errorf("neither as before:\n%snor reverted (%d entries left):\n%s", dOld, len(task.Work()), dDone)
	}
}

// sides gives the tree before and after the revert, and the file system calls
// that it takes.
func sides(t *testing.T, reads bool) (old, done wstest.Folder, calls int) {
	p := newMachine(t)
	defer p.stop()
	old = p.tree()
	p.hook.Reads = reads
	n := p.hook.Count()
	_, err := p.revert()
	calls = p.hook.Count() - n
	check(t, err)
	done = p.tree()
	want := wstest.Folder{}
	for name, data := range faultFiles {
		want[name] = wstest.Thing{Mode: object.Regular, Data: data}
	}
	want["a"], want["b"] = wstest.Thing{Mode: object.Regular, Data: "1\n2\n3\n4\n5\n6\n7\nB\n"}, wstest.Thing{Mode: object.Regular, Data: "B"}
	if d := wstest.Differ("reverted", done, "wanted", want); d != "" {
		t.Fatal(d)
	}
	return old, done, calls
}

// A crash at any call of a revert of many files: after the start it is there
// whole or not at all, and can be made.
func TestCrashAtEveryCallOfARevert(t *testing.T) {
	old, done, calls := sides(t, false)
	step := 1
	if !soak() {
		step = 3
	}
	modes := []vfs.CrashMode{vfs.CrashNothing, vfs.CrashSyncedOnly, vfs.CrashNamesOnly, vfs.CrashRandom}
	p := newMachine(t)
	defer p.stop()
	check(t, p.w.Store().Publish(context.Background()))
	// One run gives the clones of all points: each is as the crash there leaves it.
	type point struct {
		where string
		mem   *vfs.Mem
		mode  vfs.CrashMode
	}
	var points []point
	base := p.hook.Count()
	p.hook.OnCall = func(c vfs.Call) error {
		n := c.N - base
		for i, mode := range modes {
			if soak() || n%step == 0 && i == n/step%len(modes) {
				points = append(points, point{fmt.Sprintf("%v at call %d (%s %s)", mode, n, c.Op, c.Name),
					p.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rand.New(rand.NewPCG(uint64(n), 5))}), mode})
			}
		}
		return nil
	}
	_, err := p.revert()
	check(t, err)
	p.hook.OnCall = nil
	for _, x := range points {
		boot := "two"
		if x.mode == vfs.CrashNothing {
			boot = "one"
		}
		c, err := p.reboot(x.mem, boot)
		if err != nil {
			t.Fatalf("%s: %v", x.where, err)
		}
		whole, err := c.undoneWhole(old, done)
		if err != nil {
			t.Fatalf("%s: %v", x.where, err)
		}
		for name := range c.disk() {
			if strings.Contains(name, ".umbra-") {
				t.Fatalf("%s: %s is left behind", x.where, name)
			}
		}
		if !whole {
			if _, err := c.revert(); err != nil {
				t.Fatalf("%s: again: %v", x.where, err)
			}
			if whole, err = c.undoneWhole(old, done); err != nil || !whole {
				t.Fatalf("%s: again: %v", x.where, err)
			}
		}
		c.stop()
	}
	t.Logf("%d calls, %d points", calls, len(points))
}

// An error at any call of a revert: nothing is changed, and it works afterwards.
func TestErrorAtEveryCallOfARevert(t *testing.T) {
	points := 0
	for _, reads := range []bool{false, true} {
		old, done, calls := sides(t, reads)
		step := 1
		if !soak() {
			step = 13
		}
		for n := 1; n <= calls; n += step {
			list := []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EACCES, syscall.EROFS, syscall.EMFILE}
			if reads {
				list = []syscall.Errno{syscall.EIO, syscall.EMFILE}
			}
			if !soak() {
				list = list[n/step%len(list):][:1]
			}
			for _, errno := range list {
				points++
				errorAt(t, n, errno, reads, old, done)
			}
		}
	}
	t.Logf("%d points", points)
}

func errorAt(t *testing.T, n int, errno syscall.Errno, reads bool, old, done wstest.Folder) {
	t.Helper()
	p := newMachine(t)
	defer p.stop()
	p.hook.Reads = reads
	base, failed := p.hook.Count(), ""
	before := p.disk()
	p.hook.OnCall = func(c vfs.Call) error {
		if c.N == base+n {
			failed = c.Op + " " + c.Name
			p.littered = c.Op == vfs.OpRemove
			return errno
		}
		return nil
	}
	_, err := p.revert()
	p.hook.OnCall = nil
	where := fmt.Sprintf("%v at call %d (%s): %v", errno, n, failed, err)
	if errs.CodeOf(err) == "revert_conflict" {
		t.Fatalf("%s: taken for a conflict", where)
	}
	whole, werr := p.undoneWhole(old, done)
	if werr != nil && err != nil {
		// A rollback that failed itself is put right by the next scan.
		_, serr := p.w.Sync(context.Background(), workspace.SyncOptions{})
		if whole, werr = p.undoneWhole(old, done); errors.Join(serr, werr) != nil {
			t.Fatalf("%s: %v", where, errors.Join(serr, werr))
		}
	}
	if werr != nil || whole != (err == nil) {
		t.Fatalf("%s: %v, reverted %t", where, werr, whole)
	}
	if err != nil {
		if d := wstest.Differ("after", p.disk().Files(), "before", before.Files()); d != "" {
			t.Fatalf("%s: files changed:\n%s", where, d)
		}
		if _, err := p.revert(); err != nil {
			t.Fatalf("%s: again: %v", where, err)
		}
		if whole, err := p.undoneWhole(old, done); err != nil || !whole {
			t.Fatalf("%s: again: %v", where, err)
		}
	}
}
