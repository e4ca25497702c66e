package recovery

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/materialize"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/progress"
	"umbra/internal/workspace/retire"
	"umbra/internal/wspath"
)

// keyVia is the trailer by which servers before named a path that a change set
// only passed through, or touched more than once; a directory's ends in "/".
const keyVia = "Via"

// Unclean is the Reason of what a start found torn.
const Unclean = "unclean-stop"

// recovery brings the disk up to the tip after a stop that was not clean: what
// was durable in history and not yet on disk is finished, what a power failure
// left half is recorded and written again, and what was displaced is recorded.
type recovery struct {
	disk     *disk.Disk
	progress *progress.Progress
	keeper   *retire.Keeper
	target   *materialize.Target
	same     bool   // the same boot and mounts: what was written is there
	recorded bool   // renames of directories are recorded since the checkpoint
	from     uint64 // everything up to here is on disk
	tip      gitstore.Tip

	paths   map[wspath.Path]*versions
	renamed []renamed
	names   map[wspath.Path]wspath.Path // the name that a renamed file had before
	undone  map[uint64]bool             // commits that a later one takes back
	dirs    []dirChange
	homes   map[wspath.Path]wspath.Path // where a temporary file was displaced that was aside
	absent  []version                   // of files that a user brought
}

// versions are the states of one path since the checkpoint, the oldest first.
type versions struct {
	list []version
	// moved says that a change set which renames touched the path: between two of
	// its steps nothing may be there.
	moved bool
	// via says that a server before this one passed through the path: any content
	// that history has may be there.
	via bool
	seq uint64 // of the last commit that changed the path
}

// always reports whether a file was at the path in all states, and only the server
// replaced it, by exchanges: no power failure leaves the path without one.
func (v *versions) always() bool {
	return !v.moved && !v.via && !slices.ContainsFunc(v.list, func(e version) bool { return e.Mode == 0 || e.Mode == object.Dir }) &&
		!slices.ContainsFunc(v.list[1:], func(e version) bool { return e.until != 0 })
}

// version is one state of a path; Mode 0: nothing is there.
type version struct {
	gitstore.Entry
	// until is set for what a user wrote, whose files have no stamp: a file that was
	// modified or renamed since is another. Nanoseconds since 1970.
	until int64
}

// state is what is at a path; the zero value is nothing.
type state struct {
	mode object.Mode
	id   object.ID
}

// ours reports whether one of our change sets can have left the path like this.
func (r *recovery) ours(v *versions, now state) bool {
	for _, e := range v.list {
		if e.Mode == object.Dir {
			e = version{}
		}
		if e.Mode == now.mode && (now.mode == 0 || e.ID == now.id) {
			return true
		}
	}
	return now.mode == 0 && (r.same || v.moved) || v.via && (now.mode == 0 || r.disk.Store.HasBlob(now.id))
}

// lostBits reports whether a file that a user brought to a path has the permission bits
// that it had at another path: a power failure may keep the name and not the bits that a
// request had set before.
func (r *recovery) lostBits(v *versions, now state, info vfs.Info) bool {
	if !v.list[len(v.list)-1].still(info) {
		return false
	}
	for _, other := range r.paths {
		if other != v && slices.ContainsFunc(other.list, func(e version) bool { return e.Mode == now.mode && e.ID == now.id }) {
			return true
		}
	}
	return false
}

// lostMove reports whether a file is one that a user moved to another path: the power
// failure undid that. Its bytes are in history, of the other path.
func (r *recovery) lostMove(now state, info vfs.Info) bool {
	return slices.ContainsFunc(r.absent, func(e version) bool { return e.Mode == now.mode && e.ID == now.id && e.still(info) })
}

// findAbsent notes which files that a user brought are not where history has them.
func (r *recovery) findAbsent(ctx context.Context) error {
	if r.same {
		return nil
	}
	for p, v := range r.paths {
		e := v.list[len(v.list)-1]
		if e.until == 0 || e.Mode != object.Regular && e.Mode != object.Executable {
			continue
		}
		have, reached, err := r.look(p)
		if err != nil {
			return err
		}
		if !reached {
			continue
		}
		if have.Kind == op.KindFile {
			if err := r.disk.Identify(ctx, p, &have); err != nil {
				if _, fatal := disk.SkipReason(err); fatal {
					return err
				}
				continue
			}
		}
		if have.ID != e.ID {
			r.absent = append(r.absent, e)
		}
	}
	return nil
}

// still reports whether a file that a user brought was not changed since, not even its
// bits, as far as the seconds of a commit can say.
func (e *version) still(info vfs.Info) bool {
	return e.until != 0 && info.CtimeNs < e.until+int64(time.Second)
}

// dirChange is an empty directory that a commit made or removed.
type dirChange struct {
	path wspath.Path
	made bool
	seq  uint64
}

