// Package packset keeps the finished packs of a store: which there are, which are
// superseded and may go when, how one is written, linked and removed, and the
// multi-pack-index that may name them.
package packset

import (
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore/cache"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/remote"
	"umbra/gitstore/sink"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// File is one of our finished packs in objects/pack.
type File struct {
	Base   string // "pack-<40 hex digits>"
	Pack   *pack.Pack
	Count  int
	Keep   Keep
	Doomed time.Time // when its grace began; zero: in use
	// collected is set while Collect makes another pack of it: it is not merged
	// meanwhile. revived, if it was linked again since. Both by the set's mu.
	collected, revived bool
	// leaving is set while a merge gives its successor a name. By the set's mu.
	leaving bool

	// object is the pack's name in a sink's store; empty or nil: it has none.
	object atomic.Pointer[string]

	users   atomic.Int32 // readers, plus one while the set holds it
	closing sync.Once
}

// NewFile gives a pack that is held once.
func NewFile(base string, p *pack.Pack, count int) *File {
	f := &File{Base: base, Pack: p, Count: count}
	f.users.Store(1)
	return f
}

// Hold keeps the pack open until one more release.
func (f *File) Hold() { f.users.Add(1) }

// use gives the pack to a caller who releases it, or the error of looking into
// it.
func (f *File) use(err error) (*File, error) {
	if err != nil {
		return nil, err
	}
	f.users.Add(1)
	return f, nil
}

// Release gives up a hold on the pack; the last one closes it.
func (f *File) Release() {
	if f.users.Add(-1) == 0 {
		f.closing.Do(func() { f.Pack.Close() })
	}
}

// ReleaseAll releases packs.
func ReleaseAll(list []*File) {
	for _, f := range list {
		f.Release()
	}
}

// Set is our finished packs. Those of other people are never read: what
// they hold may be pruned at any time.
type Set struct {
	FS    vfs.FS
	Log   *slog.Logger
	Cache *cache.Budget                    // of the bases of deltas
	Warn  func(format string, args ...any) // a warning for the owner
	Held  *remote.Log                      // nil without a sink

	mu sync.RWMutex
	// list holds the packs in use, newest first, then the doomed ones.
	list []*File
	// recent is where the last object was found: the next one is most often in
	// the same pack, and with hundreds of them that is what a walk costs.
	recent atomic.Pointer[File]
	// damaged are our packs that the start could not open, but for those
	// without an index: a merge that was cut off leaves such.
	damaged map[string]bool
	// multiSeen is the multi-pack-index at the last look.
	multiSeen [2]vfs.Info
}

// SetStored notes which packs the log of a copy names, by File.Base.
func (ps *Set) SetStored(held map[string]sink.Pack) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	for _, f := range ps.list {
		f.SetStored(held[f.Base].Name)
	}
}

// Load opens the packs that have one of our .keep files. One without its index or
// with a damaged one is reported, and the start goes on: verify reports what is
// missing.
func (ps *Set) Load() error {
	ps.damaged = make(map[string]bool)
	names, err := ps.FS.ReadDir(storedir.Packs)
	if err != nil {
		return err
	}
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name, ".keep")
		if !ok {
			continue
		}
		text, err := vfs.ReadFile(ps.FS, path.Join(storedir.Packs, e.Name))
		if err != nil {
			return err
		}
		note, ours := ParseKeep(string(text))
		if !ours {
			continue
		}
		f, err := ps.Open(base)
		if errors.Is(err, fs.ErrNotExist) {
			// A .keep whose pack was not linked yet, or one that was being
			// removed when the server stopped.
			if note.Superseded != 0 {
				if err := ps.Remove(base); err != nil {
					return err
				}
			}
			continue
		}
		if errors.Is(err, pack.ErrCorrupt) {
			ps.Warn("pack %s is damaged", base)
			ps.damaged[base] = true
			continue
		}
		if err != nil {
			return err
		}
		if f.Keep = note; note.Superseded != 0 {
			f.Doomed = time.Unix(note.Superseded, 0)
		}
		ps.list = append(ps.list, f)
	}
	ps.sort()
	return nil
}

// Open opens a pack of the directory that need not be one of the set, to be released
// by the caller.
func (ps *Set) Open(base string) (*File, error) {
	name := path.Join(storedir.Packs, base)
	fsys, opt := ps.FS, pack.Options{MaxObject: object.MaxMeta, Cache: ps.Cache}
	if ps.Held != nil {
		if files, here := ps.Held.Files(fsys, base); !here {
			fsys, opt.Verify, opt.Near = files, true, name+remote.Near
		}
	}
	p, err := pack.Open(fsys, name+".pack", name+storedir.Idx, opt)
	if err != nil {
		return nil, err
	}
	return NewFile(base, p, p.Count()), nil
}

