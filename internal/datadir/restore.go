package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"umbra/gitstore"
	"umbra/internal/backup"
	"umbra/internal/errs"
	"umbra/internal/progress"
	"umbra/internal/state"
	"umbra/internal/term"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
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
		Progress: func(r backup.Report) {
			if bar.Set != nil {
				bar.Set(int64(r.Files))
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
// cannot be opened is reported, and stays for a server or verify.
func publishRestored(ctx context.Context, dir string, stderr io.Writer) {
	list, err := os.ReadDir(filepath.Join(dir, "workspaces"))
	if err != nil {
		return // a backup of no workspaces
	}
	report := func(of string, err error) {
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(stderr, "umbra: stock git does not see the newest of %s yet: %s\n", of, errs.Sentence(err))
		}
	}
	p := publisher{dir: dir, parents: make(map[string]*gitstore.Store)}
	if p.forks, err = linkedForks(dir); err != nil {
		report("the workspaces", err)
		return
	}
	for _, f := range p.forks {
		p.parents[f.Fork.Of] = nil
	}
	for _, e := range list {
		if r, ok := p.forks[e.Name()]; ok && r.Fork.Unmade {
			continue // it has no commit of its own
		}
		s, err := p.open(ctx, e.Name())
		if err == nil && p.parents[e.Name()] == nil {
			err = s.Close(ctx)
		}
		report("workspace "+term.Name(e.Name()), err)
	}
	for _, id := range slices.Backward(p.order) {
		report("workspace "+term.Name(id), p.parents[id].Close(ctx))
	}
}

// publisher opens the stores of a restored data directory, each after the one that
// it continues.
type publisher struct {
	dir     string
	forks   map[string]workspaces.Record // by id
	parents map[string]*gitstore.Store   // those that forks continue; nil until opened
	order   []string                     // in which parents were opened
}

func (p *publisher) open(ctx context.Context, id string) (*gitstore.Store, error) {
	if s := p.parents[id]; s != nil {
		return s, nil
	}
	var base *gitstore.Base
	if r, ok := p.forks[id]; ok {
		parent, err := p.open(ctx, r.Fork.Of)
		if err != nil {
			return nil, err
		}
		if base, err = ForkBase(r.Fork, parent); err != nil {
			return nil, err
		}
	}
	files, err := vfs.OS(filepath.Join(p.dir, "workspaces", id))
	if err != nil {
		return nil, err
	}
	s, err := gitstore.Open(ctx, gitstore.Options{FS: files, Base: base, Foreground: true})
	if err != nil {
		return nil, err
	}
	if _, ok := p.parents[id]; ok {
		p.parents[id] = s
		p.order = append(p.order, id)
	}
	return s, nil
}

// linkedForks returns the records of the forks that continue their parent's history.
func linkedForks(dir string) (map[string]workspaces.Record, error) {
	db, err := state.Open(filepath.Join(dir, "state.db"))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	records, err := OpenRecords(db)
	if err != nil {
		return nil, err
	}
	all, err := records.All()
	forks := make(map[string]workspaces.Record)
	for _, r := range all {
		if r.Fork != nil && r.Fork.Linked {
			forks[r.ID] = r
		}
	}
	return forks, err
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
