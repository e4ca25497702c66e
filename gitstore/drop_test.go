package gitstore

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/inuse"
	"umbra/gitstore/message"
	"umbra/gitstore/packset"
	"umbra/gitstore/storedir"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// dropStore is a store whose clock the test moves, with packs that a merge has
// just superseded.
func dropStore(t *testing.T, opt Options) (s *Store, dir string, later func(time.Duration)) {
	t.Helper()
	dir = testDir(t)
	now := time.Unix(1_700_000_000, 0)
	opt.Foreground, opt.MergeGrace = true, time.Minute
	opt.Now = func() time.Time { return now }
	s = openAt(t, dir, opt)
	baselineOf(t, s, map[string]string{"f": "x"})
	publishMany(t, s, mergeWidth+1)
	if n := len(s.r.Packs.All()) - len(s.r.Packs.InUse()); n < mergeWidth {
		t.Fatalf("%d packs were superseded", n)
	}
	return s, dir, func(d time.Duration) { now = now.Add(d) }
}

func publishMany(t *testing.T, s *Store, n int) {
	t.Helper()
	for i := range n {
		mustPut(t, s, "", "f", fmt.Sprint(s.Tip().Seq, i))
		need.NoError(t, s.Publish(t.Context()))
		maintain(t, s)
	}
}

func maintain(t *testing.T, s *Store) {
	t.Helper()
	need.NoError(t, s.Maintain(t.Context()))
}

func packsOnDisk(t *testing.T, dir string) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, storedir.Packs, "*.pack"))
	need.NoError(t, err)
	return len(list)
}

func exists(t *testing.T, dir, name string) bool {
	t.Helper()
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// TestMultiPackIndexGoesBeforeThePacks has a person make one at each moment of
// a merge's life: fsck must never fail over it.
func TestMultiPackIndexGoesBeforeThePacks(t *testing.T) {
	idle := func(context.Context, []vfs.Info, []vfs.Info) (bool, error) { return false, nil }
	s, dir, later := dropStore(t, Options{InUse: idle})
	defer closeStore(t, s)
	before := packsOnDisk(t, dir)

	git(t, dir, "multi-pack-index", "write", "--no-progress") // during the grace
	stale, err := os.ReadFile(filepath.Join(dir, packset.MultiIndex))
	need.NoError(t, err)
	fsck(t, dir)
	later(2 * time.Minute)
	maintain(t, s)
	if n := packsOnDisk(t, dir); n >= before {
		t.Fatalf("%d packs, there were %d", n, before)
	}
	if exists(t, dir, packset.MultiIndex) {
		t.Fatal("a multi-pack-index of packs that are gone is left")
	}
	fsck(t, dir)

	// One that was begun before the packs went, and is finished after.
	need.NoError(t, os.WriteFile(filepath.Join(dir, packset.MultiIndex), stale, 0o444))
	maintain(t, s)
	if exists(t, dir, packset.MultiIndex) {
		t.Fatal("a multi-pack-index that was finished late is left")
	}
	fsck(t, dir)

	// One of packs that are there stays until one of them is superseded.
	git(t, dir, "multi-pack-index", "write", "--no-progress")
	maintain(t, s)
	if !exists(t, dir, packset.MultiIndex) {
		t.Fatal("a sound multi-pack-index was removed")
	}
	publishMany(t, s, 2*mergeWidth)
	if exists(t, dir, packset.MultiIndex) {
		t.Fatal("a multi-pack-index of superseded packs is left")
	}

	// The layers of an incremental one, which this git may not write yet.
	layers := filepath.Join(dir, packset.MultiLayers)
	need.NoError(t, os.Mkdir(layers, 0o755))
	for _, name := range []string{"multi-pack-index-chain", "multi-pack-index-0.midx"} {
		need.NoError(t, os.WriteFile(filepath.Join(layers, name), stale, 0o444))
	}
	maintain(t, s)
	if exists(t, dir, packset.MultiChain) {
		t.Fatal("the chain of layers over packs that are gone is left")
	}
}

// TestSupersededPacksWaitForReaders has another process at work in the
// repository when the grace ends: by its folder, and by an index that it has
// mapped only.
func TestSupersededPacksWaitForReaders(t *testing.T) {
	if exists(t, "/", "proc/self/maps") == false {
		need.Missing(t, "no /proc here")
	}
	for name, where := range map[string]func(dir string) *exec.Cmd{
		"by its folder": func(dir string) *exec.Cmd {
			cmd := exec.Command("git", "hash-object", "--stdin-paths")
			cmd.Dir = filepath.Join(dir, storedir.Repo)
			return cmd
		},
		"by what it has open": func(dir string) *exec.Cmd {
			cmd := exec.Command("git", "--git-dir", filepath.Join(dir, storedir.Repo), "cat-file", "--batch-check")
			cmd.Dir = "/"
			return cmd
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir, later := dropStore(t, Options{})
			defer closeStore(t, s)
			before := packsOnDisk(t, dir)
			stop := startReader(t, where(dir))
			later(2 * time.Minute)
			maintain(t, s)
			if n := packsOnDisk(t, dir); n != before {
				t.Errorf("%d packs of %d are left under a reader", n, before)
			}
			stop()
			maintain(t, s)
			if n := packsOnDisk(t, dir); n >= before {
				t.Errorf("%d packs, there were %d", n, before)
			}
			fsck(t, dir)

			// Nobody is waited for without end.
			publishMany(t, s, 3*mergeWidth)
			before = packsOnDisk(t, dir)
			defer startReader(t, where(dir))()
			later(packset.LongGraces*time.Minute + time.Second)
			maintain(t, s)
			if n := packsOnDisk(t, dir); n >= before {
				t.Errorf("%d packs, there were %d", n, before)
			}
		})
	}
}

