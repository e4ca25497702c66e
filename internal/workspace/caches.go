package workspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"sync/atomic"

	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
)

// Caches of what is read from the history are in a folder next to the repository.
// None is synced, each ends with the SHA-256 of what is before it, and a damaged
// one is ignored.
const (
	cachesDir = "caches"
	// farBehind is how many commits are waited for before caches are brought up to
	// date although the workspace is not quiet: no commit for a checkpoint's tick.
	farBehind = 16_384
)

// ReadCache gives what was kept under a name; nil if there is none.
func (w *Workspace) ReadCache(name string) ([]byte, error) {
	data, err := vfs.ReadFile(w.disk.Files, cachesDir+"/"+name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	n := len(data) - sha256.Size
	if n < 0 || sha256.Sum256(data[:n]) != [sha256.Size]byte(data[n:]) {
		return nil, nil
	}
	return data[:n], nil
}

// WriteCache keeps data under a name, in place of what was kept there.
func (w *Workspace) WriteCache(name string, data []byte) error {
	if err := w.disk.Files.Mkdir(cachesDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return errs.Wrap(err, "")
	}
	name = cachesDir + "/" + name
	temp := name + ".new"
	f, err := w.disk.Files.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errs.Wrap(err, "")
	}
	_, err = f.Write(data)
	if err == nil {
		sum := sha256.Sum256(data)
		_, err = f.Write(sum[:])
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = w.disk.Files.Rename(temp, name)
	}
	return errs.Wrap(err, "")
}

// DropCaches removes all that is kept: a purge must leave nothing that holds
// what it took out.
func (w *Workspace) DropCaches() error {
	list, err := w.disk.Files.ReadDir(cachesDir)
	if disk.IsAbsent(err) {
		return nil
	}
	for _, e := range list {
		if rerr := w.disk.Files.Remove(cachesDir + "/" + e.Name); !disk.IsAbsent(rerr) {
			err = errors.Join(err, rerr)
		}
	}
	return errs.Wrap(err, "")
}

// quiet has the caches kept when a tick goes by without a commit.
type quiet struct {
	seq, kept uint64
	busy      atomic.Bool
}

func (q *quiet) tick(ctx context.Context, w *Workspace) {
	seq := w.store.Tip().Seq
	still := seq == q.seq
	q.seq = seq
	if w.keep != nil && (still && q.kept != seq || seq > q.kept+farBehind) {
		if !q.busy.CompareAndSwap(false, true) {
			return
		}
		q.kept = seq
		w.background.Go(func() {
			defer q.busy.Store(false)
			w.keep(ctx, still)
		})
	}
}
