package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/sink"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// openStore opens a claimed workspace in an empty cache.
func openStore(t *testing.T, k *Sink) (*gitstore.Store, string) {
	t.Helper()
	dir := t.TempDir()
	fs, err := vfs.OS(dir)
	need.NoError(t, err)
	s, err := gitstore.Open(context.Background(), gitstore.Options{FS: fs, Sink: k, InlineBlob: 256 << 10, Foreground: true})
	need.NoError(t, err)
	return s, dir
}

func commitFile(s *gitstore.Store, path, data string) (gitstore.Committed, error) {
	b := s.NewBlob([]byte(data))
	return s.Commit(context.Background(), gitstore.Draft{
		Edits:   []gitstore.Edit{{Path: wspath.Path(path), Mode: object.Regular, Blob: b}},
		Entries: 1,
		Message: message.Message{Actor: "tester", Source: message.API, Entries: []message.Entry{{Operation: message.Modify, Path: path, AfterHash: b.AfterHash()}}},
	})
}

// testStore moves a real store between nodes, whose directories begin empty, while
// they are killed and deposed.
func testStore(t *testing.T, p *clustertest.Pair) {
	gitPath := need.Tool(t, "git")
	ctx := context.Background()
	s := newScene(t, p)
	var acked []gitstore.Committed
	write := func(st *gitstore.Store, n int) {
		t.Helper()
		for range n {
			c, err := commitFile(st, fmt.Sprintf("d%d/f", len(acked)%7), fmt.Sprintf("version %d\n", len(acked)))
			need.NoError(t, err)
			acked = append(acked, c)
		}
	}
	check := func(st *gitstore.Store, dir string) {
		t.Helper()
		for i, c := range acked {
			if got, err := st.CommitAt(ctx, c.Seq); err != nil || got != c.Commit || c.Seq != uint64(i+1) {
				t.Fatalf("commit %d is %v, %v; acknowledged was %d, %v", i+1, got, err, c.Seq, c.Commit)
			}
		}
		if r, err := st.Verify(ctx, nil); err != nil || len(r.Problems) > 0 {
			t.Fatalf("verify: %+v, %v", r, err)
		}
		need.NoError(t, st.Publish(ctx))
		repo, err := filepath.Glob(filepath.Join(dir, "*.git"))
		if err != nil || len(repo) != 1 {
			t.Fatalf("%v, %v", repo, err)
		}
		cmd := exec.Command(gitPath, "-C", repo[0], "fsck", "--strict", "--full")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("fsck: %v\n%s", err, out)
		}
	}
	k1, _ := s.claim2(s.n1)
	one, dir := openStore(t, k1)
	write(one, 20)
	need.NoError(t, one.Seal(ctx))
	write(one, 20)
	check(one, dir)

	// n1 is paused for longer than its lease, and then goes on.
	s.freeze.freeze()
	k2, _ := s.claim2(s.n2)
	two, dir := openStore(t, k2)
	write(two, 20)
	s.freeze.thaw()
	if _, err := commitFile(one, "late", "x"); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a write by the deposed: %v", err)
	}
	if err := one.Close(ctx); err != nil {
		t.Errorf("close of the deposed: %v", err)
	}
	check(two, dir)

	// n2 is killed after a seal that no other node has seen.
	need.NoError(t, two.Seal(ctx))
	write(two, 5)
	s.n2.abandon()
	k3, _ := s.claim2(s.n1)
	three, dir := openStore(t, k3)
	check(three, dir)
	write(three, 5)
	need.NoError(t, three.Seal(ctx))
	if swept, err := s.n1.Sweep(ctx, s.store, true); err != nil {
		t.Errorf("%+v, %v", swept, err)
	}
	need.NoError(t, three.Close(ctx))
	need.NoError(t, s.n1.Release(ctx, k3.claim))
	k4, _ := s.claim2(s.n1)
	four, dir := openStore(t, k4)
	check(four, dir)
	need.NoError(t, four.Close(ctx))
}

// claim2 claims and leaves the tail to the store.
func (s *scene) claim2(n *Node) (*Sink, *Claim) {
	s.t.Helper()
	c, err := Await(context.Background(), 20*time.Second, func(ctx context.Context) (*Claim, error) { return n.Claim(ctx, "w") })
	if err != nil {
		s.t.Fatal(err)
	}
	return n.Sink(c, s.store, time.Hour), c
}

// Await calls f until it returns no *OwnedError, or the time is over: a
// workspace's owner may be dying, or be releasing it.
func Await[T any](ctx context.Context, within time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		v, err := f(ctx)
		var owned *OwnedError
		if !errors.As(err, &owned) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
