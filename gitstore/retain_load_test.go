package gitstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// TestRetentionBesideWritersAndFsck drops and collects without a pause while 16
// writers commit, some of them bringing back what may be dropped at that moment,
// and Verify, git-fsck(1) and clones run in a loop: nothing fails.
func TestRetentionBesideWritersAndFsck(t *testing.T) {
	lasts, enough := 30*time.Second, int64(4)
	if testing.Short() {
		enough = 2
	}
	if os.Getenv("UMBRA_SOAK") != "" {
		lasts, enough = 2*time.Minute, math.MaxInt64
	}
	dir := testDir(t)
	// Superseded packs go between two fscks, and are never forced out under one:
	// that is after six graces.
	s := openAt(t, dir, Options{MergeGrace: lasts / 4, VisibleAfter: 50 * time.Millisecond})
	base := map[string]string{}
	for i := range 300 {
		base[fmt.Sprintf("dir%d/file%d", i%20, i)] = strings.Repeat(fmt.Sprintf("line %d\n", i), 20)
	}
	baselineOf(t, s, base)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var wg sync.WaitGroup
	var made, brought, refused, cuts, fscks, verified atomic.Int64
	fail := func(format string, args ...any) {
		if ctx.Err() == nil {
			t.Errorf(format, args...)
			cancel()
		}
	}
	// Commits that may be made: as many come with every look at what may go, so
	// that each finds something.
	turns := make(chan struct{}, 600)
	for w := range 16 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			var old []ID
			task := ""
			for i := 0; ; i++ {
				select {
				case <-turns:
				case <-ctx.Done():
					return
				}
				if i%8 == 0 {
					if task != "" {
						if _, err := s.PutTask(ctx, message.Info{TaskID: task, Goal: "g", Status: "completed"}, ID{}); err != nil {
							fail("ending %s: %v", task, err)
						}
					}
					task = fmt.Sprintf("t%d-%d", w, i)
					if _, err := s.PutTask(ctx, message.Info{TaskID: task, Goal: "g", Status: "executing"}, ID{}); err != nil {
						fail("beginning %s: %v", task, err)
					}
				}
				path := wspath.Path(fmt.Sprintf("dir%d/w%d-%d", rnd.IntN(20), w, rnd.IntN(5)))
				b := s.NewBlob(fmt.Appendf(nil, "%d %d %x\n", w, i, rnd.Uint64()))
				if n := len(old); n > 5 && i%7 == 0 {
					b = KnownBlob(old[rnd.IntN(n)])
				} else {
					old = append(old, b.ID())
				}
				_, err := s.Commit(ctx, Draft{Edits: []Edit{{Path: path, Mode: object.Regular, Blob: b}}, Entries: 1,
					Message: message.Message{TaskID: task, Source: message.API, Entries: []message.Entry{{Operation: message.Modify, Path: string(path)}}}})
				switch {
				case err == nil && b.entry == nil:
					brought.Add(1)
				case err == nil:
					made.Add(1)
				case b.entry == nil && errs.Is(err, errs.Gone):
					refused.Add(1)
				default:
					fail("writer %d: %v", w, err)
				}
			}
		})
	}
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			for len(turns) < cap(turns) {
				turns <- struct{}{}
			}
			if err := s.Wait(ctx, s.Tip().Seq+300); err != nil {
				return
			}
			tip := s.Tip().Seq
			moved, err := s.Retain(ctx, RetainOptions{Before: time.Now().Add(time.Hour), Through: tip - min(tip, 150)})
			if err != nil {
				fail("retain: %v", err)
			}
			if _, err := s.Collect(ctx, CollectOptions{Thorough: i%2 == 0}); err != nil {
				fail("collect: %v", err)
			}
			if moved.Commits > 0 {
				cuts.Add(1)
			}
			if cuts.Load() >= enough {
				cancel()
			}
			if err := s.Maintain(ctx); err != nil {
				fail("maintain: %v", err)
			}
		}
	})
	repo := filepath.Join(dir, storedir.Repo)
	run := func(args ...string) error {
		cmd := exec.Command("git", args...)
		cmd.Dir = repo
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("git %v: %w\n%s", args, err, out)
		}
		return nil
	}
	shallow := func() string {
		data, err := os.ReadFile(filepath.Join(repo, "shallow"))
		if err != nil && !os.IsNotExist(err) {
			fail("%v", err)
		}
		return string(data)
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			if rep, err := s.Verify(ctx, nil); err != nil || len(rep.Problems) > 0 {
				fail("verify: %q %v", rep.Problems, err)
			}
			verified.Add(1)
		}
	})
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			err := run("fsck", "--strict", "--full", "--no-dangling")
			if err == nil && i%3 == 0 {
				clone, from := filepath.Join(dir, fmt.Sprintf("clone%d", i)), shallow()
				err = run("clone", "-q", "--bare", "file://"+repo, clone)
				if err != nil && shallow() != from {
					// Git reads where history begins twice, and fails if it moved
					// in between (gitcmd.PinShallow is for those that we serve).
					err = nil
				}
				err = errors.Join(err, os.RemoveAll(clone))
			}
			if err != nil {
				fail("%v", err)
			}
			fscks.Add(1)
		}
	})
	wg.Wait()
	t.Logf("%d commits, %d brought something back, %d could not; %d cuts, history begins at %d of %d; verified %d times, %d fscks",
		made.Load(), brought.Load(), refused.Load(), cuts.Load(), s.Boundary().Seq, s.Tip().Seq, verified.Load(), fscks.Load())
	if s.Boundary().Whole() {
		t.Error("nothing was dropped")
	}
	if rep, err := s.Verify(t.Context(), nil); err != nil || len(rep.Problems) > 0 {
		t.Fatal(rep.Problems, err)
	}
	if _, err := s.Collect(t.Context(), CollectOptions{Now: true}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = openAt(t, dir, Options{})
	if rep, err := s.Verify(t.Context(), nil); err != nil || len(rep.Problems) > 0 {
		t.Fatal(rep.Problems, err)
	}
	closeStore(t, s)
	fsck(t, dir)
}