// Run brings the disk of a target up to its history. It runs at a start, before
// the workspace is used. The caller makes a checkpoint then.
func Run(ctx context.Context, to *materialize.Target) error {
	d := to.Disk
	ck, found, err := progress.ReadCheckpoint(d.Files)
	if err != nil {
		return err
	}
	r := &recovery{disk: d, progress: to.Rec.Progress, keeper: to.Keeper, target: to, tip: d.Store.Tip(), paths: make(map[wspath.Path]*versions), names: make(map[wspath.Path]wspath.Path), undone: make(map[uint64]bool), recorded: ck.Moves, homes: make(map[wspath.Path]wspath.Path)}
	r.from = r.tip.Seq
	if found {
		r.same = ck.Epoch == r.disk.Epoch
		r.from = min(ck.Seq, r.tip.Seq)
		if seq, ok := r.progress.Read(); ok && r.same && seq > r.from {
			r.from = min(seq, r.tip.Seq)
		}
	}
	kept, err := r.disk.Root.Kept()
	if err != nil {
		return errs.Wrap(err, "")
	}
	for _, k := range kept {
		if k.From != "" {
			r.keeper.Linger(k.From, k.Displaced)
		} else if err := r.nobodys(ctx, k.Displaced); err != nil {
			return err
		}
	}
	left, err := r.disk.Root.Asides()
	if err != nil {
		return errs.Wrap(err, "")
	}
	if !ck.Clean || r.from < r.tip.Seq || len(left) > 0 {
		if err := r.run(ctx, left); err != nil {
			return err
		}
	}
	if found && r.same {
		if err := r.unsynced(ctx, ck.Seq, r.from); err != nil {
			return err
		}
	}
	r.progress.Resume(r.disk.Store.Tip().Seq, ck)
	return nil
}

// unsynced notes what commits after one and up to another touched: it is on
// disk, but no checkpoint has synced it yet, and who knew of it is gone.
func (r *recovery) unsynced(ctx context.Context, after, through uint64) error {
	if through <= after {
		return nil
	}
	touched := make(map[wspath.Path]struct{})
	note := func(p wspath.Path) {
		touched[p] = struct{}{}
		for dir := range p.Ancestors() {
			touched[dir] = struct{}{}
		}
	}
	err := r.disk.Store.Records(ctx, after+1, through, func(rec gitstore.Record) error {
		c, err := r.disk.Store.ReadCommit(ctx, rec.Commit)
		if err != nil {
			return err
		}
		if net := netMoves(c.Message); len(net) > 0 {
			for _, p := range slices.Collect(maps.Keys(touched)) {
				if at, ok := wspath.Moved(net, p); ok {
					note(at)
				}
			}
		}
		for i := range c.Message.Entries {
			e := &c.Message.Entries[i]
			for _, name := range []string{e.Path, e.OldPath} {
				if name != "" {
					note(wspath.Path(strings.TrimSuffix(name, "/")))
				}
			}
		}
		for _, x := range c.Message.Extra {
			if x.Key == keyVia { // also what came back with the bytes of before, as another file
				note(wspath.Path(strings.TrimSuffix(x.Value, "/")))
			}
		}
		return r.disk.Store.DiffTrees(ctx, c.Parent, c.ID, wspath.Root, func(t gitstore.TreeChange) error {
			note(t.Path)
			return nil
		})
	})
	r.progress.Dirty(slices.Collect(maps.Keys(touched)))
	return err
}

func (r *recovery) run(ctx context.Context, aside []rootfs.Aside) error {
	if err := r.history(ctx); err != nil {
		return err
	}
	if err := r.moveDirs(ctx); err != nil {
		return err
	}
	if err := r.asides(ctx, aside); err != nil {
		return err
	}
	if err := r.temps(ctx, wspath.Root); err != nil {
		return err
	}
	if err := r.findAbsent(ctx); err != nil {
		return err
	}
	paths := slices.Sorted(maps.Keys(r.paths))
	// What has to go goes first: a file may have come where a folder was.
	for _, gone := range []bool{true, false} {
		for _, p := range paths {
			if err := r.finish(ctx, p, r.paths[p], gone); err != nil {
				return err
			}
		}
	}
	return r.folders()
}