// sort puts large packs last among those in use: what was written lately is
// read most. The doomed ones come after all.
func (ps *Set) sort() {
	slices.SortStableFunc(ps.list, func(a, b *File) int {
		if a.Doomed.IsZero() != b.Doomed.IsZero() {
			if a.Doomed.IsZero() {
				return -1
			}
			return 1
		}
		return a.Count - b.Count
	})
}

// Add opens a pack that was just linked; one already there is left.
func (ps *Set) Add(base string, note Keep) error {
	f, err := ps.Open(base)
	if err != nil {
		return err
	}
	f.Keep = note
	f.object.Store(&note.Object)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.damaged, base)
	for _, g := range ps.list {
		if g.Base == base {
			f.Release()
			if note.Object != "" {
				g.object.Store(&note.Object)
			}
			// The same objects in the same order: what was to go is wanted again.
			g.Keep, g.Doomed, g.revived = note, time.Time{}, true
			ps.sort()
			return nil
		}
	}
	ps.list = append([]*File{f}, ps.list...)
	return nil
}

// Has reports whether a pack is in the set.
func (ps *Set) Has(base string) bool {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return slices.ContainsFunc(ps.list, func(f *File) bool { return f.Base == base })
}

// Broken lists the packs that could not be opened.
func (ps *Set) Broken() []string {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return slices.Sorted(maps.Keys(ps.damaged))
}

// Holding gives the pack that holds an object, to be released by the caller.
func (ps *Set) Holding(id object.ID) (*File, error) {
	f, _, err := ps.Locate(id)
	return f, err
}

// Locate is holding, and where the object's entry begins.
func (ps *Set) Locate(id object.ID) (*File, uint64, error) {
	f, off, partial, err := ps.locateNear(id)
	defer ReleaseAll(partial)
	if f != nil || err != nil {
		return f, off, err
	}
	// The set is not locked while an index is fetched.
	for _, f := range partial {
		if off, ok, err := f.Pack.Locate(id); ok || err != nil {
			f, err := f.use(err)
			return f, off, err
		}
	}
	return nil, 0, nil
}

// locateNear is like Locate, as far as that waits for nothing. partial are the packs that may
// have the object all the same, each to be released by the caller.
func (ps *Set) locateNear(id object.ID) (_ *File, off uint64, partial []*File, err error) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	recent := ps.recent.Load()
	if recent != nil && recent.Pack.Partial() {
		recent = nil // it is asked in its turn
	}
	if recent != nil {
		if off, ok, err := recent.Pack.Locate(id); ok || err != nil {
			f, err := recent.use(err)
			return f, off, nil, err
		}
	}
	for _, f := range ps.list {
		if f.Pack.Partial() {
			f.Hold()
			partial = append(partial, f)
		} else if f == recent {
			continue
		}
		if off, ok, err := f.Pack.LocateNear(id); ok || err != nil {
			ps.recent.Store(f)
			f, err := f.use(err)
			return f, off, partial, err
		}
	}
	return nil, 0, partial, nil
}

// HasObject reports whether a pack of the set holds an object.
func (ps *Set) HasObject(id object.ID) (bool, error) {
	f, err := ps.Holding(id)
	if f == nil || err != nil {
		return false, err
	}
	f.Release()
	return true, nil
}

// Forget takes packs out of the set; the set's hold on them is the caller's.
func (ps *Set) Forget(bases map[string]bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.list = slices.DeleteFunc(slices.Clone(ps.list), func(f *File) bool { return bases[f.Base] })
	ps.recent.Store(nil)
}

// Take takes packs out of the set, to be released by the caller.
func (ps *Set) Take(bases map[string]bool) (out []*File) {
	ps.mu.Lock()
	for _, f := range ps.list {
		if bases[f.Base] {
			out = append(out, f)
		}
	}
	ps.mu.Unlock()
	ps.Forget(bases)
	return out
}

// Superseded gives the packs whose grace has begun, each to be released by the
// caller.
func (ps *Set) Superseded() (out []*File) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	for _, f := range ps.list {
		if !f.Doomed.IsZero() {
			f.users.Add(1)
			out = append(out, f)
		}
	}
	return out
}

// Close releases the packs.
func (ps *Set) Close() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, f := range ps.list {
		f.Release()
	}
	ps.list = nil
	ps.recent.Store(nil)
}

// InUse gives the packs that are not doomed, smallest first, each to be
// released by the caller.
func (ps *Set) InUse() []*File {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	out := ps.bySize()
	for _, f := range out {
		f.users.Add(1)
	}
	return out
}

