package gitstore

import (
	"errors"
	"io/fs"
	"log/slog"
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

// packFile is one of our finished packs in objects/pack.
type packFile struct {
	base   string // "pack-<40 hex digits>"
	p      *pack.Pack
	count  int
	keep   keepNote
	doomed time.Time // when its grace began; zero: in use
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

// newFile gives a pack that is held once.
func newFile(base string, p *pack.Pack, count int) *packFile {
	f := &packFile{base: base, p: p, count: count}
	f.users.Store(1)
	return f
}

// hold keeps the pack open until one more release.
func (f *packFile) hold() { f.users.Add(1) }

// use gives the pack to a caller who releases it, or the error of looking into
// it.
func (f *packFile) use(err error) (*packFile, error) {
	if err != nil {
		return nil, err
	}
	f.users.Add(1)
	return f, nil
}

func (f *packFile) release() {
	if f.users.Add(-1) == 0 {
		f.closing.Do(func() { f.p.Close() })
	}
}

func releaseAll(list []*packFile) {
	for _, f := range list {
		f.release()
	}
}

// packSet is our finished packs. Those of other people are never read: what
// they hold may be pruned at any time.
type packSet struct {
	fs    vfs.FS
	log   *slog.Logger
	cache *cache.Budget                    // of the bases of deltas
	warn  func(format string, args ...any) // tells the owner
	held  *remote.Log                      // nil without a sink

	mu sync.RWMutex
	// list holds the packs in use, newest first, then the doomed ones.
	list []*packFile
	// recent is where the last object was found: the next one is most often in
	// the same pack, and with hundreds of them that is what a walk costs.
	recent atomic.Pointer[packFile]
	// damaged are our packs that the start could not open, but for those
	// without an index: a merge that was cut off leaves such.
	damaged map[string]bool
	// multiSeen is the multi-pack-index at the last look.
	multiSeen [2]vfs.Info
}

// load opens the packs that have one of our .keep files. One without its index or
// with a damaged one is reported, and the start goes on: verify reports what is
// missing.
func (ps *packSet) load() error {
	ps.damaged = make(map[string]bool)
	names, err := ps.fs.ReadDir(storedir.Packs)
	if err != nil {
		return err
	}
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name, ".keep")
		if !ok {
			continue
		}
		text, err := vfs.ReadFile(ps.fs, path.Join(storedir.Packs, e.Name))
		if err != nil {
			return err
		}
		note, ours := parseKeep(string(text))
		if !ours {
			continue
		}
		f, err := ps.open(base)
		if errors.Is(err, fs.ErrNotExist) {
			// A .keep whose pack was not linked yet, or one that was being
			// removed when the server stopped.
			if note.superseded != 0 {
				if err := ps.removePack(base); err != nil {
					return err
				}
			}
			continue
		}
		if errors.Is(err, pack.ErrCorrupt) {
			ps.warn("pack %s is damaged", base)
			ps.damaged[base] = true
			continue
		}
		if err != nil {
			return err
		}
		if f.keep = note; note.superseded != 0 {
			f.doomed = time.Unix(note.superseded, 0)
		}
		ps.list = append(ps.list, f)
	}
	ps.sort()
	return nil
}

func (ps *packSet) open(base string) (*packFile, error) {
	name := path.Join(storedir.Packs, base)
	fsys, here := ps.fs, true
	if ps.held != nil {
		fsys, here = ps.held.Files(fsys, base)
	}
	p, err := pack.Open(fsys, name+".pack", name+storedir.Idx, pack.Options{MaxObject: object.MaxMeta, Cache: ps.cache, Verify: !here})
	if err != nil {
		return nil, err
	}
	return newFile(base, p, p.Idx().Count()), nil
}

// sort puts large packs last among those in use: what was written lately is
// read most. The doomed ones come after all.
func (ps *packSet) sort() {
	slices.SortStableFunc(ps.list, func(a, b *packFile) int {
		if a.doomed.IsZero() != b.doomed.IsZero() {
			if a.doomed.IsZero() {
				return -1
			}
			return 1
		}
		return a.count - b.count
	})
}

// add opens a pack that was just linked; one already there is left.
func (ps *packSet) add(base string, note keepNote) error {
	f, err := ps.open(base)
	if err != nil {
		return err
	}
	f.keep = note
	f.object.Store(&note.object)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.damaged, base)
	for _, g := range ps.list {
		if g.base == base {
			f.release()
			if note.object != "" {
				g.object.Store(&note.object)
			}
			// The same objects in the same order: what was to go is wanted again.
			g.keep, g.doomed, g.revived = note, time.Time{}, true
			ps.sort()
			return nil
		}
	}
	ps.list = append([]*packFile{f}, ps.list...)
	return nil
}

// has reports whether a pack is in the set.
func (ps *packSet) has(base string) bool {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return slices.ContainsFunc(ps.list, func(f *packFile) bool { return f.base == base })
}

// broken lists the packs that could not be opened.
func (ps *packSet) broken() []string {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	var out []string
	for base := range ps.damaged {
		out = append(out, base)
	}
	slices.Sort(out)
	return out
}

// holding gives the pack that holds an object, to be released by the caller.
func (ps *packSet) holding(id object.ID) (*packFile, error) {
	f, _, err := ps.locate(id)
	return f, err
}

// locate is holding, and where the object's entry begins.
func (ps *packSet) locate(id object.ID) (*packFile, uint64, error) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	recent := ps.recent.Load()
	if recent != nil {
		if off, ok, err := recent.p.Locate(id); ok || err != nil {
			f, err := recent.use(err)
			return f, off, err
		}
	}
	for _, f := range ps.list {
		if f == recent {
			continue
		}
		if off, ok, err := f.p.Locate(id); ok || err != nil {
			ps.recent.Store(f)
			f, err := f.use(err)
			return f, off, err
		}
	}
	return nil, 0, nil
}

