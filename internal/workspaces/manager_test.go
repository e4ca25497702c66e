package workspaces

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

func code(err error) string {
	if err == nil {
		return ""
	}
	return errs.CodeOf(err)
}

func TestOpenFolders(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A", "d/x": "X"})
	defer b.stop()
	must(t, b.mem.Mkdir("other", 0o755))
	writeDisk(t, b.mem, "file", "f")
	mkdirs(t, b.mem, "home/me")
	again, _, err := b.m.Open(t.Context(), "/ws/", OpenOptions{})
	must(t, err)
	again.Release()
	if again.ID() != b.w.ID() {
		t.Errorf("%s and %s", again.ID(), b.w.ID())
	}
	for root, want := range map[string]string{"/nix": "workspace_not_found", "/file": "workspace_not_directory", "/": "workspace_too_wide",
		"/home/me": "workspace_too_wide", "/ws/d": "workspace_overlaps"} {
		if _, _, err := b.m.Open(t.Context(), root, OpenOptions{}); code(err) != want {
			t.Errorf("%s: %v, want %s", root, err, want)
		}
	}
	if _, _, err := b.m.Open(t.Context(), "/", OpenOptions{Force: true}); code(err) != "workspace_overlaps" {
		t.Error(err)
	}
	no := errors.New("not you")
	if _, _, err := b.m.Open(t.Context(), "/other", OpenOptions{Allow: func(string) error { return no }}); !errors.Is(err, no) {
		t.Error(err)
	}
	if list, _ := b.mem.ReadDir("data/workspaces"); len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
	if r, ok := b.m.Find(t.Context(), "/ws/../ws"); !ok || r.ID != b.w.ID() {
		t.Error(r, ok)
	}
	// The baseline: no entries, seq 1.
	c, err := b.w.Store().ReadCommit(t.Context(), b.w.Store().Tip().Commit)
	must(t, err)
	if entries, err := b.w.EntriesOf(t.Context(), c); err != nil || entries != nil || c.Seq != 1 || c.Message.Source != message.Baseline {
		t.Error(entries, err, c.Seq)
	}
	b.same()
}

func TestSpellingsAndLinks(t *testing.T) {
	b := real(t, map[string]string{"a": "A"})
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(b.w.Root(), link))
	for _, root := range []string{link, b.w.Root() + "/.", b.w.Root() + "//"} {
		w, _, err := b.m.Open(t.Context(), root, OpenOptions{})
		must(t, err)
		if w.ID() != b.w.ID() {
			t.Errorf("%s is %s", root, w.ID())
		}
		w.Release()
	}
}

func TestMissingAndAdopt(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A", "b": "B"})
	defer func() { must(t, b.m.Close(context.Background())) }()
	must(t, b.mem.Rename("ws", "away"))
	if b.w.State() != workspace.Missing {
		t.Error(b.w.State())
	}
	if _, err := b.apply(write("a", "1")); code(err) != "workspace_missing" {
		t.Error(err)
	}
	if _, err := b.w.Sync(t.Context(), workspace.SyncOptions{}); code(err) != "workspace_missing" {
		t.Error(err)
	}
	if _, err := b.w.OpenFile(t.Context(), "a"); code(err) != "workspace_missing" {
		t.Error(err)
	}
	// Another folder in its place is not taken for it.
	must(t, b.mem.Mkdir("ws", 0o755))
	writeDisk(t, b.mem, "ws/a", "other")
	if _, err := b.apply(write("a", "1")); code(err) != "workspace_missing" {
		t.Error(err)
	}
	res, err := b.w.Sync(t.Context(), workspace.SyncOptions{Adopt: true})
	must(t, err)
	if res.Changed != 2 {
		t.Errorf("%+v", res)
	}
	must(t, b.open())
	b.same()
	b.ok(write("c", "C"))
	b.same()
	// The same folder back is the same workspace.
	id := b.w.ID()
	b.w.Release()
	w, err := b.m.Rebind(t.Context(), id, "/away", OpenOptions{})
	must(t, err)
	b.w = w
	if d := diffMaps(inFolder(t, b.mem, "away"), tree(t, w)); d != "" {
		t.Error(d)
	}
	w.Release()
}

func TestForget(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A"})
	defer func() { must(t, b.m.Close(context.Background())) }()
	id := b.w.ID()
	waited := make(chan error, 1)
	go func() {
		_, err := b.w.WaitSettled(context.Background(), b.w.Settled())
		waited <- err
	}()
	must(t, b.m.Forget(t.Context(), id, true))
	if err := <-waited; code(err) != "workspace_not_found" {
		t.Error(err)
	}
	if _, err := b.apply(write("a", "1")); code(err) != "workspace_not_found" {
		t.Error(err)
	}
	if _, err := b.m.Get(t.Context(), id); code(err) != "workspace_not_found" {
		t.Error(err)
	}
	if list, _ := b.mem.ReadDir("data/workspaces"); len(list) != 0 {
		t.Error(list)
	}
	w, _, err := b.m.Open(t.Context(), "/ws", OpenOptions{})
	must(t, err)
	if w.ID() == id {
		t.Error("the same id again")
	}
	w.Release()
}

