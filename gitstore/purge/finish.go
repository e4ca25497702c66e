package purge

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"umbra/gitstore/journal"
	"umbra/gitstore/moved"
	"umbra/gitstore/object"
	"umbra/gitstore/packset"
	"umbra/gitstore/refs"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
)

// errAgain is given where what the purge was begun on is no more so.
var errAgain = errors.New("the history's beginning moved")

// ErrHeld is answered where people's own leads to what goes.
func ErrHeld(list []Holder) error {
	return errs.New(errs.Conflict, "purge_held",
		"Refs, worktrees or reflogs of people's own lead to these bytes. With force they are dropped.").With("held", list)
}

// Finish makes the rewritten history the history. The caller sees to it that
// nothing of what goes is in the tip (OnTip after Finish began is an error,
// errs.Conflict "purge_on_tip"). Commits wait; when it returns nil the bytes are
// off the disk. On errs.Unavailable "ref_locked" history is rewritten, and what
// is left is done once the lock is free.
func (p *Purge) Finish(ctx context.Context) (Purged, error) {
	defer p.Discard()
	s := p.s
	resume, err := s.host.Pause(ctx)
	if err != nil {
		return Purged{}, err
	}
	defer resume()
	s.Publishing.Lock()
	defer s.Publishing.Unlock()
	if err := p.quiet(ctx); err != nil {
		return Purged{}, err
	}
	before, err := s.PackBytes()
	if err != nil {
		return Purged{}, errs.Wrap(err, "")
	}
	in, out, err := p.gather(ctx)
	if err != nil {
		return Purged{}, errs.Wrap(err, "")
	}
	patience := repo.PublishPatience
	if until, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(until))
	}
	ctx = context.WithoutCancel(ctx) // from here on it ends, one way or the other
	if err := p.swap(ctx, in); err != nil {
		return Purged{}, errs.Wrap(err, "")
	}
	p.opt.Progress("removing what is purged", 0, 0)
	lctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.GoOn(lctx); err != nil {
		s.host.Retry()
		return out, err
	}
	p.lateForeign(ctx)
	if err := s.WriteInfoLog(ctx); err != nil {
		s.Log.Warn("reflogs of tasks' records not written", "error", err)
	}
	if after, err := s.PackBytes(); err == nil {
		out.Bytes = before - after
	}
	return out, nil
}

// lateForeign drops what another process set in place of one of our refs in the very
// moment of the switch.
func (p *Purge) lateForeign(ctx context.Context) {
	list, err := p.s.Refs.List(refs.ForeignPrefix)
	var gone []refs.Update
	for _, r := range list {
		if p.Rewriter.Changed(r.ID) {
			gone = append(gone, refs.Update{Name: r.Name, Before: []object.ID{r.ID}})
		}
	}
	if err == nil {
		_, failed := p.s.Refs.Update(ctx, gone)
		err = refs.Join(failed)
	}
	if err != nil {
		p.s.Log.Warn("refs under refs/foreign were not checked once more", "error", err)
	}
}

// quiet makes sure that all objects are in finished packs.
func (p *Purge) quiet(ctx context.Context) error {
	s := p.s
	if err := s.GoOn(ctx); err != nil {
		return err
	}
	if err := s.host.Salvage(); err != nil {
		return errs.Wrap(err, "")
	}
	lctx, cancel := context.WithTimeout(ctx, repo.PublishPatience)
	defer cancel()
	failed, err := s.host.Publish(lctx)
	if err == nil {
		err = refs.Join(failed)
	}
	if err != nil {
		return repo.LockedOut(err)
	}
	s.Committing.Lock()
	defer s.Committing.Unlock()
	noted, _ := s.Note.Get(refs.ShadowRef)
	if s.host.Unpublished() || noted != s.Tip().Commit {
		return errs.New(errs.Unavailable, "busy", "Not everything could be published; try again.")
	}
	if p.begin != s.Boundary() {
		return errs.Wrap(errAgain, "")
	}
	return nil
}