// hasObject reports whether a pack of the set holds an object.
func (ps *packSet) hasObject(id object.ID) (bool, error) {
	f, err := ps.holding(id)
	if f == nil || err != nil {
		return false, err
	}
	f.release()
	return true, nil
}

// forget takes packs out of the set; the set's hold on them is the caller's.
func (ps *packSet) forget(bases map[string]bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.list = slices.DeleteFunc(slices.Clone(ps.list), func(f *packFile) bool { return bases[f.base] })
	ps.recent.Store(nil)
}

// take takes packs out of the set, to be released by the caller.
func (ps *packSet) take(bases map[string]bool) (out []*packFile) {
	ps.mu.Lock()
	for _, f := range ps.list {
		if bases[f.base] {
			out = append(out, f)
		}
	}
	ps.mu.Unlock()
	ps.forget(bases)
	return out
}

// superseded gives the packs whose grace has begun, each to be released by the
// caller.
func (ps *packSet) superseded() (out []*packFile) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	for _, f := range ps.list {
		if !f.doomed.IsZero() {
			f.users.Add(1)
			out = append(out, f)
		}
	}
	return out
}

func (ps *packSet) close() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, f := range ps.list {
		f.release()
	}
	ps.list = nil
	ps.recent.Store(nil)
}

// inUse gives the packs that are not doomed, smallest first, each to be
// released by the caller.
func (ps *packSet) inUse() []*packFile {
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
func (ps *packSet) bySize() []*packFile {
	var out []*packFile
	for _, f := range ps.list {
		if f.doomed.IsZero() {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b *packFile) int { return a.count - b.count })
	return out
}

// named gives a pack of the set, to be released by the caller; nil if it has
// none of that name.
func (ps *packSet) named(base string) *packFile {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	for _, f := range ps.list {
		if f.base == base {
			f.users.Add(1)
			return f
		}
	}
	return nil
}

// mergeable is inUse without what Collect is at work on.
func (ps *packSet) mergeable() []*packFile {
	return slices.DeleteFunc(ps.inUse(), func(f *packFile) bool {
		ps.mu.RLock()
		busy := f.collected
		ps.mu.RUnlock()
		if busy {
			f.release()
		}
		return busy
	})
}

// removePack removes a pack, its index first: no process that opens the directory from
// then on loses a pack while it reads. The .keep goes last.
func (ps *packSet) removePack(base string) error {
	if ps.held != nil {
		if err := ps.held.Drop(base); err != nil {
			return err
		}
	}
	for _, suffix := range []string{storedir.Idx, ".pack", ".keep"} {
		if err := ps.fs.Remove(path.Join(storedir.Packs, base+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// linkPack gives a finished pack and index their names in objects/pack, under
// a .keep that is there first, makes all of it durable, and takes the pack
// into the set.
func (ps *packSet) linkPack(packName, idxName string, sum [20]byte, note keepNote) (base string, err error) {
	base = "pack-" + object.ID(sum).String()
	target := path.Join(storedir.Packs, base)
	if err := storedir.WriteFile(ps.fs, target+".keep", []byte(note.String())); err != nil {
		return "", err
	}
	for _, l := range [][2]string{{packName, target + ".pack"}, {idxName, target + storedir.Idx}} {
		if err := ps.fs.Link(l[0], l[1]); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	if err := ps.fs.SyncDir(storedir.Packs); err != nil {
		// A folder whose sync failed may call lost entries clean: they are made
		// again the next time. The .keep stays: without it a pack may be pruned.
		ps.fs.Remove(target + storedir.Idx)
		ps.fs.Remove(target + ".pack")
		return "", err
	}
	return base, ps.add(base, note)
}

// stored returns the name of the pack in a sink's store, empty if it has none.
func (f *packFile) stored() string {
	if name := f.object.Load(); name != nil {
		return *name
	}
	return ""
}

// ref describes a pack of the sink's store.
func (f *packFile) ref() sink.Pack {
	sum, _ := f.p.Checksum()
	return sink.Pack{Name: f.stored(), Sum: object.ID(sum), Size: f.p.PackBytes(), Idx: f.p.FileBytes() - f.p.PackBytes(),
		Count: uint32(f.count), Through: f.keep.through}
}

// bytes gives the size of the packs, of those that are superseded only if asked
// for.
func (ps *packSet) bytes(superseded bool) (n int64) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	for _, f := range ps.list {
		if superseded || f.doomed.IsZero() && !f.leaving && !f.collected {
			n += f.p.FileBytes()
		}
	}
	return n
}

// leave marks packs as on the way out: what supersedes them counts in their place.
func (ps *packSet) leave(list []*packFile, leaving bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, f := range list {
		f.leaving = leaving
	}
}

// all lists the packs of the set, for who is alone with it.
func (ps *packSet) all() []*packFile { return ps.list }

// anyDoomed reports whether any pack is superseded.
func (ps *packSet) anyDoomed() bool {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return slices.ContainsFunc(ps.list, func(f *packFile) bool { return !f.doomed.IsZero() })
}

// keeps reports whether a pack that is not superseded holds an object.
func (ps *packSet) keeps(id object.ID) (bool, error) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	for _, f := range ps.list {
		if !f.doomed.IsZero() {
			continue
		}
		if ok, err := f.p.Has(id); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// forgetStored forgets the names in a sink's store for which gone holds.
func (ps *packSet) forgetStored(gone func(name string) bool) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	for _, f := range ps.list {
		if gone(f.stored()) {
			f.object.Store(nil)
		}
	}
}

// setStored notes the pack's name in a sink's store; empty: it has none.
func (f *packFile) setStored(name string) { f.object.Store(&name) }
