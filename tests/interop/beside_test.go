package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	gogitobject "github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// TestGoGitBesideTheWriter is what a CI job with go-git in it sees while the
// server writes: opened anew it always finds the history whole, and what was
// published before it opened; a handle that is kept does not learn of later
// packs, and says that an object is missing, nothing worse. go-git looks for the index of
// each pack that it lists, and a writer names the pack first, as git does: an open that comes
// between the two fails with ErrPackfileNotFound, and a later one does not.
func TestGoGitBesideTheWriter(t *testing.T) {
	need.Long(t, "reads beside a writer")
	span := 3 * time.Second
	if soak() {
		span = 2 * time.Minute
	}
	dir := scratch(t)
	s := open(t, dir, gitstore.Options{VisibleAfter: 20 * time.Millisecond})
	defer closeStore(t, s)
	if _, err := s.Baseline(t.Context(), message.Message{Source: message.Baseline}, func(add gitstore.AddFile) error {
		_, err := add("f", object.Regular, strings.NewReader("x"), 1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	need.NoError(t, s.Publish(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- writeUntil(ctx, s) }()

	kept, err := gogit.PlainOpen(repoOf(dir))
	need.NoError(t, err)
	fresh, stale, between := 0, 0, 0
	for ; ctx.Err() == nil; fresh++ {
		at := uint64(0)
		if fresh%10 == 0 {
			at = s.Tip().Seq
			need.NoError(t, s.Publish(t.Context()))
		}
		n, err := readFresh(dir)
		for tries := 0; tries < 10 && errors.Is(err, dotgit.ErrPackfileNotFound); tries++ {
			between++
			n, err = readFresh(dir)
		}
		if err != nil {
			t.Fatalf("open %d: %v", fresh, err)
		}
		if n < at {
			t.Fatalf("open %d: commit %d was published, %d is the newest seen", fresh, at, n)
		}
		switch _, err := readBack(kept, 5); {
		case errors.Is(err, plumbing.ErrObjectNotFound), errors.Is(err, dotgit.ErrPackfileNotFound):
			stale++
			if kept, err = gogit.PlainOpen(repoOf(dir)); err != nil {
				t.Fatal(err)
			}
		case err != nil:
			t.Fatalf("a kept handle: %v", err)
		}
	}
	need.NoError(t, <-done)
	t.Logf("%d fresh opens read everything, after %d that came between; a kept handle missed an object %d times; %d commits", fresh, between, stale, s.Tip().Seq)
}

func readFresh(dir string) (seq uint64, err error) {
	repo, err := gogit.PlainOpen(repoOf(dir))
	if err != nil {
		return 0, err
	}
	return readBack(repo, 30)
}

func writeUntil(ctx context.Context, s *gitstore.Store) error {
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		b := s.NewBlob(fmt.Appendf(nil, "%d\n", i))
		p := wspath.Path(fmt.Sprintf("d%d/f%d", i%7, i%31))
		_, err := s.Commit(context.Background(), gitstore.Draft{Edits: []gitstore.Edit{{Path: p, Mode: object.Regular, Blob: b}}, Entries: 1,
			Message: message.Message{Source: message.API, Entries: []message.Entry{{Operation: message.Modify, Path: string(p), AfterHash: b.AfterHash()}}}})
		if err != nil {
			return err
		}
		select { // paced, as agents are
		case <-pace.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// readBack reads the newest commits with all that their trees hold, and gives
// the newest one's sequence number.
func readBack(repo *gogit.Repository, most int) (seq uint64, err error) {
	head, err := repo.Head()
	if err != nil {
		return 0, err
	}
	log, err := repo.Log(&gogit.LogOptions{From: head.Hash()})
	if err != nil {
		return 0, err
	}
	d := &goGit{repo: repo, seen: make(map[plumbing.Hash]bool)}
	n := 0
	err = log.ForEach(func(c *gogitobject.Commit) error {
		if n == 0 {
			m, err := message.Parse(c.Message)
			if err != nil {
				return err
			}
			seq = m.Seq
		}
		if n++; n > most {
			return io.EOF
		}
		return d.tree(c.TreeHash)
	})
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return seq, err
}
