package gitstore

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"umbra/gitstore/journal"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// Frozen is a store as it was at one moment: what a copy of it needs. Files are
// whole; Packs are names, and the packs themselves are to be read after. A pack
// never changes; one that is gone by then was merged into another, and Freeze is
// to be called again.
type Frozen struct {
	Tip   Tip
	Files []FrozenFile // below the store's folder
	Packs []string     // names of packs and their indexes, below the same
}

// FrozenFile is a small file: the note, a journal, a ref, a reflog, a .keep, what a
// purge is at that waits for a ref's lock.
type FrozenFile struct {
	Name string
	Data []byte
}

// freezeTries bounds how often a moment is looked for in which no large blob
// waits to be shown.
const freezeTries = 20

// Freeze gives a moment of the store that has everything that was acknowledged
// before the call. Writers go on meanwhile; only what lets stock git see their
// commits waits for as long as the refs are read.
func (s *Store) Freeze(ctx context.Context) (*Frozen, error) {
	if err := s.r.Whole(ctx); err != nil {
		return nil, err
	}
	p := &s.pub
	s.r.Publishing.Lock()
	defer s.r.Publishing.Unlock()
	for range freezeTries {
		// The less the journals hold, the less is read into memory. A lock on a ref
		// that another process holds does not matter: ref log and journals are complete.
		lctx, cancel := context.WithTimeout(ctx, repo.LockPatience)
		_, err := p.publishLocked(lctx)
		cancel()
		if ctx.Err() != nil {
			return nil, errs.Wrap(context.Cause(ctx), "")
		}
		if err != nil {
			s.r.Log.Warn("freezing what is not published", "error", err)
		}
		f, again, err := s.freeze()
		if err != nil || !again {
			return f, errs.Wrap(err, "")
		}
	}
	return nil, errs.New(errs.Unavailable, "busy", "Large files are being written without a pause; try again.")
}

// freeze takes one moment; again says that it is not a good one. publishing is held.
func (s *Store) freeze() (f *Frozen, again bool, err error) {
	f = &Frozen{}
	s.r.Committing.Lock()
	f.Tip = *s.r.Head.Load()
	live := *s.r.Live.Load()
	ends := make([]int64, len(live))
	for i, j := range live {
		ends[i] = j.Used()
	}
	again = s.r.Large.Waits()
	// After the tip: what it needs is in one of them, or in a journal.
	for _, g := range s.r.Packs.InUse() {
		f.Packs = append(f.Packs, path.Join(storedir.Packs, g.Base+".pack"), path.Join(storedir.Packs, g.Base+storedir.Idx))
		f.Files = append(f.Files, FrozenFile{path.Join(storedir.Packs, g.Base+".keep"), []byte(g.Keep.String())})
		g.Release()
	}
	s.r.Committing.Unlock()
	if again {
		return nil, true, nil
	}
	seen := map[string]bool{s.logs.set.NextName(): true}
	for i, j := range live {
		seen[j.Name] = true
		data, ok, err := j.Head(ends[i])
		if err != nil {
			return nil, false, err
		}
		if !ok {
			return nil, true, nil // a disk error had it replaced
		}
		if ends[i] > journal.HeaderLen {
			f.Files = append(f.Files, FrozenFile{j.Name, data})
		}
	}
	if err := s.freezeClosed(f, seen); err != nil {
		return nil, false, err
	}
	// An intent exists here only for a purge that waits for a ref's lock: a copy
	// finishes it when it is opened.
	for _, name := range []string{"refs", storedir.Dropped, storedir.Intent} {
		if err := f.add(s.r.FS, name); err != nil {
			return nil, false, err
		}
	}
	// Loose refs before packed ones: one that goes over meanwhile is in both.
	for _, dir := range []string{storedir.Repo + "/refs", storedir.Repo + "/logs"} {
		if err := f.addTree(s.r.FS, dir); err != nil {
			return nil, false, err
		}
	}
	for _, name := range []string{"HEAD", "packed-refs", "shallow"} {
		if err := f.add(s.r.FS, storedir.Repo+"/"+name); err != nil {
			return nil, false, err
		}
	}
	return f, false, nil
}

// freezeClosed adds journals that are packs already, but that the ref log does not
// include, since it could not be written.
func (s *Store) freezeClosed(f *Frozen, seen map[string]bool) error {
	names, err := s.r.FS.ReadDir(journal.Dir)
	if err != nil {
		return err
	}
	for _, e := range names {
		name := path.Join(journal.Dir, e.Name)
		n, ok := journal.ParseName(e.Name)
		if !ok || n <= s.r.Note.Shown() || seen[name] || n > s.pub.closed {
			continue // shown, taken already, or not used before this moment
		}
		if err := f.add(s.r.FS, name); err != nil {
			return err
		}
	}
	return nil
}

// add reads a file, if it is there.
func (f *Frozen) add(fsys vfs.FS, name string) error {
	data, err := vfs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		f.Files = append(f.Files, FrozenFile{name, data})
	}
	return err
}

// addTree reads all files below a folder, but locks of git's.
func (f *Frozen) addTree(fsys vfs.FS, dir string) error {
	list, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		name := path.Join(dir, e.Name)
		switch {
		case e.Type.IsDir():
			err = f.addTree(fsys, name)
		case e.Type.IsRegular() && !strings.HasSuffix(e.Name, ".lock"):
			err = f.add(fsys, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
