package interop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// hostile are the commands that people and cron jobs run in a repository, one
// after the other. One that reads must give status 0 always; one that writes
// may meet a lock that the server holds for a moment.
var hostile = []struct {
	reads bool
	args  []string
}{
	{false, []string{"gc", "--quiet", "--prune=now"}},
	{true, []string{"fsck", "--strict", "--full", "--no-progress"}},
	{false, []string{"repack", "-adq"}},
	{true, []string{"log", "-p", "-20"}},
	{false, []string{"pack-refs", "--all"}},
	{false, []string{"multi-pack-index", "write", "--no-progress"}},
	{true, []string{"fsck", "--strict", "--full", "--no-progress"}},
	{false, []string{"commit-graph", "write", "--reachable", "--no-progress"}},
	{false, []string{"maintenance", "run", "--quiet", "--task=commit-graph", "--task=loose-objects", "--task=incremental-repack", "--task=pack-refs"}},
	{true, []string{"clone", "--quiet", "--no-local", "--bare"}},
	{false, []string{"repack", "-adbq"}},
	{false, []string{"prune", "--expire=now"}},
	{true, []string{"rev-list", "--objects", "--all", "--quiet"}},
	{false, []string{"gc", "--quiet"}},
	{false, []string{"repack", "-dq", "--geometric=2", "--write-midx"}},
	{true, []string{"fsck", "--strict", "--full", "--no-progress"}},
	{false, []string{"maintenance", "run", "--quiet"}},
	{true, []string{"cat-file", "--batch-all-objects", "--batch-check"}},
}

// besides are what others do at the same time: no fsck, which finds fault with
// the packs that git's own repack removes under it.
var besides = [][]string{
	{"log", "-p", "-20"},
	{"clone", "--quiet", "--no-local", "--bare"},
	{"rev-list", "--objects", "--all", "--quiet"},
	{"for-each-ref"},
	{"cat-file", "-p", "refs/umbra/tasks/w1/info"},
}

// siege runs writers and hostile commands on one store.
type siege struct {
	dir, repo, git string
	store          *gitstore.Store
	acked          []atomic.Pointer[gitstore.Committed] // by sequence number - 1
	writes, runs   atomic.Int64
	atWork         sync.RWMutex // commands hold it for reading
}

// TestGitMaintenanceBesideWriters is the promise of a person's own gc: no
// write fails, fsck never finds fault, and nothing answered is missing.
func TestGitMaintenanceBesideWriters(t *testing.T) {
	for _, c := range []struct {
		name        string
		grace       time.Duration
		short, long time.Duration
	}{
		{"usual grace", 0, 5 * time.Second, 5 * time.Minute},
		// Packs go soon, under whatever index a person made over them.
		{"short grace", time.Second, 8 * time.Second, 5 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			need.Long(t, "hostile loops")
			span := c.short
			if soak() {
				span = c.long
			}
			g := newSiege(t, c.grace)
			gone := g.stand(t, span)
			if c.grace > 0 && gone == 0 {
				t.Error("no superseded pack was removed")
			}
		})
	}
}

func newSiege(t *testing.T, grace time.Duration) *siege {
	t.Helper()
	g := &siege{dir: scratch(t), git: need.Tool(t, "git"), acked: make([]atomic.Pointer[gitstore.Committed], 4_000_000)}
	g.repo = repoOf(g.dir)
	g.store = open(t, g.dir, gitstore.Options{MergeGrace: grace, Log: slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	return g
}

// testLog sends the store's warnings to the test.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// stand lasts for a while, then looks at what is left. It gives the number of
// packs of ours that went meanwhile.
func (g *siege) stand(t *testing.T, span time.Duration) (gone int) {
	t.Helper()
	c, err := g.store.Baseline(t.Context(), message.Message{Source: message.Baseline}, func(add gitstore.AddFile) error {
		for i := range 200 {
			data := strings.Repeat(fmt.Sprintf("line of file %d\n", i), 30)
			if _, err := add(wspath.Path(fmt.Sprintf("base/%d/%d", i%10, i)), object.Regular, strings.NewReader(data), int64(len(data))); err != nil {
				return err
			}
		}
		return nil
	})
	need.NoError(t, err)
	g.note(&c)
	for w := range 16 {
		if _, err := g.store.PutTask(t.Context(), message.Info{TaskID: fmt.Sprintf("w%d", w), Goal: "write", Status: "executing"}, object.Zero); err != nil {
			t.Fatal(err)
		}
	}
	need.NoError(t, g.store.Publish(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	var writers, others sync.WaitGroup
	for w := range 16 {
		writers.Go(func() { g.writer(t, ctx, w) })
	}
	others.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			h := hostile[i%len(hostile)]
			g.command(t, h.reads, h.args)
		}
	})
	others.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			g.command(t, true, besides[i%len(besides)])
		}
	})
	others.Go(func() { gone = g.pauses(t, ctx) })
	writers.Wait()
	others.Wait()
	g.verify(t)
	t.Logf("%d writes beside %d commands; %d packs went", g.writes.Load(), g.runs.Load(), gone)
	return gone
}

func (g *siege) note(c *gitstore.Committed) {
	g.writes.Add(1)
	g.acked[c.Seq-1].Store(c)
}

