package packset

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
	// LongGraces is how many graces a pack waits for others to end their work.
	LongGraces = 6
)

// Due gives the superseded packs that may go, and whether they must. grace is how
// long one stays.
func (ps *Set) Due(now time.Time, grace time.Duration) (due []*File, forced bool) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	doomed := 0
	for _, f := range ps.list {
		if !f.Doomed.IsZero() {
			doomed++
		}
	}
	forced = doomed > tooManyDoomed
	for _, f := range ps.list {
		if f.Doomed.IsZero() {
			continue
		}
		age := now.Sub(f.Doomed)
		forced = forced || age >= LongGraces*grace
		if age >= grace || doomed > manyDoomed && age >= min(shortGrace, grace) {
			due = append(due, f)
		}
	}
	return due, forced
}

// Supersede begins the grace of packs, but for those that were linked again since
// collecting took them. The caller writes their notes.
func (ps *Set) Supersede(src []*File, now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, f := range src {
		if !f.revived {
			f.Doomed = now
		}
	}
	ps.sort()
	ps.recent.Store(nil)
}

// Doom begins the grace of packs that the one called by supersedes. A
// multi-pack-index that names them goes first: reads are as fast
// without it, and what reads through it from now on would miss them later.
func (ps *Set) Doom(src []*File, by string, now time.Time) error {
	names := make(map[string]bool)
	for _, f := range src {
		names[f.Base] = f.Base != by
	}
	if err := ps.DropMultiIndex(func(base string) bool { return names[base] }); err != nil {
		return err
	}
	for _, f := range src {
		if f.Base == by {
			continue // the merge gave the same pack again
		}
		note := f.Keep
		note.Superseded = now.Unix()
		if err := ps.WriteKeep(f.Base, note); err != nil {
			return err
		}
		ps.mu.Lock()
		f.Doomed = now
		ps.mu.Unlock()
	}
	ps.mu.Lock()
	ps.sort()
	ps.mu.Unlock()
	return nil
}

// WriteKeep writes a pack's .keep.
func (ps *Set) WriteKeep(base string, note Keep) error {
	return storedir.WriteFile(ps.FS, path.Join(storedir.Packs, base+".keep"), []byte(note.String()))
}

// NoteOf gives a pack's note, and whether it was linked again since it was taken to be
// collected.
func (ps *Set) NoteOf(f *File) (note Keep, revived bool) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return f.Keep, f.revived
}

// Collecting gives the packs in use and the superseded ones, each to be released by
// the caller. If mark is set, those in use are not merged until collected is called.
func (ps *Set) Collecting(mark bool) (used, old []*File) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, f := range ps.list {
		f.Hold()
		if !f.Doomed.IsZero() {
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

// Collected ends what collecting began.
func (ps *Set) Collected(used []*File) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, f := range used {
		f.collected = false
	}
}

// DropSuperseded removes packs whose grace is over, with any multi-pack-index that
// names them.
func (ps *Set) DropSuperseded(due []*File) error {
	names := make(map[string]bool)
	for _, f := range due {
		names[f.Base] = true
	}
	// Another process may have made one during the grace.
	if err := ps.DropMultiIndex(func(base string) bool { return names[base] }); err != nil {
		return err
	}
	ps.Forget(names)
	for _, f := range due {
		f.Release()
		if err := storedir.Remove(ps.FS, storedir.Packs+"/"+f.Base+storedir.Idx); err != nil {
			return err
		}
	}
	for _, f := range due {
		if err := ps.Remove(f.Base); err != nil {
			return err
		}
	}
	return nil
}