// gather writes the rest of what is new, and says what the switch has to do.
func (p *Purge) gather(ctx context.Context) (*purgeIntent, Purged, error) {
	s := p.s
	if err := p.rewrite(ctx, "rewriting the newest commits"); err != nil {
		return nil, Purged{}, err
	}
	if p.OnTip() {
		return nil, Purged{}, errs.New(errs.Conflict, "purge_on_tip", "The newest tree still has these bytes.")
	}
	if p.Rewriter.First == 0 && !p.outside {
		return nil, Purged{}, errs.New(errs.NotFound, "blob_not_found", "No commit of the history has that content.")
	}
	in := &purgeIntent{Step: purgePrepared, First: p.Rewriter.First, Tags: make(map[string]string)}
	if err := p.records(); err != nil {
		return nil, Purged{}, err
	}
	p.refs(in)
	h, o, unreadable, err := p.look(ctx)
	defer h.close()
	if err != nil {
		return nil, Purged{}, err
	}
	if len(o.holders) > 0 && !p.opt.Force {
		return nil, Purged{}, ErrHeld(o.holders)
	}
	in.Others = o.othersIntent
	if err := p.packs(ctx, in, h, unreadable); err != nil {
		return nil, Purged{}, err
	}
	files, err := s.MovedFiles()
	if err != nil {
		return nil, Purged{}, err
	}
	if in.Moved = 1; len(files) > 0 {
		in.Moved = files[len(files)-1] + 1
	}
	return in, p.summarize(o), nil
}

// records rewrites the tags that hold tasks' records: the present ones, and
// those before them, which reflogs name.
func (p *Purge) records() error {
	s := p.s
	add := func(ids []object.ID) error {
		for _, id := range ids {
			if _, err := p.Rewriter.Tag(id); err != nil && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Gone) {
				return err
			}
		}
		return nil
	}
	for _, t := range s.Tasks() {
		if _, err := p.Rewriter.Tag(t.InfoTag); err != nil {
			return err
		}
		if err := add(t.Past); err != nil {
			return err
		}
	}
	err := s.walkFiles(path.Clean(storedir.InfoLogs), func(name string) error {
		text, err := readAll(s, name)
		if err != nil {
			return err
		}
		return add(repo.ReflogIDs(text))
	})
	if err != nil {
		return err
	}
	for _, ids := range s.InfoLog.Named() {
		if err := add(ids); err != nil {
			return err
		}
	}
	return nil
}

// refs gives what our refs become: tasks' first, the history's last.
func (p *Purge) refs(in *purgeIntent) {
	set := func(name string, old, now object.ID) {
		if old != now {
			in.Refs = append(in.Refs, movedRef{Name: name, Old: old.String(), New: now.String()})
		}
	}
	for _, t := range p.s.Tasks() {
		info := t.InfoTag
		if now, ok := p.Rewriter.Tags[info]; ok {
			info = now
		}
		set(storedir.Tasks+t.ID+"/base", t.Base, p.Rewriter.Is(t.Base))
		set(storedir.Tasks+t.ID+"/head", t.Head, p.Rewriter.Is(t.Head))
		set(storedir.Tasks+t.ID+"/info", t.InfoTag, info)
	}
	set(refs.ShadowRef, p.s.Tip().Commit, p.Rewriter.Tip.Commit)
	if b := p.s.Boundary(); !b.Whole() && p.Rewriter.Is(b.Commit) != b.Commit {
		in.Boundary = movedRef{Old: b.Commit.String(), New: p.Rewriter.Is(b.Commit).String()}
	}
	for old, now := range p.Rewriter.Tags {
		in.Tags[old.String()] = now.String()
	}
}

// swap gives the new packs their names and makes the rewritten history the one
// that counts, on disk and in memory. After an error all is as before.
func (p *Purge) swap(ctx context.Context, in *purgeIntent) error {
	s := p.s
	var list []*purgePack
	for _, x := range []*purgePack{p.fresh, p.kept} {
		if x.w.Count() == 0 || x == p.fresh && p.Rewriter.First == 0 {
			continue // at the most, the text in place of what goes
		}
		if err := s.finishPurgePack(x); err != nil {
			return err
		}
		list = append(list, x)
		if base := "pack-" + object.ID(x.sum).String(); !s.Packs.Has(base) {
			in.Packs = append(in.Packs, base)
		}
	}
	err := s.FS.SyncDir(journal.Dir)
	if err == nil {
		err = s.writeIntent(in)
	}
	for _, x := range list {
		if err == nil {
			_, err = s.Packs.Link(x.name+".pack", x.name+storedir.Idx, x.sum, packset.Keep{Through: s.Tip().Seq})
		}
	}
	if err == nil {
		err = s.writeMoved(in.Moved, p.Rewriter.Commits)
	}
	if err == nil {
		err = p.swapHeld(ctx, in)
	}
	if err != nil {
		return p.back(in, err)
	}
	next := *in
	next.Step = purgeSwitching
	if err := s.writeIntent(&next); err != nil {
		return p.back(in, err)
	}
	p.adopt(&next)
	return nil
}

