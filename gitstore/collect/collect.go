// Package collect rewrites the packs that hold what nothing reaches any more.
package collect

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"umbra/gitstore/object"
	"umbra/gitstore/pace"
	"umbra/gitstore/pack"
	"umbra/gitstore/packset"
	"umbra/gitstore/reach"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
)

// Options say how Collect goes about it.
type Options struct {
	// Now removes superseded packs at once, not after their grace: a git command
	// that runs there may fail.
	Now bool
	// Thorough takes every pack that holds anything unneeded; else only those of
	// which it is worth it.
	Thorough bool
	// DryRun only reports what would be freed, as if history began at From.
	DryRun bool
	From   repo.Boundary
	Among  []object.ID // of which to report whether one is left
	Pace   *pace.Pace  // nil: no rests
	// Progress, if not nil, is called with the progress: a step, and its parts.
	Progress func(step string, done, all int64)
}

// Report is what Collect did, in bytes on disk.
type Report struct {
	Freed   int64 // is free now
	Waiting int64 // goes when the grace of superseded packs ends
	Left    bool  // one of the objects that Options.Among names stays
}

// worthwhile is the part of a pack, as a divisor, that has to be unneeded for it
// to be rewritten in passing.
const worthwhile = 8

// Host is what a collection needs of the store whose history it is.
type Host interface {
	Seal(ctx context.Context) error // puts what is published into the sink's store
	KickMaintainer()                // has superseded packs removed when their grace ends
}

// Run is one collection. Upkeep.Collecting is held. begin is where history
// begins.
func Run(ctx context.Context, s *repo.Repo, h Host, begin repo.Boundary, opt Options) (Report, error) {
	c := &collector{s: s, host: h, ctx: ctx, opt: opt, begin: begin}
	err := c.run()
	c.release()
	return c.Report, err
}

// collector is one run of Collect.
type collector struct {
	Report
	s     *repo.Repo
	host  Host
	ctx   context.Context
	opt   Options
	begin repo.Boundary

	used  []*packset.File // in use when it began; those before them in the list are homes
	old   []*packset.File // superseded by then
	tip   repo.Tip        // through which all is marked
	table *reach.Table
	m     *reach.Marker
	their *reach.Theirs
	from  []bool // of used: is rewritten
	logs  []string
	made  []*packset.File
}

func (c *collector) progress(step string, done, all int64) {
	if c.opt.Progress != nil {
		c.opt.Progress(step, done, all)
	}
}

func (c *collector) run() (err error) {
	if err := c.begun(); err != nil {
		return err
	}
	if c.table, err = reach.NewTable(c.ctx, c.used, c.old, c.opt.Pace); err != nil {
		return err
	}
	if c.their, err = reach.OpenTheirs(c.s); err != nil {
		return err
	}
	if c.m, err = reach.NewMarker(c.ctx, c.s, c.table, c.their, c.opt.Pace); err != nil {
		return err
	}
	if err := c.markAll(); err != nil {
		return err
	}
	unneeded := c.choose()
	if c.opt.DryRun {
		c.Waiting = unneeded
		c.Left = slices.ContainsFunc(c.opt.Among, func(id object.ID) bool {
			row, ok := c.table.Find(id)
			return !ok || c.table.IsMarked(row) // in no pack yet, or reached
		})
		return nil
	}
	if err := c.dropLogs(); err != nil {
		return err
	}
	if err := c.write("writing", c.wanted); err != nil {
		return err
	}
	if err := c.swap(); err != nil {
		return err
	}
	if err := c.host.Seal(c.ctx); err != nil {
		return err
	}
	return c.sweep()
}

// begun takes the packs, and after them the tip: whatever they hold that history
// needs is reached from it. It waits for a merge, which would put all that the
// taken packs hold into another one.
func (c *collector) begun() error {
	s := c.s
	s.Upkeep.Maintaining.Lock()
	defer s.Upkeep.Maintaining.Unlock()
	s.Upkeep.Rooting.Lock()
	defer s.Upkeep.Rooting.Unlock()
	c.used, c.old = s.Packs.Collecting(!c.opt.DryRun)
	// The largest first: it is their home of most, and seldom rewritten.
	slices.SortStableFunc(c.used, func(a, b *packset.File) int { return cmp.Compare(b.Count, a.Count) })
	c.tip = s.Tip()
	return nil
}