// history reads what was committed since.
func (r *recovery) history(ctx context.Context) error {
	seqs := make(map[object.ID]uint64)
	return r.disk.Store.Records(ctx, r.from+1, r.tip.Seq, func(rec gitstore.Record) error {
		if r.from >= r.tip.Seq {
			return nil
		}
		c, err := r.disk.Store.ReadCommit(ctx, rec.Commit)
		if err != nil || c.Parent.IsZero() {
			return err
		}
		seqs[c.ID] = rec.Seq
		if m := c.Message; m.Source == message.Rollback || m.Source == message.External {
			for _, id := range m.Reverts {
				r.undone[seqs[id]] = true
			}
		}
		net := netMoves(c.Message)
		if len(net) > 0 {
			r.renamed = append(r.renamed, renamed{rec.Seq, net})
			r.follow(net)
		}
		renames := slices.ContainsFunc(c.Message.Entries, func(e message.Entry) bool { return e.OldPath != "" })
		var remade []wspath.Path
		for _, x := range c.Message.Extra {
			if x.Key == op.KeyRemade {
				remade = append(remade, wspath.Path(x.Value))
			}
		}
		when, by := c.When.UnixNano(), int64(0)
		if c.Message.Source == message.External {
			by = when
		}
		changed := make(map[wspath.Path]bool)
		state := func(t gitstore.TreeChange) error {
			changed[t.Path] = true
			v := r.path(t.Path, version{t.Old, when})
			v.seq = rec.Seq
			by := by
			if t.Old.ID == t.New.ID && v.list[len(v.list)-1].until != 0 {
				by = when // only its bits are another's: it is the user's file still
			}
			v.list = append(v.list, version{t.New, by})
			if t.Old.ID == t.New.ID {
				r.bitsBefore(t.Path, version{t.New, by})
			}
			v.moved = v.moved || renames || slices.ContainsFunc(remade, t.Path.IsUnder)
			if at, ok := wspath.Moved(net, t.Path); ok {
				v := r.path(at, version{t.Old, when}) // it moved along first
				v.list = append(v.list, version{t.Old, when})
				v.moved = true
			}
			return nil
		}
		err = r.disk.Store.DiffTrees(ctx, c.Parent, c.ID, wspath.Root, state)
		if err == nil {
			err = r.sameBytes(ctx, c, changed, state)
		}
		r.followFiles(c.Message.Entries)
		for _, x := range c.Message.Extra {
			if x.Key == keyVia {
				r.path(wspath.Path(strings.TrimSuffix(x.Value, "/")), version{}).via = true
			}
		}
		for i := range c.Message.Entries {
			e := &c.Message.Entries[i]
			if dir, ok := dirEntry(e.Path); ok && e.OldPath == "" {
				r.dirs = append(r.dirs, dirChange{dir, e.Operation == message.Mkdir, rec.Seq})
			}
		}
		return err
	})
}