// bySize lists the packs that are not superseded, smallest first. Called with
// the lock.
func (ps *Set) bySize() []*File {
	var out []*File
	for _, f := range ps.list {
		if f.Doomed.IsZero() {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b *File) int { return a.Count - b.Count })
	return out
}

// Named gives a pack of the set, to be released by the caller; nil if it has
// none of that name.
func (ps *Set) Named(base string) *File {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	for _, f := range ps.list {
		if f.Base == base {
			f.users.Add(1)
			return f
		}
	}
	return nil
}

// Mergeable is inUse without what Collect is at work on.
func (ps *Set) Mergeable() []*File {
	return slices.DeleteFunc(ps.InUse(), func(f *File) bool {
		ps.mu.RLock()
		busy := f.collected
		ps.mu.RUnlock()
		if busy {
			f.Release()
		}
		return busy
	})
}

// Remove removes a pack, its index first: no process that opens the directory from
// then on loses a pack while it reads. The .keep goes last.
func (ps *Set) Remove(base string) error {
	if ps.Held != nil {
		if err := ps.Held.Drop(base); err != nil {
			return err
		}
	}
	for _, suffix := range []string{storedir.Idx, ".pack", ".keep"} {
		if err := ps.FS.Remove(path.Join(storedir.Packs, base+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Link gives a finished pack and index their names in objects/pack, under
// a .keep that is there first, makes all of it durable, and takes the pack
// into the set.
func (ps *Set) Link(packName, idxName string, sum [20]byte, note Keep) (base string, err error) {
	base = "pack-" + object.ID(sum).String()
	target := path.Join(storedir.Packs, base)
	if err := storedir.WriteFile(ps.FS, target+".keep", []byte(note.String())); err != nil {
		return "", err
	}
	for _, l := range [][2]string{{packName, target + ".pack"}, {idxName, target + storedir.Idx}} {
		if err := ps.FS.Link(l[0], l[1]); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	if err := ps.FS.SyncDir(storedir.Packs); err != nil {
		// A folder whose sync failed may call lost entries clean: they are made
		// again the next time. The .keep stays: without it a pack may be pruned.
		ps.FS.Remove(target + storedir.Idx)
		ps.FS.Remove(target + ".pack")
		return "", err
	}
	return base, ps.Add(base, note)
}

// Stored returns the name of the pack in a sink's store, empty if it has none.
func (f *File) Stored() string {
	if name := f.object.Load(); name != nil {
		return *name
	}
	return ""
}

// Ref describes a pack of the sink's store.
func (f *File) Ref() sink.Pack {
	return sink.Pack{Name: f.Stored(), Sum: object.ID(f.Pack.Checksum()), Size: f.Pack.PackBytes(), Idx: f.Pack.FileBytes() - f.Pack.PackBytes(),
		Count: uint32(f.Count), Through: f.Keep.Through}
}

// Bytes gives the size of the packs, of those that are superseded only if asked
// for.
func (ps *Set) Bytes(superseded bool) (n int64) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	for _, f := range ps.list {
		if superseded || f.Doomed.IsZero() && !f.leaving && !f.collected {
			n += f.Pack.FileBytes()
		}
	}
	return n
}

// Leave marks packs as on the way out: what supersedes them counts in their place.
func (ps *Set) Leave(list []*File, leaving bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, f := range list {
		f.leaving = leaving
	}
}

// All lists the packs of the set, for who is alone with it.
func (ps *Set) All() []*File { return ps.list }

// AnyDoomed reports whether any pack is superseded.
func (ps *Set) AnyDoomed() bool {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return slices.ContainsFunc(ps.list, func(f *File) bool { return !f.Doomed.IsZero() })
}

// Keeps reports whether a pack that is not superseded holds an object.
func (ps *Set) Keeps(id object.ID) (bool, error) {
	var list []*File
	ps.mu.RLock()
	for _, f := range ps.list {
		if f.Doomed.IsZero() {
			f.Hold()
			list = append(list, f)
		}
	}
	ps.mu.RUnlock()
	// The set is not locked while an index is fetched.
	defer ReleaseAll(list)
	for _, f := range list {
		if ok, err := f.Pack.Has(id); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// ForgetStored forgets the names in a sink's store for which gone holds.
func (ps *Set) ForgetStored(gone func(name string) bool) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	for _, f := range ps.list {
		if gone(f.Stored()) {
			f.object.Store(nil)
		}
	}
}

// SetStored notes the pack's name in a sink's store; empty: it has none.
func (f *File) SetStored(name string) { f.object.Store(&name) }
