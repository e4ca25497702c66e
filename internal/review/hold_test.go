package review

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/blame"
	"umbra/internal/history"
	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/workspaces/recordstest"
	"umbra/internal/wspath"
)

// clock is a time that only pass moves, with one timer at most.
type clock struct {
	now time.Time
	at  time.Time
	fn  func()
}

func (c *clock) after(d time.Duration, fn func()) func() bool {
	c.at, c.fn = c.now.Add(d), fn
	return func() bool { c.fn = nil; return true }
}

func (c *clock) pass(d time.Duration) {
	end := c.now.Add(d)
	for c.fn != nil && !c.at.After(end) {
		fn := c.fn
		c.now, c.fn = c.at, nil
		fn()
	}
	c.now = end
}

// rig is a workspace with a task t and a holder.
type rig struct {
	t     *testing.T
	clock clock
	w     *workspace.Workspace
	root  string
	db    *state.DB
	h     *Holder
	m     *workspaces.Manager
	r     *Reader
	open  int // calls
}

func lines(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		b.WriteString("line " + strconv.Itoa(i) + "\n")
	}
	return b.String()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	top := t.TempDir()
	g := &rig{t: t, root: filepath.Join(top, "ws"), r: &Reader{History: history.NewCache(), Blame: blame.NewCache()}, open: 1}
	g.clock.now = time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	need.NoError(t, os.Mkdir(g.root, 0o777))
	for _, name := range []string{"a", "b"} {
		need.NoError(t, os.WriteFile(filepath.Join(g.root, name), []byte(lines(40)), 0o666))
	}
	var err error
	if g.m, err = workspaces.NewManager(workspaces.Options{DataDir: filepath.Join(top, "data"), Records: &recordstest.Records{}}); err != nil {
		t.Fatal(err)
	}
	if g.w, _, err = g.m.Open(t.Context(), g.root, workspaces.OpenOptions{}); err != nil {
		t.Fatal(err)
	}
	if g.db, err = state.Open(filepath.Join(top, "state.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.h.Close()
		if err := g.db.Close(); err != nil {
			t.Error(err)
		}
		g.w.Release()
		if err := g.m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := g.w.Store().PutTask(t.Context(), message.Info{TaskID: "t", Goal: "g", Status: "executing"}, object.Zero); err != nil {
		t.Fatal(err)
	}
	g.start()
	return g
}

// start opens the holder, as a start of the server does.
func (g *rig) start() {
	g.t.Helper()
	g.h = NewHolder(HolderOptions{Reader: g.r, Workspaces: g.m, State: g.db, Open: func(string) int { return g.open }, Always: true,
		Now: func() time.Time { return g.clock.now }, After: g.clock.after})
	if err := g.h.Start(); err != nil {
		g.t.Fatal(err)
	}
}

// write changes lines of a file: every third word of replace is one.
func (g *rig) write(name string, replace ...int) {
	g.t.Helper()
	text := lines(40)
	for _, n := range replace {
		text = strings.Replace(text, "line "+strconv.Itoa(n)+"\n", "changed "+strconv.Itoa(n)+"\n", 1)
	}
	_, err := g.w.Apply(g.t.Context(), workspace.Request{By: workspace.By{TaskID: "t", Source: message.API}, Ops: []workspace.Op{
		{Kind: workspace.OpWrite, Path: wspath.Path(name), Data: []byte(text), Size: -1}}})
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) hunks() []Hunk {
	g.t.Helper()
	v, err := g.r.Read(g.t.Context(), g.w, "t")
	if err != nil {
		g.t.Fatal(err)
	}
	return v.Hunks
}

func (g *rig) decide(d Decision) int {
	g.t.Helper()
	d.Task = "t"
	_, held, err := g.h.Decide(g.t.Context(), g.w, d)
	if err != nil {
		g.t.Fatal(err)
	}
	return held
}

// has holds whether lines are the changed ones.
func (g *rig) has(name string, changed bool, ns ...int) {
	g.t.Helper()
	b, err := os.ReadFile(filepath.Join(g.root, name))
	if err != nil {
		g.t.Fatal(err)
	}
	all := strings.Split(string(b), "\n")
	for _, n := range ns {
		if slices.Contains(all, "changed "+strconv.Itoa(n)) != changed {
			g.t.Errorf("line %d of %s: changed is %v", n, name, !changed)
		}
	}
}

func (g *rig) held() int {
	g.t.Helper()
	m, err := g.h.Held("t")
	if err != nil {
		g.t.Fatal(err)
	}
	return len(m)
}

// TestHoldEnds holds that a rejection waits for ten minutes at most, also over a
// restart, and each as long as it has to.
func TestHoldEnds(t *testing.T) {
	g := newRig(t)
	g.write("a", 5)
	g.write("b", 5)
	list := g.hunks()
	if n := g.decide(Decision{Reject: []string{list[0].ID}}); n != 1 {
		t.Fatalf("%d are held", n)
	}
	g.clock.pass(6 * time.Minute)
	g.decide(Decision{Reject: []string{list[1].ID}})
	g.clock.pass(3*time.Minute + 59*time.Second)
	g.has("a", true, 5)
	g.h.Close()
	g.start()
	g.has("a", true, 5)
	g.clock.pass(time.Second)
	g.has("a", false, 5)
	g.has("b", false, 5) // the agent is interrupted once
	if g.held() != 0 || g.clock.fn != nil {
		t.Errorf("%d are held", g.held())
	}
}

// TestHoldIdle holds that what waits is done when the last call ends, and by a start
// that finds none open.
func TestHoldIdle(t *testing.T) {
	g := newRig(t)
	g.write("a", 5)
	g.decide(Decision{Reject: []string{g.hunks()[0].ID}})
	g.open = 0
	g.h.Idle(t.Context(), "t")
	g.has("a", false, 5)
	g.open = 1
	g.write("a", 9)
	g.decide(Decision{Reject: []string{g.hunks()[0].ID}})
	g.h.Close()
	g.open = 0
	g.start()
	g.clock.pass(0)
	g.has("a", false, 9)
}

// TestHoldIsUndone holds that the newest decision on a hunk, or a part of one, counts,
// and that the rest is what is not decided on.
func TestHoldIsUndone(t *testing.T) {
	g := newRig(t)
	g.write("a", 5, 20, 23)
	g.write("b", 5)
	list := g.hunks()
	if len(list) != 3 || len(list[1].Parts) != 2 {
		t.Fatalf("%+v", list)
	}
	g.decide(Decision{Reject: []string{list[0].ID, list[1].ID}})
	g.decide(Decision{AcceptRest: true})
	if now := g.hunks(); now[0].Status != Open || now[1].Status != Open || now[2].Status != Accepted || g.held() != 2 {
		t.Fatalf("%+v, %d held", now, g.held())
	}
	g.decide(Decision{Accept: []string{list[0].ID, list[1].Parts[1].ID}})
	if g.held() != 1 {
		t.Errorf("%d are held", g.held())
	}
	g.clock.pass(MaxHold)
	g.has("a", true, 5, 23)
	g.has("a", false, 20)
	g.has("b", true, 5)
	for _, h := range g.hunks() {
		if h.Status != Accepted {
			t.Errorf("%+v", h)
		}
	}
}

// TestHoldIsTriedAgain holds that a rejection that cannot be carried out for now is not
// lost.
func TestHoldIsTriedAgain(t *testing.T) {
	g := newRig(t)
	g.write("a", 5)
	g.decide(Decision{Reject: []string{g.hunks()[0].ID}})
	need.NoError(t, os.Rename(g.root, g.root+"-away"))
	g.clock.pass(MaxHold)
	if g.held() != 1 {
		t.Fatalf("%d are held", g.held())
	}
	need.NoError(t, os.Rename(g.root+"-away", g.root))
	g.clock.pass(retryAfter)
	g.has("a", false, 5)
	if g.held() != 0 {
		t.Errorf("%d are held", g.held())
	}
}

// Where servers share the records, what waits is carried out by the owner of the
// workspace.
func TestHoldOfAnOwner(t *testing.T) {
	g := newRig(t)
	g.h.Close()
	was := g.db
	g.db = state.NewShared()
	defer func() { g.db = was }()
	for _, x := range []waiting{
		{Task: "t", Workspace: g.w.ID(), Batches: []batch{{IDs: []string{"1"}, Until: g.clock.now.Add(time.Minute)}}},
		{Task: "other", Workspace: "other", Batches: []batch{{IDs: []string{"2"}, Until: g.clock.now.Add(time.Minute)}}},
	} {
		need.NoError(t, g.db.Put(heldBucket, x.Task, x))
	}
	g.start()
	if _, waits := g.h.timers["t"]; !waits || len(g.h.timers) != 1 { // a directory's is of this server from the start
		t.Errorf("a start waits for %v", g.h.timers)
	}
	g.h.forget(g.w.ID())
	need.NoError(t, g.h.takeUp(g.w.ID()))
	if _, waits := g.h.timers["t"]; !waits || len(g.h.timers) != 1 || g.clock.fn == nil {
		t.Errorf("the owner waits for %v", g.h.timers)
	}
	g.h.forget("other")
	g.h.forget(g.w.ID())
	if len(g.h.timers) != 0 || g.clock.fn != nil {
		t.Errorf("who is not the owner any more waits for %v", g.h.timers)
	}
}