// writer writes files of its own and of others until ctx ends; a large one and
// a task's record now and then.
func (g *siege) writer(t *testing.T, ctx context.Context, w int) {
	task := fmt.Sprintf("w%d", w)
	for i := 0; ctx.Err() == nil; i++ {
		p := fmt.Sprintf("w%d/f%d", w, i%50)
		if i%5 == 4 {
			p = fmt.Sprintf("base/%d/%d", i%10, i%200)
		}
		data := fmt.Sprintf("%s, round %d\n", task, i)
		if i%300 == 299 {
			data = strings.Repeat(data, 5<<20/len(data)) // a pack of its own
		}
		c, err := g.commit(task, p, data)
		if err != nil {
			t.Errorf("write %d of %s: %v", i, task, err)
			return
		}
		g.note(&c)
		if i%100 == 99 {
			if _, err := g.store.PutTask(context.Background(), message.Info{TaskID: task, Goal: "write", Status: "executing", Actor: fmt.Sprint(i)}, object.Zero); err != nil {
				t.Errorf("record of %s: %v", task, err)
				return
			}
		}
		// Not as fast as it goes: the commands need the processors too.
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (g *siege) commit(task, p, data string) (gitstore.Committed, error) {
	ctx := context.Background()
	b, err := g.store.StreamBlob(ctx, strings.NewReader(data), int64(len(data)))
	if err != nil {
		return gitstore.Committed{}, err
	}
	c, err := g.store.Commit(ctx, gitstore.Draft{
		Edits:   []gitstore.Edit{{Path: wspath.Path(p), Mode: object.Regular, Blob: b}},
		Entries: 1,
		Message: message.Message{TaskID: task, Actor: "writer", Source: message.API,
			Entries: []message.Entry{{Operation: message.Modify, Path: p, AfterHash: b.AfterHash()}}},
	})
	if err != nil || c.NoChange {
		g.store.Discard(b)
	}
	if err == nil && c.NoChange {
		err = errors.New("no change")
	}
	return c, err
}

// pauses lets no command run for a moment now and then, as it is with people:
// superseded packs go then. It gives the number of them.
func (g *siege) pauses(t *testing.T, ctx context.Context) (gone int) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	ours := make(map[string]bool)
	for {
		select {
		case <-ctx.Done():
			return gone
		case <-tick.C:
		}
		g.atWork.Lock()
		err := g.store.Maintain(context.Background())
		keeps, err2 := filepath.Glob(filepath.Join(g.repo, "objects/pack/*.keep"))
		g.atWork.Unlock()
		if err = errors.Join(err, err2); err != nil {
			t.Error(err)
			return gone
		}
		now := make(map[string]bool)
		for _, k := range keeps {
			now[k] = true
			delete(ours, k)
		}
		gone += len(ours)
		ours = now
	}
}

// command runs one command in the repository, to its end.
func (g *siege) command(t *testing.T, reads bool, args []string) {
	g.atWork.RLock()
	defer g.atWork.RUnlock()
	if args[0] == "clone" {
		dir, err := os.MkdirTemp(g.dir, "clone-")
		if err != nil {
			t.Error(err)
			return
		}
		defer os.RemoveAll(dir)
		args = append(args[:len(args):len(args)], "file://"+g.repo, dir)
	}
	began := time.Now()
	_, err := try(command(context.Background(), g.repo, g.git, args...))
	g.runs.Add(1)
	if err != nil && (reads || !meetsOther(err)) {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

// meetsOther tells whether a command failed because the server held a ref's
// lock at that moment, as another git would.
func meetsOther(err error) bool {
	return strings.Contains(err.Error(), ".lock': File exists")
}

// verify sees to it that all that was answered is in the log, in order, and
// that a restart finds the same.
func (g *siege) verify(t *testing.T) {
	t.Helper()
	n := g.store.Tip().Seq
	if int64(n) != g.writes.Load() {
		t.Errorf("the tip is %d, %d writes were answered", n, g.writes.Load())
	}
	for _, w := range g.store.Warnings() {
		t.Errorf("warning: %s", w)
	}
	closeStore(t, g.store)
	fsck(t, g.repo)
	g.compareLog(t, n)
	s := open(t, g.dir, gitstore.Options{})
	defer closeStore(t, s)
	if s.Tip().Seq != n {
		t.Errorf("the tip is %d after reopening, was %d", s.Tip().Seq, n)
	}
	if rep, err := s.Verify(t.Context(), nil); err != nil || len(rep.Problems) > 0 {
		t.Errorf("verify: %v %v", rep.Problems, err)
	}
	left, err := filepath.Glob(filepath.Join(g.dir, "journal", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in journal/: %v %v", left, err)
	}
}

func (g *siege) compareLog(t *testing.T, n uint64) {
	t.Helper()
	ids := strings.Split(git(t, g.repo, "rev-list", "--reverse", "refs/umbra/head"), "\n")
	if uint64(len(ids)) != n {
		t.Fatalf("the log has %d commits of %d", len(ids), n)
	}
	for i, id := range ids {
		c := g.acked[i].Load()
		if c == nil || c.Commit.String() != id {
			t.Fatalf("commit %d of the log is %s, which is not what was answered", i+1, id)
		}
	}
}