// TestRetentionFreesWhatItDrops: a long history cut to its last tenth takes a
// fifth of its bytes at most, with its newest packs, which no merge has compressed.
func TestRetentionFreesWhatItDrops(t *testing.T) {
	need.Long(t, "thousands of commits by one goroutine")
	n := 4000
	if os.Getenv("UMBRA_SOAK") != "" {
		n = 100_000
	}
	dir := testDir(t)
	now := time.Unix(1_700_000_000, 0)
	s := openAt(t, dir, Options{Foreground: true, MergeGrace: time.Second, Now: func() time.Time { return now }})
	files := map[string]string{}
	for i := range 50 {
		files[fmt.Sprintf("src/pkg%d/file%d.go", i%7, i)] = strings.Repeat(fmt.Sprintf("a line of file %d\n", i), 40)
	}
	baselineOf(t, s, files)
	rnd := rand.New(rand.NewPCG(5, 6))
	var cut Committed
	for i := range n {
		now = now.Add(time.Second)
		text := fmt.Sprintf("%x %x %x %x\n", rnd.Uint64(), rnd.Uint64(), rnd.Uint64(), rnd.Uint64())
		c := mustPut(t, s, "", fmt.Sprintf("src/pkg%d/file%d.go", i%7, i%50), strings.Repeat(text, 1+i%20))
		if i == n*9/10 {
			cut = c
		}
		if i%100 == 99 {
			need.NoError(t, s.Publish(t.Context()))
			maintain(t, s)
		}
	}
	need.NoError(t, s.Publish(t.Context()))
	now = now.Add(time.Minute)
	maintain(t, s)
	before := diskBytes(t, dir)
	began := time.Now()
	if _, err := s.Retain(t.Context(), RetainOptions{Before: cut.When.Add(time.Second)}); err != nil {
		t.Fatal(err)
	}
	rep, err := s.Collect(t.Context(), CollectOptions{Now: true})
	need.NoError(t, err)
	after := diskBytes(t, dir)
	t.Logf("%d commits: %d bytes before, %d after, %d told as freed; %v", n, before, after, rep.Freed, time.Since(began).Round(time.Millisecond))
	if after > before/5 || rep.Freed < before*3/4 {
		t.Errorf("%d of %d bytes are left; %d told as freed", after, before, rep.Freed)
	}
	closeStore(t, s)
	fsck(t, dir)
}