// sameBytes gives the paths that a commit put another file with the same bytes at: no
// tree shows that, but its entries name them.
func (r *recovery) sameBytes(ctx context.Context, c *gitstore.Commit, changed map[wspath.Path]bool, state func(gitstore.TreeChange) error) error {
	for i := range c.Message.Entries {
		p := wspath.Path(c.Message.Entries[i].Path)
		if _, isDir := dirEntry(string(p)); isDir || p == "" || changed[p] {
			continue
		}
		at, err := r.disk.Store.SnapshotOf(ctx, c.ID)
		if err != nil {
			return err
		}
		e, ok, err := at.Lookup(p)
		if err == nil && ok && e.Mode != object.Dir {
			err = state(gitstore.TreeChange{Path: p, Old: e, New: e})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dirEntry gives the directory that an entry's path names.
func dirEntry(name string) (wspath.Path, bool) {
	dir, ok := strings.CutSuffix(name, "/")
	return wspath.Path(dir), ok
}

// follow gives the paths in renamed directories the states that they had before.
func (r *recovery) follow(net []wspath.Move) {
	more := make(map[wspath.Path]*versions)
	for p, v := range r.paths {
		if at, ok := wspath.Moved(net, p); ok {
			more[at] = v
		}
	}
	for at, was := range more {
		v := r.path(at, version{})
		v.list = append(v.list, was.list...)
		v.moved, v.via = true, v.via || was.via
	}
}

// followFiles gives the paths of renamed files the states that they had before:
// what a rename replaces is at the old name for a moment, and what was changed
// before it may be lost without it.
func (r *recovery) followFiles(entries []message.Entry) {
	was := make(map[wspath.Path][]version)
	each := func(fn func(old, now wspath.Path, from, to *versions)) {
		for i := range entries {
			old, now := wspath.Path(entries[i].OldPath), wspath.Path(entries[i].Path)
			if from, to := r.paths[old], r.paths[now]; old != "" && from != nil && to != nil {
				fn(old, now, from, to)
			}
		}
	}
	each(func(old, now wspath.Path, from, to *versions) {
		r.names[now] = old
		was[old], was[now] = from.list[:len(from.list)-1], to.list[:len(to.list)-1]
	})
	each(func(old, now wspath.Path, from, to *versions) {
		last := to.list[len(to.list)-1]
		if n := len(from.list); n > 1 && from.list[n-2].ID == last.ID {
			from.list = append(from.list, last) // its mode may be there without the rename
		}
		from.list, to.list = slices.Concat(from.list, was[now]), slices.Concat(to.list, was[old])
	})
}

// bitsBefore gives the names that a renamed file had before the bits that it got since:
// they may be there without the renames.
func (r *recovery) bitsBefore(p wspath.Path, e version) {
	passed := map[wspath.Path]bool{p: true} // files may have exchanged their names
	for was, ok := r.names[p]; ok && !passed[was]; was, ok = r.names[was] {
		passed[was] = true
		if v := r.paths[was]; v != nil {
			v.list = slices.Insert(v.list, len(v.list)-1, e)
		}
	}
}

// path gives a path's states, the first of which is what was there before.
func (r *recovery) path(p wspath.Path, before version) *versions {
	v := r.paths[p]
	if v == nil {
		v = &versions{list: []version{before}}
		r.paths[p] = v
	}
	return v
}

// finish brings one path to the tip, if what is there is one of the states
// that it had since the checkpoint. Anything else is a user's, and the scan
// that follows records it.
func (r *recovery) finish(ctx context.Context, p wspath.Path, v *versions, gone bool) error {
	want, ok, err := r.disk.Store.Snapshot().Lookup(p)
	if err != nil {
		return err
	}
	if ok && want.Mode == object.Dir {
		want, ok = gitstore.Entry{}, false
	}
	if ok == gone {
		return nil
	}
	want.Path = p
	have, reached, err := r.look(p)
	if err != nil || !reached {
		return err
	}
	if have.Kind == op.KindNone && ok {
		// The path leads through a link now: what is written there is another path's.
		for dir := range p.Ancestors() {
			if s, err := r.disk.LstatDirect(dir); err != nil || s.Kind == op.KindSymlink {
				return err
			}
		}
	}
	if have.Kind == op.KindDir && ok && r.clear(p) {
		have = disk.Seen{}
	}
	if have.Kind == op.KindDir || have.Kind == op.KindSpecial {
		return nil
	}
	if have.Kind != op.KindNone {
		if err := r.disk.Identify(ctx, p, &have); err != nil {
			if _, fatal := disk.SkipReason(err); fatal {
				return err
			}
			return nil
		}
	}
	now := state{have.Mode, have.ID}
	if now == (state{want.Mode, want.ID}) {
		// On disk, though perhaps not yet on stable storage.
		r.progress.Dirty([]wspath.Path{p})
		return nil
	}
	if r.ours(v, now) {
		return r.bring(ctx, p, want, &have)
	}
	if r.same {
		return nil
	}
	if have.ID == want.ID && r.lostBits(v, now, have.Info) || r.lostMove(now, have.Info) {
		return r.bring(ctx, p, want, &have)
	}
	if have.Kind == op.KindNone {
		if v.always() {
			return nil // an exchange leaves one of two files: a user removed it, and the scan records that
		}
		// What never got to the disk is as torn as what did half.
		return r.repair(ctx, p, want, &have)
	}
	if have.Kind != op.KindFile {
		return nil
	}
	torn, err := r.torn(ctx, p, &have, v)
	if err != nil {
		return err
	}
	if torn {
		return r.repair(ctx, p, want, &have)
	}
	r.keeper.Warn("%q differs from history after an unclean stop, and is not known to be the server's own; it is left and recorded as it is", p)
	return nil
}

// look returns what is at a path. It is not reached if its owner closed a directory above
// it: what is there is left, and recorded when it can be read again.
func (r *recovery) look(p wspath.Path) (have disk.Seen, reached bool, err error) {
	have, err = r.disk.LstatDirect(p)
	if errs.Is(err, errs.Forbidden) {
		r.keeper.Warn("%q was not brought up to history, as far as it was not yet: %v", p, err)
		return disk.Seen{}, false, nil
	}
	return have, err == nil, err
}

// clear removes a folder that holds nothing but folders, and reports whether it
// did: its files went before.
func (r *recovery) clear(p wspath.Path) bool {
	entries, err := r.disk.FS.ReadDir(string(p))
	if err != nil {
		return false
	}
	for _, e := range entries {
		if !e.Type.IsDir() || !r.clear(p.Join(e.Name)) {
			return false
		}
	}
	return r.disk.FS.Remove(string(p)) == nil
}

func (r *recovery) bring(ctx context.Context, p wspath.Path, want gitstore.Entry, have *disk.Seen) error {
	err := r.target.Bring(ctx, p, want, have)
	if err != nil && (errs.Is(err, errs.Forbidden) || errs.Is(err, errs.Conflict)) {
		r.keeper.Warn("%q could not be brought up to history: %v", p, err)
		return nil // the scan records what is there
	}
	return err
}