func (pr *Purger) writeMoved(n int, moves map[object.ID]object.ID) error {
	dir := path.Dir(purgeTemp(n))
	if err := pr.FS.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := storedir.WriteFile(pr.FS, purgeTemp(n), moved.Encode(moves)); err != nil {
		return err
	}
	if err := pr.FS.SyncDir(dir); err != nil {
		return err
	}
	return pr.FS.SyncDir(".")
}

// swapHeld is the switch where a sink holds the history. The committer rests, and
// everything is published.
func (p *Purge) swapHeld(ctx context.Context, in *purgeIntent) error {
	s := p.s
	if s.Held == nil {
		s.host.BreakOffCopy()
		return nil
	}
	values := s.Note.All()
	for _, r := range in.Refs {
		if _, now, err := r.ids(); err != nil {
			return err
		} else if values[r.Name] = now; now.IsZero() {
			delete(values, r.Name)
		}
	}
	if _, now, err := in.Boundary.ids(); err != nil {
		return err
	} else if !now.IsZero() {
		values[refs.Boundary] = now
	}
	gone := setOf(in.Drop)
	var used []*packset.File
	for _, f := range s.Packs.InUse() {
		defer f.Release()
		if !gone[f.Base] {
			used = append(used, f)
		}
	}
	return s.host.SwapPurged(ctx, used, values, purgeTemp(in.Moved))
}

// back takes the switch back. If the disk refuses that too, it is unknown
// what a start will find: nothing more is taken in until there is one.
func (p *Purge) back(in *purgeIntent, cause error) error {
	s := p.s
	packset.ReleaseAll(s.Packs.Take(setOf(in.Packs)))
	err := s.writeIntent(in) // as it was: prepared
	if err == nil {
		if err = s.takeBack(in); err != nil {
			s.Log.Warn("a purge is taken back by the next start", "error", err)
		}
		return cause
	}
	if now, rerr := s.readIntent(); rerr == nil && (now == nil || now.Step == purgePrepared) && s.FS.SyncDir(".") == nil {
		return cause // the next start takes the rest back
	}
	s.host.Stop()
	s.Warn("a purge could be neither finished nor taken back (%v): nothing is written until the server is started again", err)
	return cause
}

func setOf(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, n := range names {
		out[n] = true
	}
	return out
}

// adopt makes the rewritten history the store's state.
func (p *Purge) adopt(in *purgeIntent) {
	s := p.s
	gone := make(map[object.ID]bool, len(p.Rewriter.Blobs))
	if old := s.Purges.Gone.Load(); old != nil {
		for id := range *old {
			gone[id] = true
		}
	}
	for id := range p.Rewriter.Blobs {
		gone[id] = true
	}
	s.Purges.Gone.Store(&gone)
	s.Cached.Trees.Clear()
	s.InfoLog.Rename(p.Rewriter.Tags)
	s.TaskMap.Mu.Lock()
	for id, t := range s.TaskMap.ByID {
		n := *t
		n.Base, n.Head = p.Rewriter.Is(t.Base), p.Rewriter.Is(t.Head)
		if tag, ok := p.Rewriter.Tags[t.InfoTag]; ok {
			n.InfoTag = tag
		}
		s.TaskMap.ByID[id] = &n
	}
	s.TaskMap.Mu.Unlock()
	if p.Rewriter.First > 0 {
		s.Index.Remap(p.Rewriter.First, p.Rewriter.Is)
	}
	if b := s.Boundary(); !b.Whole() {
		b.Commit = p.Rewriter.Is(b.Commit)
		s.Begins.Store(&b)
	}
	tip := repo.Tip(p.Rewriter.Tip)
	s.Head.Store(&tip)
	s.pending = in
	// Nothing may be taken for standing in them any more.
	packset.ReleaseAll(s.Packs.Take(setOf(in.Drop)))
	// A reader that finds an object gone looks again from the tip on.
	s.Purges.Count.Add(1)
	s.Cached.Computed.Clear()
}
