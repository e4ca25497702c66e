package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

const (
	scaleCommits = 100_000
	// startWithin is how long a start over a long history may take.
	startWithin = time.Second
)

// TestHundredThousandCommits makes a long history and looks at what a start
// over it costs, with the commit index and without; what stock git makes of
// it; and whether commits became dearer.
func TestHundredThousandCommits(t *testing.T) {
	need.Soak(t, "a history of 100,000 commits")
	dir := scratch(t)
	s := open(t, dir, gitstore.Options{MergeGrace: 2 * time.Second})
	if _, err := s.Baseline(t.Context(), message.Message{Source: message.Baseline}, func(add gitstore.AddFile) error {
		for i := range 1000 {
			data := fmt.Sprintf("file %d\n", i)
			if _, err := add(wspath.Path(scalePath(i)), object.Regular, strings.NewReader(data), int64(len(data))); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	first := calmCommits(t, s)
	began := time.Now()
	var writers sync.WaitGroup
	const parallel = 64
	for w := range parallel {
		writers.Go(func() {
			for i := w; i < scaleCommits; i += parallel {
				if err := scaleCommit(s, scalePath(i%1000), fmt.Sprintf("edit %d\n", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	t.Logf("%d commits in %v", scaleCommits, time.Since(began).Round(time.Millisecond))
	need.NoError(t, errors.Join(s.Publish(t.Context()), s.Maintain(t.Context())))
	t.Logf("published and compact after %v", time.Since(began).Round(time.Millisecond))
	last := calmCommits(t, s)
	t.Logf("a commit at the beginning takes %v, at the end %v", first, last)
	if last > 2*first {
		t.Errorf("a commit became %.1f times as dear", float64(last)/float64(first))
	}
	n := s.Tip().Seq
	closeStore(t, s)

	reopen := func(what string, within time.Duration) {
		t.Helper()
		before := heap()
		began := time.Now()
		s := open(t, dir, gitstore.Options{})
		took := time.Since(began)
		grew := heap() - before
		t.Logf("start %s: %v, %.1f MiB of heap", what, took.Round(time.Millisecond), float64(grew)/(1<<20))
		if took > within {
			t.Errorf("the start %s took %v", what, took)
		}
		if s.Tip().Seq != n {
			t.Errorf("the tip is %d, not %d", s.Tip().Seq, n)
		}
		seen := uint64(0)
		if err := s.Records(t.Context(), 1, n, func(r gitstore.Record) error { seen++; return nil }); err != nil || seen != n {
			t.Errorf("%d records of %d, %v", seen, n, err)
		}
		closeStore(t, s)
	}
	reopen("as usual", startWithin)
	for _, name := range []string{"records", "records.names"} {
		need.NoError(t, os.Remove(filepath.Join(dir, name)))
	}
	reopen("without the commit index", time.Minute)
	reopen("with it made again", startWithin)

	packs, err := filepath.Glob(filepath.Join(repoOf(dir), "objects/pack/*.pack"))
	need.NoError(t, err)
	began = time.Now()
	if got := git(t, repoOf(dir), "rev-list", "--count", "HEAD"); got != fmt.Sprint(n) {
		t.Errorf("git counts %s commits of %d", got, n)
	}
	t.Logf("%d packs; rev-list --count takes %v", len(packs), time.Since(began).Round(time.Millisecond))
	began = time.Now()
	fsck(t, repoOf(dir))
	t.Logf("fsck takes %v", time.Since(began).Round(time.Millisecond))
}

func scalePath(i int) string { return fmt.Sprintf("d%02d/e%02d/f%d", i%17, i/17%13, i) }

func scaleCommit(s *gitstore.Store, p, data string) error {
	b := s.NewBlob([]byte(data))
	_, err := s.Commit(context.Background(), gitstore.Draft{Entries: 1,
		Edits: []gitstore.Edit{{Path: wspath.Path(p), Mode: object.Regular, Blob: b}},
		Message: message.Message{Actor: "writer", Source: message.API,
			Entries: []message.Entry{{Operation: message.Modify, Path: p, AfterHash: b.AfterHash()}}}})
	return err
}

// calmCommits gives what one commit takes when nobody else writes.
func calmCommits(t *testing.T, s *gitstore.Store) time.Duration {
	t.Helper()
	const n = 2000
	began := time.Now()
	for i := range n {
		need.NoError(t, scaleCommit(s, scalePath(i%1000), fmt.Sprintf("calm %d of %d\n", i, s.Tip().Seq)))
	}
	return time.Since(began) / n
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
