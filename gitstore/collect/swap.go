package collect

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"umbra/gitstore/object"
	"umbra/gitstore/packset"
	"umbra/gitstore/reach"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// manyBehind is how many commits the last look may have to catch up with while
// no other can be made; lastLooks bounds the looks before it.
const (
	manyBehind = 16
	lastLooks  = 8
)

// swap puts the new packs in the place of those they were made of. A commit
// since the marks were set may need an object that was not needed
// then, a revert's blob above all: checks are repeated until few commits are left,
// and the last one while no commit is made.
func (c *collector) swap() error {
	s := c.s
	gone := make(map[string]bool)
	var src []*packset.File
	for i, f := range c.used {
		if c.from[i] && !slices.Contains(c.made, f) {
			gone[f.Base] = true
			src = append(src, f)
		}
	}
	if len(src) == 0 {
		return nil
	}
	for range lastLooks {
		if s.Tip().Seq <= c.tip.Seq+manyBehind {
			break
		}
		if err := c.catchUp(); err != nil {
			return err
		}
	}
	s.Upkeep.Maintaining.Lock()
	defer s.Upkeep.Maintaining.Unlock()
	// A multi-pack-index that names them goes first: reads are as fast
	// without it, and what reads through it would miss them later.
	if err := s.Packs.DropMultiIndex(func(base string) bool { return gone[base] }); err != nil {
		return err
	}
	when, err := c.supersede(src)
	if err != nil {
		return err
	}
	for _, f := range src {
		note, revived := s.Packs.NoteOf(f)
		if revived {
			continue
		}
		note.Superseded = when.Unix()
		if err := s.Packs.WriteKeep(f.Base, note); err != nil {
			return err
		}
	}
	return nil
}

// supersede takes the last look, and makes the packs superseded ones, while no
// commit is made.
func (c *collector) supersede(src []*packset.File) (when time.Time, err error) {
	s := c.s
	s.Committing.Lock()
	defer s.Committing.Unlock()
	if err := c.catchUp(); err != nil {
		return when, err
	}
	// From here on a commit that relies upon an older object looks for it.
	s.Upkeep.Shed.Store(true)
	when = s.Now()
	s.Packs.Supersede(src, when)
	return when, nil
}

// catchUp marks what came since, and writes once more what of it is in no
// new pack. No rests: writers may wait.
func (c *collector) catchUp() error {
	tip := c.s.Tip()
	pace := c.m.Pace
	c.m.Pace, c.m.Noted, c.m.Fresh = nil, true, nil
	defer func() { c.m.Pace, c.m.Noted = pace, false }()
	if err := c.m.History(c.tip.Seq+1, tip.Seq, c.tip.Tree); err != nil {
		return err
	}
	c.tip = tip
	late := make(map[int]bool)
	for _, row := range c.m.Fresh {
		if c.wanted(row) && !slices.ContainsFunc(c.made, func(f *packset.File) bool {
			ok, err := f.Pack.Has(c.table.Rows[row].ID)
			return ok && err == nil
		}) {
			late[row] = true
		}
	}
	if len(late) == 0 {
		return nil
	}
	return c.write("catching up", func(row int) bool { return late[row] })
}

// sweep removes superseded packs, at once if that was asked for.
func (c *collector) sweep() error {
	s := c.s
	var made, superseded int64
	for _, f := range c.made {
		made += f.Pack.FileBytes()
	}
	s.Upkeep.Maintaining.Lock()
	defer s.Upkeep.Maintaining.Unlock()
	due := s.Packs.Superseded()
	defer func() { packset.ReleaseAll(due) }()
	for _, f := range due {
		superseded += f.Pack.FileBytes()
	}
	copies, err := c.dropCopies()
	if err != nil {
		return err
	}
	c.Freed = copies
	if !c.opt.Now {
		c.Waiting = superseded
		c.host.KickMaintainer()
		return nil
	}
	if err := s.DropSuperseded(due); err != nil {
		return err
	}
	c.Freed += max(0, superseded-made)
	return s.SweepShallow(c.ctx)
}