func TestPutAwayAndReopen(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A"})
	b.ok(write("a", "B"))
	b.w.Release()
	b.m.PutAway(t.Context(), time.Now().Add(time.Hour))
	if len(b.m.open) != 0 {
		t.Fatal("still open")
	}
	writeDisk(t, b.mem, "ws/new", "while away")
	must(t, b.open())
	b.same()
	b.ok(write("a", "C"))
	b.same()
	b.stop()
}

func TestSync(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A", "b": "B", "moved": "M", "d/x": "X", ".gitignore": "*.log\n", "old.log": "ignored"})
	defer b.stop()
	if _, ok := tree(t, b.w)["old.log"]; ok {
		t.Fatal("an ignored file is in the baseline")
	}
	res, err := b.w.Sync(t.Context(), workspace.SyncOptions{})
	must(t, err)
	if res.Changed != 0 || !res.Commit.IsZero() {
		t.Errorf("%+v", res)
	}
	writeDisk(t, b.mem, "ws/a", "changed")
	must(t, b.mem.Remove("ws/b"))
	must(t, b.mem.Rename("ws/moved", "ws/d/moved"))
	writeDisk(t, b.mem, "ws/n/new", "N")
	writeDisk(t, b.mem, "ws/x.log", "ignored")
	writeDisk(t, b.mem, "ws/link", "->a")
	must(t, b.mem.Chmod("ws/d/x", 0o755))
	res, err = b.w.Sync(t.Context(), workspace.SyncOptions{})
	must(t, err)
	c, err := b.w.Store().ReadCommit(t.Context(), res.Commit)
	must(t, err)
	entries, err := b.w.EntriesOf(t.Context(), c)
	must(t, err)
	want := "modify a, delete b, rename moved -> d/moved, chmod d/x, symlink link, create n/new"
	if got := brief(entries); got != want || res.Changed != 6 {
		t.Errorf("%q, %d; want %q", got, res.Changed, want)
	}
	// An ignored file that comes through us is tracked from then on.
	b.ok(write("x.log", "ours"))
	writeDisk(t, b.mem, "ws/x.log", "theirs")
	res, err = b.w.Sync(t.Context(), workspace.SyncOptions{})
	must(t, err)
	if res.Changed != 1 {
		t.Errorf("%+v", res)
	}
	d := inFolder(t, b.mem, "ws")
	delete(d, "old.log")
	if diff := diffMaps(d, tree(t, b.w)); diff != "" {
		t.Error(diff)
	}
}

func TestSyncLimits(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A"})
	defer b.stop()
	b.again(func(o *Options) { o.Limits.CaptureBytes = 10 })
	writeDisk(t, b.mem, "ws/big", strings.Repeat("x", 11))
	writeDisk(t, b.mem, "ws/a", strings.Repeat("y", 11)) // tracked: stays so
	res, err := b.w.Sync(t.Context(), workspace.SyncOptions{})
	must(t, err)
	if res.Changed != 1 || len(res.Skipped) != 1 || res.Skipped[0] != (workspace.Skip{Path: "big", Reason: "too_large"}) {
		t.Errorf("%+v", res)
	}
	cov, err := b.w.Coverage(t.Context())
	must(t, err)
	if cov.Tracked != 1 || len(cov.Skipped) != 1 {
		t.Errorf("%+v", cov)
	}
	// A folder's delete does not destroy it; the one who names it may.
	writeDisk(t, b.mem, "ws/d/big", strings.Repeat("x", 11))
	if _, err := b.apply(del("d")); code(err) != "not_recordable" {
		t.Error(err)
	}
	b.ok(del("big"))
	if !b.w.Store().HasBlob(b.w.Store().NewBlob([]byte(strings.Repeat("x", 11))).ID()) {
		t.Error("the deleted file is in no history")
	}
}