// startReader starts a git that reads from standard input, and returns once it
// has answered something, so that it stands where it stands.
func startReader(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	in, err := cmd.StdinPipe()
	need.NoError(t, err)
	out, err := cmd.StdoutPipe()
	need.NoError(t, err)
	need.NoError(t, cmd.Start())
	ask := "HEAD\n"
	if strings.Contains(strings.Join(cmd.Args, " "), "hash-object") {
		ask = "config\n"
	}
	if _, err := in.Write([]byte(ask)); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	return func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// supersededRecord publishes a task's record that a newer one superseded.
func supersededRecord(t *testing.T, inUse func(context.Context, []vfs.Info, []vfs.Info) (bool, error)) (s *Store, dir string) {
	t.Helper()
	dir = testDir(t)
	s = openAt(t, dir, Options{Foreground: true, InUse: inUse})
	baselineOf(t, s, map[string]string{"f": "x"})
	for _, goal := range []string{"one", "two"} {
		if _, err := s.PutTask(t.Context(), message.Info{TaskID: "t", Goal: goal, Status: "executing"}, ID{}); err != nil {
			t.Fatal(err)
		}
	}
	need.NoError(t, s.Publish(t.Context()))
	return s, dir
}

// TestReflogWaitsForReaders: a git-fsck that listed the packs before a tag's was
// there calls a reflog entry that names it invalid.
func TestReflogWaitsForReaders(t *testing.T) {
	busy := true
	s, dir := supersededRecord(t, func(context.Context, []vfs.Info, []vfs.Info) (bool, error) { return busy, nil })
	defer closeStore(t, s)
	log := filepath.Join(storedir.Repo, "logs/refs/umbra/tasks/t/info")
	if exists(t, dir, log) {
		t.Fatal("the reflog was written beside a reader")
	}
	busy = false
	maintain(t, s)
	if !exists(t, dir, log) {
		t.Fatal("the reflog was not written")
	}
	fsck(t, dir)
}

// TestReflogWhereProcessesBegin: on a busy machine new processes come all the time. They
// know the tag that a line names, so the line does not wait for them; what is removed does.
func TestReflogWhereProcessesBegin(t *testing.T) {
	churn := func(context.Context, []vfs.Info, []vfs.Info) (bool, error) { return false, inuse.ErrUndecided }
	s, dir := supersededRecord(t, churn)
	defer closeStore(t, s)
	fsck(t, dir)
	if busy, err := s.r.Busy(t.Context()); !busy || err != nil {
		t.Errorf("removals do not wait: %v, %v", busy, err)
	}
}