func (c *collector) release() {
	c.s.Packs.Collected(c.used)
	for _, f := range slices.Concat(c.used, c.old, c.made) {
		f.Release()
	}
	if c.their != nil {
		c.their.Close()
	}
}

// markAll marks what is needed as of the tip.
func (c *collector) markAll() error {
	s := c.s
	from := max(1, c.begin.Seq)
	var before object.ID
	var err error
	for seq := from; seq <= c.tip.Seq; seq++ {
		if before, err = c.m.Commit(seq, before); err != nil {
			return err
		}
		if seq%256 == 0 {
			c.progress("reading", int64(seq-from), int64(c.tip.Seq-from+1))
		}
	}
	if err := c.markTags(); err != nil {
		return err
	}
	roots, err := reach.PeoplesRoots(c.ctx, s)
	if err != nil {
		return err
	}
	c.m.Lenient = true
	defer func() { c.m.Lenient = false }()
	return c.m.Roots(roots)
}

// choose decides which packs are rewritten, and gives the bytes of what is
// not needed.
func (c *collector) choose() (unneeded int64) {
	live := make([]int64, len(c.used))
	for i := range c.table.Rows {
		if r := &c.table.Rows[i]; r.Home >= 0 && c.table.IsMarked(i) {
			live[r.Home] += r.Size
		}
	}
	c.from = make([]bool, len(c.used))
	for i, f := range c.used {
		size := f.Pack.PackBytes() - pack.HeaderSize - pack.TrailerSize
		dead := size - live[i]
		unneeded += dead
		c.from[i] = dead > 0 && (c.opt.Thorough || c.opt.Now || dead >= size/worthwhile)
	}
	return unneeded
}

// wanted reports whether a row goes into the new pack.
func (c *collector) wanted(row int) bool {
	home := c.table.Rows[row].Home
	return c.table.IsMarked(row) && (home < 0 || c.from[home])
}

// write makes a pack of the wanted rows, if there are any.
func (c *collector) write(step string, wanted func(row int) bool) error {
	var want, done int64
	for i := range c.table.Rows {
		if wanted(i) {
			want++
		}
	}
	if want == 0 {
		return nil
	}
	s := c.s
	src := slices.Clone(c.old)
	for i, f := range c.used {
		if c.from[i] {
			src = append(src, f)
		}
	}
	// Oldest first, as in merging: a file's versions are deltas of older ones.
	slices.SortStableFunc(src, func(a, b *packset.File) int { return cmp.Compare(a.Keep.Through, b.Keep.Through) })
	list := make([]*pack.Pack, len(src))
	through := uint64(0)
	for i, f := range src {
		list[i] = f.Pack
		through = max(through, f.Keep.Through)
	}
	var failed error
	keep := func(id object.ID) bool {
		if done++; done%512 == 0 {
			c.progress(step, min(done, want), want)
		}
		if failed == nil {
			failed = c.opt.Pace.Step(c.ctx)
		}
		row, ok := c.table.Find(id)
		return ok && wanted(row)
	}
	name := packset.NewName()
	defer s.Packs.RemovePrepared(name)
	_, sum, err := s.Packs.Write(name, func(w *pack.Writer) (object.ID, error) {
		_, err := pack.Merge(c.ctx, w, list, pack.MergeOptions{Keep: keep})
		return object.ID{}, cmp.Or(err, failed)
	})
	if err != nil {
		return fmt.Errorf("collecting from %d packs: %w", len(src), err)
	}
	base, err := s.Packs.Link(name+storedir.Prepared, name+storedir.Idx, sum, packset.Keep{Through: through})
	if err != nil {
		return err
	}
	f := s.Packs.Named(base)
	if f == nil {
		return fmt.Errorf("%s is gone", base)
	}
	c.made = append(c.made, f)
	return c.check(f, wanted)
}

// check looks whether the new pack has what it is to have, before anything is
// superseded by it. The bytes were compared with their checksums on the way.
func (c *collector) check(f *packset.File, wanted func(row int) bool) error {
	for i := range c.table.Rows {
		if !wanted(i) {
			continue
		}
		ok, err := f.Pack.Has(c.table.Rows[i].ID)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%s lacks %s", f.Base, c.table.Rows[i].ID)
		}
		if i%1024 == 0 {
			if err := c.opt.Pace.Step(c.ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