func TestAttribution(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A", "b": "B"})
	defer b.stop()
	_, err := b.w.Store().PutTask(t.Context(), message.Info{TaskID: "t1", Status: "executing", Goal: "g"}, b.w.Store().Tip().Commit)
	must(t, err)
	b.m.SetAttribute(func(string) string { return "t1" })
	writeDisk(t, b.mem, "ws/a", "by a person")
	writeDisk(t, b.mem, "ws/new", "untracked")
	b.ok(write("a", "ours"), write("new", "ours"))
	var got []string
	for seq := uint64(2); seq <= b.w.Store().Tip().Seq; seq++ {
		id, err := b.w.Store().CommitAt(t.Context(), seq)
		must(t, err)
		c, err := b.w.Store().ReadCommit(t.Context(), id)
		must(t, err)
		entries, err := b.w.EntriesOf(t.Context(), c)
		must(t, err)
		got = append(got, string(c.Message.Source)+" "+c.Message.TaskID+": "+brief(entries))
	}
	want := "external t1: modify a; external : create new; api : modify a, modify new"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
	writeDisk(t, b.mem, "ws/b", "by a person")
	_, err = b.w.Sync(t.Context(), workspace.SyncOptions{Attribute: true})
	must(t, err)
	c, err := b.w.Store().ReadCommit(t.Context(), b.w.Store().Tip().Commit)
	must(t, err)
	if c.Message.TaskID != "t1" {
		t.Errorf("%q", c.Message.TaskID)
	}
}

func TestIdempotency(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A"})
	req := workspace.Request{By: workspace.By{IdempotencyKey: "sha256:" + strings.Repeat("ab", 32)}, Ops: []workspace.Op{write("a", "B"), rename("a", "c")}}
	first, err := b.w.Apply(t.Context(), req)
	must(t, err)
	b.ok(write("c", "later"))
	for range 2 {
		again, err := b.w.Apply(t.Context(), req)
		must(t, err)
		if !again.Replayed || again.Commit != first.Commit || again.Seq != first.Seq || brief(again.Entries) != brief(first.Entries) || len(again.Ops) != 2 {
			t.Errorf("%+v\n%+v", again, first)
		}
		// Also after a restart.
		b.w.Release()
		b.m.PutAway(t.Context(), time.Now().Add(time.Hour))
		must(t, b.open())
	}
	if got := tree(t, b.w)["c"]; got != "later" {
		t.Errorf("done twice: %q", got)
	}
	b.stop()
}

func TestEvents(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A"})
	defer b.stop()
	stop := errors.New("enough")
	b.ok(write("a", "1"))
	var seqs []uint64
	got := make(chan error)
	go func() {
		got <- b.w.Events(context.Background(), 0, func(e workspace.Event) error {
			seqs = append(seqs, e.Commit.Seq)
			if len(seqs) == 4 {
				return stop
			}
			return nil
		})
	}()
	b.ok(write("a", "2"))
	b.ok(write("b", "3"))
	if err := <-got; err != stop {
		t.Fatal(err)
	}
	for i, s := range seqs {
		if s != uint64(i+1) {
			t.Errorf("%v", seqs)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.w.Events(ctx, b.w.Settled(), func(workspace.Event) error { return nil }); !errs.Is(err, errs.Canceled) {
		t.Error(err)
	}
}

func TestLinksThatLeadOut(t *testing.T) {
	b := newBench(t, map[string]string{"out": "->../data", "abs": "->/data", "loop": "->loop", "chain": "->out/x", "dangling": "->nix/deep", "a": "A", "git": "->.git"})
	defer b.stop()
	for _, p := range []string{"out/x", "abs/x", "loop", "loop/x", "chain"} {
		if _, err := b.apply(write(p, "1")); code(err) != "file_not_found" {
			t.Errorf("%s: %v", p, err)
		}
		if _, err := b.w.OpenFile(t.Context(), wspath.Path(p)); code(err) != "file_not_found" {
			t.Errorf("%s: %v", p, err)
		}
	}
	if _, err := b.apply(write("git/config", "1")); code(err) != "bad_path" {
		t.Error(err)
	}
	b.ok(write("dangling", "made"))
	b.ok(del("out"), rename("abs", "abs2"))
	b.same()
}

func TestReadOnlyAndChecks(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A"})
	defer b.stop()
	no := errs.New(errs.Conflict, "task_paused", "paused")
	for _, op := range []workspace.Op{write("a", "B"), write("a", "A")} {
		_, err := b.w.Apply(t.Context(), workspace.Request{Ops: []workspace.Op{op}, Check: func() error { return no }})
		if code(err) != "task_paused" {
			t.Error(err)
		}
	}
	b.same()
	res, err := b.w.Apply(t.Context(), workspace.Request{Ops: []workspace.Op{del("a"), write("b", "1")}, DryRun: true})
	must(t, err)
	if brief(res.Entries) != "delete a, create b" || !res.Commit.IsZero() {
		t.Errorf("%+v", res)
	}
	b.same()
	if _, ok := tree(t, b.w)["a"]; !ok {
		t.Error("a dry run did it")
	}
}
