package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"umbra/gitstore/journal"
	"umbra/gitstore/packset"
	"umbra/gitstore/records"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// Base is the history of another store that a store continues: a fork's. The
// fork's own commits follow the one at At with the same numbers as they would
// have there. Objects of the base are read through its store, and by git through
// objects/info/alternates (gitrepository-layout(5)); nothing is copied.
//
// The store stays open for as long as the one that is based on it. Its history
// keeps its beginning and its ids meanwhile: no Retain, no Purge.
type Base struct {
	Store *Store
	At    ID // a commit of it
	// Alternate is the line of objects/info/alternates: the path of the base's
	// objects directory, relative to that of the store.
	Alternate string
}

// alternatesFile names the object directories that git reads too.
const alternatesFile = storedir.Repo + "/objects/info/alternates"

// openBase looks up the base's commit and makes git see the base's objects.
func (s *Store) openBase(ctx context.Context) error {
	b := s.opt.Base
	if b == nil {
		return nil
	}
	c, err := b.Store.ReadCommit(ctx, b.At)
	if err != nil {
		return fmt.Errorf("the commit that the fork begins at: %w", err)
	}
	s.r.Base = &repo.ForkPoint{Repo: b.Store.r, Seq: c.Seq, At: b.At}
	return s.writeAlternates(b.Alternate + "\n")
}

// writeAlternates gives objects/info/alternates this content, durably; it is left
// alone where it has it.
func (s *Store) writeAlternates(text string) error {
	now, err := vfs.ReadFile(s.r.FS, alternatesFile)
	if err == nil && string(now) == text || errors.Is(err, fs.ErrNotExist) && text == "" {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := path.Dir(alternatesFile)
	if err := s.r.FS.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if text == "" {
		err = s.r.FS.Remove(alternatesFile)
	} else {
		err = storedir.WriteFile(s.r.FS, alternatesFile, []byte(text))
	}
	if err != nil {
		return err
	}
	return s.r.FS.SyncDir(dir)
}

// startFromBase begins a history that has no commit of its own yet.
func (s *Store) startFromBase(ctx context.Context) error {
	if err := s.startFrom(ctx, s.opt.Base.At); err != nil {
		return err
	}
	b := s.r.Base.Boundary()
	if b.Whole() || s.r.Begins.Load() != nil {
		return nil
	}
	s.r.Begins.Store(&b) // what the base dropped is not the fork's either
	return s.r.ShallowAt(ctx, b)
}

// Detach makes the fork in a directory a store of its own: it gets copies of all
// packs of the store that it continues. The fork's store must not be open. A run that was cut off is repeated.
func (s *Store) Detach(ctx context.Context, fork vfs.FS) error {
	if err := s.Publish(ctx); err != nil {
		return err
	}
	for at := s; at != nil; at = at.under() {
		if err := at.lendPacks(fork); err != nil {
			return err
		}
	}
	if err := fork.SyncDir(storedir.Packs); err != nil {
		return err
	}
	for _, name := range []string{records.File, records.NamesFile} { // they begin at the fork
		if err := fork.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := fork.Remove(alternatesFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fork.SyncDir(path.Dir(alternatesFile))
}

// Absorb puts all packs of the stores that a fork continues into its own part of the
// sink's store: opened without its base it is a store of its own. It may be repeated.
func (s *Store) Absorb(ctx context.Context) error {
	s.r.Upkeep.Maintaining.Lock()
	defer s.r.Upkeep.Maintaining.Unlock()
	for at := s.under(); at != nil; at = at.under() {
		if err := errors.Join(at.Publish(ctx), at.lendPacks(s.r.FS)); err != nil {
			return err
		}
		used := at.r.Packs.InUse()
		defer func() { packset.ReleaseAll(used) }()
		for _, f := range used {
			if err := s.r.Packs.Add(f.Base, packset.Keep{Through: f.Keep.Through}); err != nil {
				return err
			}
		}
	}
	s.alone = true
	return s.sealLocked(ctx)
}

// under gives the store that this one continues.
func (s *Store) under() *Store {
	if s.r.Base == nil {
		return nil
	}
	return s.opt.Base.Store
}

// lendPacks copies the store's packs into another's directory.
func (s *Store) lendPacks(to vfs.FS) error {
	used := s.r.Packs.InUse()
	defer func() { packset.ReleaseAll(used) }()
	for _, f := range used {
		name := path.Join(storedir.Packs, f.Base)
		if _, err := to.Lstat(name + storedir.Idx); err == nil {
			continue
		}
		if err := journal.CopyFile(to, name+".keep", strings.NewReader(f.Keep.String())); err != nil {
			return err
		}
		for _, suffix := range []string{".pack", storedir.Idx} { // the index last: with it the pack counts
			from, err := s.r.FS.Open(name + suffix)
			if err != nil {
				return err
			}
			if err := errors.Join(journal.CopyFile(to, name+suffix, from), from.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}
