package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"umbra/gitstore"
	"umbra/internal/backup"
	"umbra/internal/errs"
	"umbra/internal/progress"
	"umbra/internal/state"
	"umbra/internal/term"
	"umbra/internal/vfs"
)

// Restore makes the data directory; after an error what it made is gone.
func Restore(ctx context.Context, from, to string, stderr io.Writer) (rep backup.Report, err error) {
	if to, err = filepath.Abs(to); err != nil {
		return rep, err
	}
	src, err := vfs.OS(from)
	if err != nil {
		return rep, err
	}
	defer src.Close()
	unlock, err := backup.Lock(from)
	if err != nil {
		return rep, err
	}
	defer unlock()
	head, err := backup.ReadHeader(src)
	if err != nil {
		return rep, err
	}
	if n, err := strconv.Atoi(head.Format); err != nil || n < 1 || n > state.Format {
		return rep, &state.FormatError{Dir: from, Found: strconv.Quote(head.Format)}
	}
	unmake, err := makeFolder(to)
	if err != nil {
		return rep, err
	}
	defer func() {
		if err != nil {
			unmake()
		}
	}()
	unlockTo, err := backup.Lock(to)
	if err != nil {
		return rep, err
	}
	defer unlockTo()
	dst, err := vfs.OS(to)
	if err != nil {
		return rep, err
	}
	defer dst.Close()
	bar := progress.ShowCount("restore", stderr)
	defer bar.Done()
	rep, err = backup.Restore(ctx, backup.RestoreOptions{From: src, To: dst,
		Finish: func() error { return markRestored(filepath.Join(to, backup.StageDir, "state.db")) },
		Tell: func(r backup.Report) {
			if bar.Tell != nil {
				bar.Tell(int64(r.Files))
			}
		}})
	if err != nil {
		return rep, fmt.Errorf("%s: %w", to, errs.Sentence(err))
	}
	if err := os.Chmod(to, 0o700); err != nil {
		return rep, err
	}
	if head.Format == strconv.Itoa(state.Format) { // an older one is upgraded at the first start
		publishRestored(ctx, to, stderr)
	}
	return rep, nil
}

// publishRestored lets stock git see what the backup has in open journals. What
// cannot be opened is said, and stays for a server or verify to look at.
func publishRestored(ctx context.Context, dir string, stderr io.Writer) {
	list, err := os.ReadDir(filepath.Join(dir, "workspaces"))
	if err != nil {
		return // a backup of no workspaces
	}
	for _, e := range list {
		files, err := vfs.OS(filepath.Join(dir, "workspaces", e.Name()))
		if err == nil {
			var s *gitstore.Store
			if s, err = gitstore.Open(ctx, gitstore.Options{FS: files, Foreground: true}); err == nil {
				err = s.Close(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(stderr, "umbra: stock git does not see the newest of workspace %s yet: %s\n", term.Name(e.Name()), errs.Sentence(err))
		}
	}
}

// makeFolder makes a folder with those above it; unmake removes what it made.
func makeFolder(dir string) (unmake func(), err error) {
	var missing []string
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		missing = append(missing, at)
	}
	unmake = func() {
		for _, at := range missing {
			_ = os.Remove(at) // it stays if another process has put something there
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		unmake()
		return nil, err
	}
	return unmake, nil
}

// markRestored marks the workspaces' records as restored.
func markRestored(name string) (err error) {
	db, err := state.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	records, err := OpenRecords(db)
	if err != nil {
		return err
	}
	all, err := records.All()
	if err != nil {
		return err
	}
	for i := range all {
		all[i].Restored = true
	}
	return records.Put(all...)
}