// dropCopies removes the packs of people that hold nothing but what was in ours
// when the run began, as `git repack -a` writes one: what is needed of it is in
// ours still, and the rest would stay for its sake. Only while no process works
// there, and not before it is as old as a superseded pack has to be. mmu is held.
func (c *collector) dropCopies() (freed int64, err error) {
	s := c.s
	var copies []*reach.TheirPack
	gone := make(map[string]bool)
	for _, f := range c.their.Packs {
		if f.Kept || !c.opt.Now && s.Now().Sub(f.Since) < s.MergeGrace {
			continue
		}
		if ok, err := c.isCopy(f); err != nil {
			return 0, err
		} else if ok {
			copies, gone[f.Base] = append(copies, f), true
		}
	}
	if len(copies) == 0 {
		return 0, nil
	}
	if !c.opt.Now {
		if busy, err := s.Busy(c.ctx); busy || err != nil {
			return 0, err
		}
	}
	if err := s.Packs.DropMultiIndex(func(base string) bool { return gone[base] }); err != nil {
		return 0, err
	}
	for _, f := range copies {
		// What git keeps next to a pack (gitformat-pack(5)), its index first.
		for _, suffix := range []string{storedir.Idx, ".bitmap", ".rev", ".mtimes", ".pack"} {
			if err := storedir.Remove(s.FS, path.Join(storedir.Packs, f.Base+suffix)); err != nil {
				return freed, err
			}
		}
		freed += f.Pack.FileBytes()
	}
	return freed, s.FS.SyncDir(storedir.Packs)
}

func (c *collector) isCopy(f *reach.TheirPack) (bool, error) {
	for e, err := range f.Pack.Entries() {
		if err != nil {
			return false, err
		}
		if _, ok := c.table.Find(e.ID); !ok {
			return false, nil
		}
	}
	return true, c.ctx.Err()
}

// markTags marks the tasks' records, and those before them that a reflog names or
// is going to. A reflog that names a tag on a commit that is needed no more is
// dropped, and so is that of a task that has no refs.
func (c *collector) markTags() error {
	s := c.s
	// A tag that another one superseded is known to the task, then to a
	// publication, then to the log's lines, then to its file. They are read in this
	// order, and the two moves between them wait meanwhile, so none is missed.
	s.InfoLog.Moving.Lock()
	defer s.InfoLog.Moving.Unlock()
	s.Publishing.Lock()
	known := make(map[string]bool)
	for _, t := range s.Tasks() {
		known[t.ID] = true
		c.m.Mark(t.InfoTag)
		for _, id := range t.Past {
			c.m.Mark(id)
		}
	}
	waiting := s.InfoLog.Named()
	s.Publishing.Unlock()
	for task, ids := range waiting {
		if ok, err := c.stays(ids); err != nil {
			return err
		} else if !ok && !c.opt.DryRun {
			s.InfoLog.Forget(task)
		}
	}
	return c.markLogs(known)
}

// stays marks tags, if every one of them is on a commit that is needed.
func (c *collector) stays(tags []object.ID) (bool, error) {
	for _, id := range tags {
		kind, data, ok, err := c.their.Meta(id)
		if err != nil {
			return false, err
		}
		if !ok || kind != object.Tag {
			return false, nil
		}
		tag, err := object.ParseTag(data)
		if err != nil {
			return false, nil
		}
		row, ok := c.table.Find(tag.Object)
		if ok && !c.table.IsMarked(row) {
			return false, nil
		}
		if !ok { // newer than the packs that were taken, or gone
			if _, _, ok, err = c.their.Meta(tag.Object); err != nil || !ok {
				return false, err
			}
		}
	}
	for _, id := range tags {
		c.m.Mark(id)
	}
	return true, nil
}

// markLogs is markTags for what is in the reflogs' files.
func (c *collector) markLogs(known map[string]bool) error {
	s := c.s
	dir := path.Join(storedir.Repo, "logs", strings.TrimSuffix(storedir.Tasks, "/"))
	list, err := s.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		data, err := vfs.ReadFile(s.FS, path.Join(dir, e.Name, "info"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		ok := false
		if known[e.Name] {
			if ok, err = c.stays(repo.ReflogIDs(data)); err != nil {
				return err
			}
		}
		if !ok {
			c.logs = append(c.logs, e.Name)
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) dropLogs() error {
	for _, task := range c.logs {
		if err := c.s.DropInfoLog(task); err != nil {
			return err
		}
	}
	return nil
}
