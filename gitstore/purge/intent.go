package purge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"umbra/gitstore/journal"
	"umbra/gitstore/object"
	"umbra/gitstore/packset"
	"umbra/gitstore/records"
	"umbra/gitstore/refs"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// The steps of a purge. Up to the second one it is taken back: the new packs go.
// From then on it is finished: history is the rewritten one.
const (
	purgePrepared  = "prepared"
	purgeSwitching = "switching"
)

// purgeIntent is what the file `purge` holds, as JSON. It is there while a purge is at
// its switch: what it does is written down first, so that a start finishes it, or
// takes it back. All of it can be done again.
type purgeIntent struct {
	Step  string            `json:"step"`
	First uint64            `json:"first"` // number of the first changed commit
	Packs []string          `json:"packs"` // new ones, in objects/pack
	Drop  []string          `json:"drop"`  // packs whose every wanted object is elsewhere
	Moved int               `json:"moved"` // number of the map; it is in the journal folder until the switch
	Refs  []movedRef        `json:"refs"`  // ours, tasks' first
	Tags  map[string]string `json:"tags"`  // tasks' records, for their reflogs
	// Boundary is where history begins; empty where that stays.
	Boundary movedRef     `json:"boundary"`
	Others   othersIntent `json:"others"`
}

// movedRef is one of our refs and its values, in hexadecimal digits.
type movedRef struct {
	Name string `json:"name"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

func (r movedRef) ids() (old, now object.ID, err error) {
	if old, err = parseHex(r.Old); err == nil {
		now, err = parseHex(r.New)
	}
	return old, now, err
}

func (pr *Purger) readIntent() (*purgeIntent, error) {
	data, err := vfs.ReadFile(pr.FS, storedir.Intent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	in := &purgeIntent{}
	if err := json.Unmarshal(data, in); err != nil {
		return nil, fmt.Errorf("%s: %w", storedir.Intent, err)
	}
	return in, nil
}

// writeIntent puts the file there, durable with its name.
func (pr *Purger) writeIntent(in *purgeIntent) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := storedir.WriteFile(pr.FS, storedir.Intent, append(data, '\n')); err != nil {
		return err
	}
	return pr.FS.SyncDir(".")
}

func (pr *Purger) removeIntent() error {
	if err := storedir.Remove(pr.FS, storedir.Intent); err != nil {
		return err
	}
	return pr.FS.SyncDir(".")
}

// Resume finishes or takes back what a stop left of a purge. It runs before
// packs and journals are checked.
func (pr *Purger) Resume(ctx context.Context) (finished bool, err error) {
	in, err := pr.readIntent()
	if err != nil || in == nil {
		return false, err
	}
	// A process that was killed at the switch may not have synced it.
	if err := pr.FS.SyncDir("."); err != nil {
		return false, err
	}
	if in.Step != purgeSwitching {
		pr.Log.Warn("a purge was cut off before its switch; taken back")
		return false, pr.takeBack(in)
	}
	pr.Log.Warn("a purge was cut off; it is finished")
	ctx, cancel := context.WithTimeout(ctx, repo.LockPatience)
	defer cancel()
	err = pr.finishPurge(ctx, in)
	if _, locked := errors.AsType[*refs.LockedError](err); locked {
		pr.pending = in // the next publication meets it again
		return true, nil
	}
	return true, err
}

// Hide takes the packs that an unfinished purge is going to remove out of
// the set: nothing may be taken for standing in them.
func (pr *Purger) Hide() {
	if pr.pending == nil {
		return
	}
	packset.ReleaseAll(pr.Packs.Take(setOf(pr.pending.Drop)))
}

// takeBack removes what a purge had written before its switch.
func (pr *Purger) takeBack(in *purgeIntent) error {
	gone := setOf(in.Packs)
	if err := pr.Packs.DropMultiIndex(func(base string) bool { return gone[base] }); err != nil {
		return err
	}
	packset.ReleaseAll(pr.Packs.Take(gone))
	for _, base := range in.Packs {
		if err := pr.Packs.Remove(base); err != nil {
			return err
		}
	}
	if err := pr.removeAll(storedir.Moved + ".new"); err != nil {
		return err
	}
	return pr.removeIntent()
}

// finishPurge does what is left after the switch; each step may have been done
// already. Where it fails it is to be called again: a lock on a ref that
// another process holds is an error like others.
func (pr *Purger) finishPurge(ctx context.Context, in *purgeIntent) error {
	steps := []func(context.Context, *purgeIntent) error{pr.placeMap, pr.dropRecords, pr.dropGraphs, pr.noteRewritten, pr.widenShallow,
		pr.moveRewritten, pr.dropOthers, pr.narrowShallow, pr.dropPurged, pr.dropLeftovers}
	for _, step := range steps {
		if err := step(ctx, in); err != nil {
			return err
		}
	}
	return pr.removeIntent()
}

// placeMap gives the map of ids its name.
func (pr *Purger) placeMap(_ context.Context, in *purgeIntent) error {
	if err := pr.FS.Mkdir(storedir.Moved, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	name := storedir.MovedName(in.Moved)
	if err := pr.FS.Rename(purgeTemp(in.Moved), name); err != nil {
		if _, there := pr.FS.Lstat(name); there != nil {
			return err
		}
	}
	return errors.Join(pr.FS.SyncDir(storedir.Moved), pr.FS.SyncDir("."))
}

// purgeTemp is where a map is before the switch. A name that begins so is
// kept by a start as long as the intent is there.
func purgeTemp(n int) string { return path.Join(storedir.Moved+".new", fmt.Sprintf("%08d", n)) }

// dropGraphs removes the files that name removed commits: commit-graphs, and
// a multi-pack-index over packs that go.
func (pr *Purger) dropGraphs(_ context.Context, in *purgeIntent) error {
	if err := pr.DropCommitGraph(); err != nil {
		return err
	}
	gone := setOf(in.Drop)
	return pr.Packs.DropMultiIndex(func(base string) bool { return gone[base] })
}

// widenShallow makes the old boundary and the new one hold at once, while refs
// move from one to the other.
func (pr *Purger) widenShallow(ctx context.Context, in *purgeIntent) error {
	_, now, err := in.Boundary.ids()
	if err != nil || now.IsZero() {
		return err
	}
	return pr.Refs.SetShallow(ctx, func(lines []object.ID) []object.ID {
		if !slices.Contains(lines, now) {
			lines = append(lines, now)
		}
		return lines
	})
}

func (pr *Purger) narrowShallow(ctx context.Context, in *purgeIntent) error {
	old, now, err := in.Boundary.ids()
	if err != nil || now.IsZero() {
		return err
	}
	return pr.Refs.SetShallow(ctx, func(lines []object.ID) []object.ID {
		return slices.DeleteFunc(lines, func(id object.ID) bool { return id == old })
	})
}

// noteRewritten sets the ref log: a start begins there.
func (pr *Purger) noteRewritten(_ context.Context, in *purgeIntent) error {
	var values []refs.Value
	for _, r := range in.Refs {
		old, now, err := r.ids()
		if err != nil {
			return err
		}
		if noted, _ := pr.Note.Get(r.Name); noted == now {
			pr.Note.Expect(r.Name, old) // an earlier try may have been cut off here
		}
		values = append(values, refs.Value{Name: r.Name, ID: now})
	}
	if _, begin, err := in.Boundary.ids(); err != nil {
		return err
	} else if !begin.IsZero() {
		values = append(values, refs.Value{Name: refs.Boundary, ID: begin})
	}
	return pr.Note.Append(0, values...)
}

func (pr *Purger) moveRewritten(ctx context.Context, _ *purgeIntent) error {
	return refs.Join(pr.host.Project(ctx))
}

// dropRecords removes the commit index: it is read from history again. A
// running store makes its own again first.
func (pr *Purger) dropRecords(_ context.Context, in *purgeIntent) error {
	if pr.Index != nil {
		return errors.Join(pr.Index.Save(), pr.FS.SyncDir("."))
	}
	for _, name := range []string{records.File, records.FileNew, records.NamesFile, records.NamesNew} {
		if err := storedir.Remove(pr.FS, name); err != nil {
			return err
		}
	}
	return pr.FS.SyncDir(".")
}

// dropPurged removes the packs that hold what is purged, and nothing that is
// wanted and is nowhere else.
func (pr *Purger) dropPurged(_ context.Context, in *purgeIntent) error {
	gone := setOf(in.Drop)
	packset.ReleaseAll(pr.Packs.Take(gone))
	names, err := pr.FS.ReadDir(storedir.Packs)
	if err != nil {
		return err
	}
	// An index first, a .keep last, as removePack does; between them whatever
	// else git keeps next to a pack.
	order := func(name string) int {
		switch path.Ext(name) {
		case storedir.Idx:
			return 0
		case ".keep":
			return 2
		}
		return 1
	}
	slices.SortFunc(names, func(a, b vfs.DirEntry) int { return order(a.Name) - order(b.Name) })
	for _, e := range names {
		base, _, _ := strings.Cut(e.Name, ".")
		if !gone[base] {
			continue
		}
		if err := storedir.Remove(pr.FS, path.Join(storedir.Packs, e.Name)); err != nil {
			return err
		}
	}
	return pr.FS.SyncDir(storedir.Packs)
}

// dropLeftovers removes what nothing reads and what may still hold the bytes:
// journals that were put aside, damaged files, temporary ones of anybody's git.
func (pr *Purger) dropLeftovers(_ context.Context, _ *purgeIntent) error {
	if err := pr.removeAll(storedir.Damaged); err != nil {
		return err
	}
	if err := pr.removeAll(storedir.Moved + ".new"); err != nil {
		return err
	}
	if err := pr.removeMatching(journal.Dir, pr.leftover); err != nil {
		return err
	}
	git := func(name string) bool { return strings.HasPrefix(name, "tmp_") || strings.HasPrefix(name, ".tmp-") }
	if err := pr.removeMatching(storedir.Packs, git); err != nil {
		return err
	}
	objects, err := pr.FS.ReadDir(storedir.Repo + "/objects")
	if err != nil {
		return err
	}
	for _, e := range objects {
		name := path.Join(storedir.Repo, "objects", e.Name)
		switch {
		case e.Type.IsDir() && len(e.Name) == 2:
			err = pr.removeMatching(name, git)
		case git(e.Name):
			err = pr.removeAll(name) // also a quarantine's folder
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leftover reports whether a file of the journal folder is one that a failure
// left behind: a journal that is in a pack, one that was put aside.
func (pr *Purger) leftover(name string) bool {
	n, isJournal := journal.ParseName(name)
	switch {
	case strings.HasPrefix(name, "torn-"):
		return true
	case isJournal:
		return n <= pr.Note.Shown()
	}
	return storedir.StaleIdx(name, pr.Note.Shown())
}

// removeMatching removes the files of a folder for which match holds.
func (pr *Purger) removeMatching(dir string, match func(name string) bool) error {
	names, err := pr.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range names {
		if err == nil && match(e.Name) {
			err = storedir.Remove(pr.FS, path.Join(dir, e.Name))
		}
	}
	return err
}

// removeAll removes a file, or a folder with all that is in it; nothing there
// is no error.
func (pr *Purger) removeAll(name string) error { return vfs.RemoveAll(pr.FS, name) }

// GoOn goes on with a purge that could not be finished; publishing is held.
func (pr *Purger) GoOn(ctx context.Context) error {
	in := pr.pending
	if in == nil {
		return nil
	}
	err := pr.finishPurge(ctx, in)
	if locked, ok := errors.AsType[*refs.LockedError](err); ok {
		return &errs.Error{Kind: errs.Unavailable, Code: "ref_locked", Err: err,
			Detail: "Another process holds " + locked.Name + "; the purge is not finished, and what it removes is still on disk."}
	}
	if err == nil {
		pr.pending = nil
	}
	return errs.Wrap(err, "")
}
