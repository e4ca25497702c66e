package vfs

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"sync"
)

// Deferred is an FS that notes syncs instead of doing them, until Flush: each file and
// directory is synced once then, all at the same time. It is for a directory that a
// crash before Flush leaves of no use, and whose maker removes it then.
type Deferred struct {
	FS
	top string // the name of its root from where the syncs are noted
	s   *deferral
}

type deferral struct {
	mu      sync.Mutex
	through bool
	files   map[string]bool // to be synced, by name from the top
	dirs    map[string]bool
}

// Defer returns f with its syncs deferred. Both share what is open; closing one closes
// the other.
func Defer(f FS) *Deferred {
	return &Deferred{FS: f, top: ".", s: &deferral{files: map[string]bool{}, dirs: map[string]bool{}}}
}

// flushes is how many syncs of a Flush are under way at once.
const flushes = 8

// Flush makes durable what is noted. Later syncs, also of files that are open, are done
// when they are called.
func (d *Deferred) Flush() (err error) {
	d.s.mu.Lock()
	d.s.through = true
	files, dirs := d.s.files, d.s.dirs
	d.s.files, d.s.dirs = nil, nil
	d.s.mu.Unlock()
	todo := make(chan func() error, len(files)+len(dirs))
	for name := range files {
		todo <- func() error {
			f, err := d.FS.Open(name)
			if err != nil {
				return err
			}
			return errors.Join(f.Sync(), f.Close())
		}
	}
	for name := range dirs {
		todo <- func() error { return d.FS.SyncDir(name) }
	}
	close(todo)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range flushes {
		wg.Go(func() {
			for do := range todo {
				if e := do(); e != nil {
					mu.Lock()
					err = errors.Join(err, e)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return err
}

// note calls do with the syncs that are noted, and reports whether they still are.
func (s *deferral) note(do func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.through {
		do()
	}
	return !s.through
}

func (d *Deferred) name(name string) string { return path.Join(d.top, name) }

// changed updates the notes for an entry that was renamed, or removed: to is empty.
func (d *Deferred) changed(from, to string) {
	d.s.note(func() {
		for _, m := range []map[string]bool{d.s.files, d.s.dirs} {
			for name := range m {
				rest, under := strings.CutPrefix(name, from)
				if !under || rest != "" && rest[0] != '/' {
					continue
				}
				delete(m, name)
				if to != "" {
					m[to+rest] = true
				}
			}
		}
	})
}

// SyncDir implements FS.
func (d *Deferred) SyncDir(name string) error {
	if d.s.note(func() { d.s.dirs[d.name(name)] = true }) {
		return nil
	}
	return d.FS.SyncDir(name)
}

// Open implements FS.
func (d *Deferred) Open(name string) (File, error) { return d.opened(name)(d.FS.Open(name)) }

// OpenFile implements FS.
func (d *Deferred) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	return d.opened(name)(d.FS.OpenFile(name, flag, perm))
}

// CreateUnlinked implements FS.
func (d *Deferred) CreateUnlinked(dir string, perm fs.FileMode) (File, error) {
	return d.opened("")(d.FS.CreateUnlinked(dir, perm))
}

// LinkFile implements FS.
func (d *Deferred) LinkFile(f File, name string) error {
	own, ok := f.(*deferredFile)
	if ok {
		f = own.File
	}
	if err := d.FS.LinkFile(f, name); err != nil || !ok {
		return err
	}
	own.named(d.name(name))
	return nil
}

// Rename implements FS.
func (d *Deferred) Rename(oldname, newname string) error {
	return d.renamed(oldname, newname, d.FS.Rename(oldname, newname))
}

// RenameNoReplace implements FS.
func (d *Deferred) RenameNoReplace(oldname, newname string) error {
	return d.renamed(oldname, newname, d.FS.RenameNoReplace(oldname, newname))
}

func (d *Deferred) renamed(oldname, newname string, err error) error {
	if err == nil {
		d.changed(d.name(newname), "")
		d.changed(d.name(oldname), d.name(newname))
	}
	return err
}

// Exchange implements FS.
func (d *Deferred) Exchange(a, b string) error {
	err := d.FS.Exchange(a, b)
	if err == nil {
		d.changed(d.name(a), "\x00")
		d.changed(d.name(b), d.name(a))
		d.changed("\x00", d.name(b))
	}
	return err
}

// Remove implements FS.
func (d *Deferred) Remove(name string) error {
	err := d.FS.Remove(name)
	if err == nil {
		d.changed(d.name(name), "")
	}
	return err
}

// Sub implements FS.
func (d *Deferred) Sub(dir string) (FS, error) {
	sub, err := d.FS.Sub(dir)
	if err != nil {
		return nil, err
	}
	return &Deferred{FS: sub, top: d.name(dir), s: d.s}, nil
}

func (d *Deferred) opened(name string) func(File, error) (File, error) {
	return func(f File, err error) (File, error) {
		if err != nil {
			return nil, err
		}
		own := &deferredFile{File: f, s: d.s}
		if name != "" {
			own.name = d.name(name)
		}
		return own, nil
	}
}

type deferredFile struct {
	File
	s     *deferral
	name  string // "": none yet; s.mu
	asked bool   // a sync while it had none; s.mu
}

func (f *deferredFile) named(name string) {
	f.s.note(func() {
		if f.name = name; f.asked {
			f.s.files[name] = true
		}
	})
}

func (f *deferredFile) later() bool {
	return f.s.note(func() {
		if f.name == "" {
			f.asked = true
		} else {
			f.s.files[f.name] = true
		}
	})
}

// Sync implements File.
func (f *deferredFile) Sync() error {
	if f.later() {
		return nil
	}
	return f.File.Sync()
}

// Datasync implements File.
func (f *deferredFile) Datasync() error {
	if f.later() {
		return nil
	}
	return f.File.Datasync()
}

// StartWriteout implements File.
func (f *deferredFile) StartWriteout() error {
	if f.s.note(func() {}) {
		return nil
	}
	return f.File.StartWriteout()
}
