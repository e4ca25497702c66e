package gitstore

import (
	"path"
	"time"

	"umbra/gitstore/storedir"
)

// A git process lists the packs when it starts and opens each when it comes to
// it. One that is gone by then it finds elsewhere, but git-fsck(1) reports it:
// so superseded packs go while no other process is at work in the repository,
// and seldom, many at once. Where processes are always at work, readers cannot
// be waited for without end: hundreds of packs slow every git command down.
const (
	// manyDoomed is the number of superseded packs above which they need not
	// have their whole grace, but shortGrace; above tooManyDoomed no reader is
	// waited for.
	manyDoomed    = 64
	tooManyDoomed = 512
	shortGrace    = time.Minute
	// longGraces is how many graces a pack waits for others to end their work.
	longGraces = 6
)

// due gives the superseded packs that may go, and whether they must. grace is how
// long one stays.
func (ps *packSet) due(now time.Time, grace time.Duration) (due []*packFile, forced bool) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	doomed := 0
	for _, f := range ps.list {
		if !f.doomed.IsZero() {
			doomed++
		}
	}
	forced = doomed > tooManyDoomed
	for _, f := range ps.list {
		if f.doomed.IsZero() {
			continue
		}
		age := now.Sub(f.doomed)
		forced = forced || age >= longGraces*grace
		if age >= grace || doomed > manyDoomed && age >= min(shortGrace, grace) {
			due = append(due, f)
		}
	}
	return due, forced
}

// supersede begins the grace of packs, but for those that were linked again since
// collecting took them. The caller writes their notes.
func (ps *packSet) supersede(src []*packFile, now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, f := range src {
		if !f.revived {
			f.doomed = now
		}
	}
	ps.sort()
	ps.recent.Store(nil)
}

// doom begins the grace of packs that the one called by supersedes. A
// multi-pack-index that names them goes first: reads are as fast
// without it, and what reads through it from now on would miss them later.
func (ps *packSet) doom(src []*packFile, by string, now time.Time) error {
	names := make(map[string]bool)
	for _, f := range src {
		names[f.base] = f.base != by
	}
	if err := ps.dropMultiIndex(func(base string) bool { return names[base] }); err != nil {
		return err
	}
	for _, f := range src {
		if f.base == by {
			continue // the merge gave the same pack again
		}
		note := f.keep
		note.superseded = now.Unix()
		if err := ps.writeKeep(f.base, note); err != nil {
			return err
		}
		ps.mu.Lock()
		f.doomed = now
		ps.mu.Unlock()
	}
	ps.mu.Lock()
	ps.sort()
	ps.mu.Unlock()
	return nil
}

// writeKeep writes a pack's .keep.
func (ps *packSet) writeKeep(base string, note keepNote) error {
	return storedir.WriteFile(ps.fs, path.Join(storedir.Packs, base+".keep"), []byte(note.String()))
}

// noteOf gives a pack's note, and whether it was linked again since it was taken to be
// collected.
func (ps *packSet) noteOf(f *packFile) (note keepNote, revived bool) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return f.keep, f.revived
}

// collecting gives the packs in use and the superseded ones, each to be released by
// the caller. If mark is set, those in use are not merged until collected is called.
func (ps *packSet) collecting(mark bool) (used, old []*packFile) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, f := range ps.list {
		f.hold()
		if !f.doomed.IsZero() {
			old = append(old, f)
			continue
		}
		if mark {
			f.collected, f.revived = true, false
		}
		used = append(used, f)
	}
	return used, old
}

// collected ends what collecting began.
func (ps *packSet) collected(used []*packFile) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, f := range used {
		f.collected = false
	}
}

// dropSuperseded removes packs whose grace is over, with any multi-pack-index that
// names them.
func (ps *packSet) dropSuperseded(due []*packFile) error {
	names := make(map[string]bool)
	for _, f := range due {
		names[f.base] = true
	}
	// Another process may have made one during the grace.
	if err := ps.dropMultiIndex(func(base string) bool { return names[base] }); err != nil {
		return err
	}
	ps.forget(names)
	for _, f := range due {
		f.release()
		if err := storedir.Remove(ps.fs, storedir.Packs+"/"+f.base+storedir.Idx); err != nil {
			return err
		}
	}
	for _, f := range due {
		if err := ps.removePack(f.base); err != nil {
			return err
		}
	}
	return nil
}
