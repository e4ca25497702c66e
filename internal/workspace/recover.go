package workspace

import (
	"context"
	"maps"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/wspath"
)

// unclean is the Reason of what a start found torn.
const unclean = "unclean-stop"

// recovery brings the disk up to the tip after a stop that was not clean: what
// was durable in history and not yet on disk is finished, what a cut left half
// is recorded and written again, and what was displaced is recorded.
type recovery struct {
	w    *Workspace
	same bool   // the same boot and mounts: what was written is there
	from uint64 // everything up to here is on disk
	tip  gitstore.Tip

	paths map[wspath.Path]*versions
	moves [][]folderMove // in order; those of a group at once
	dirs  []dirChange
	via   []wspath.Path               // folders that were only passed through
	empty []wspath.Path               // folders that their files left
	homes map[wspath.Path]wspath.Path // where a temporary file stood that was aside
}

// versions are the states of one path since the checkpoint, the oldest first.
type versions struct {
	list []gitstore.Entry // Mode 0: not there
	// several says that a change set of several steps touched the path: one that
	// was cut off may have left nothing there, or whatever else it moved about or
	// wrote for a moment. All of that is in history.
	several bool
}

// state is what stands at a path; the zero value is nothing.
type state struct {
	mode object.Mode
	id   object.ID
}

// ours reports whether a change set of ours can have left the path like this.
func (r *recovery) ours(v *versions, now state) bool {
	for _, e := range v.list {
		if e.Mode == object.Dir {
			e = gitstore.Entry{}
		}
		if e.Mode == now.mode && (now.mode == 0 || e.ID == now.id) {
			return true
		}
	}
	return v.several && (now.mode == 0 || r.w.store.HasBlob(now.id))
}

// folderMove is a folder that a commit moved whole.
type folderMove struct{ from, to wspath.Path }

// dirChange is an empty folder that a commit made or removed.
type dirChange struct {
	path wspath.Path
	made bool
}

// recover runs at a start, before anybody else uses the workspace.
func (w *Workspace) recover(ctx context.Context) error {
	ck, found, err := readCheckpoint(w.files)
	if err != nil {
		return err
	}
	r := &recovery{w: w, tip: w.store.Tip(), paths: make(map[wspath.Path]*versions), homes: make(map[wspath.Path]wspath.Path)}
	r.from = r.tip.Seq
	if found {
		r.same = ck.Epoch == w.progress.epoch
		r.from = min(ck.Seq, r.tip.Seq)
		if seq, ok := w.progress.read(); ok && r.same && seq > r.from {
			r.from = min(seq, r.tip.Seq)
		}
	}
	kept, err := w.root.Kept()
	if err != nil {
		return errs.Wrap(err, "")
	}
	for _, k := range kept {
		if k.From != "" {
			w.linger(k.From, k.Displaced)
		} else if err := r.nobodys(ctx, k.Displaced); err != nil {
			return err
		}
	}
	left, err := w.root.Asides()
	if err != nil {
		return errs.Wrap(err, "")
	}
	if !ck.Clean || r.from < r.tip.Seq || len(left) > 0 {
		if err := r.run(ctx, left); err != nil {
			return err
		}
	}
	if found && r.same {
		if err := w.unsynced(ctx, ck.Seq, r.from); err != nil {
			return err
		}
	}
	w.progress.begin(w.store.Tip().Seq)
	w.progress.last = ck
	w.progress.synced.Store(ck.Seq)
	return w.checkpoint(ctx, false)
}

// unsynced notes what commits after one and up to another touched: it is on
// disk, but no checkpoint has synced it yet, and who knew of it is gone.
func (w *Workspace) unsynced(ctx context.Context, after, through uint64) error {
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
	err := w.store.Records(ctx, after+1, through, func(rec gitstore.Record) error {
		c, err := w.store.ReadCommit(ctx, rec.Commit)
		if err != nil {
			return err
		}
		for i := range c.Message.Entries {
			e := &c.Message.Entries[i]
			for _, name := range []string{e.Path, e.OldPath} {
				if dir, ok := strings.CutSuffix(name, "/"); ok {
					note(wspath.Path(dir))
				}
			}
		}
		for _, x := range c.Message.Extra {
			if x.Key == keyVia { // also what came back with the bytes of before, as another file
				note(wspath.Path(strings.TrimSuffix(x.Value, "/")))
			}
		}
		return w.store.DiffTrees(ctx, c.Parent, c.ID, wspath.Root, func(t gitstore.TreeChange) error {
			note(t.Path)
			return nil
		})
	})
	w.progress.dirty(slices.Collect(maps.Keys(touched)))
	return err
}

func (r *recovery) run(ctx context.Context, aside []rootfs.Aside) error {
	if err := r.history(ctx); err != nil {
		return err
	}
	if err := r.asides(ctx, aside); err != nil {
		return err
	}
	if err := r.temps(ctx, wspath.Root); err != nil {
		return err
	}
	if err := r.moveFolders(ctx); err != nil {
		return err
	}
	paths := make([]wspath.Path, 0, len(r.paths))
	for p := range r.paths {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	// What has to go goes first: a file may have come where a folder was.
	for _, gone := range []bool{true, false} {
		for _, p := range paths {
			if err := r.finish(ctx, p, r.paths[p], gone); err != nil {
				return err
			}
		}
	}
	slices.Sort(r.empty)
	for _, dir := range slices.Backward(r.empty) {
		r.w.rmdir(dir)
	}
	r.w.progress.dirty(r.empty)
	return r.folders()
}

// history reads what was committed since.
func (r *recovery) history(ctx context.Context) error {
	return r.w.store.Records(ctx, r.from+1, r.tip.Seq, func(rec gitstore.Record) error {
		if r.from >= r.tip.Seq {
			return nil
		}
		c, err := r.w.store.ReadCommit(ctx, rec.Commit)
		if err != nil {
			return err
		}
		var touched []*versions
		err = r.w.store.DiffTrees(ctx, c.Parent, c.ID, wspath.Root, func(t gitstore.TreeChange) error {
			v := r.path(t.Path, t.Old)
			v.list = append(v.list, t.New)
			touched = append(touched, v)
			return nil
		})
		if err != nil {
			return err
		}
		for _, x := range c.Message.Extra {
			if x.Key != keyVia {
				continue
			}
			name, ok := strings.CutSuffix(x.Value, "/")
			if ok {
				dir := wspath.Path(name)
				r.via = append(r.via, dir)
				for p, v := range r.paths {
					v.several = v.several || p.IsUnder(dir)
				}
			}
			// A file too may have stood for a moment where a folder did.
			touched = append(touched, r.path(wspath.Path(name), gitstore.Entry{}))
		}
		if len(touched) > 1 {
			for _, v := range touched {
				v.several = true
			}
		}
		return r.entries(ctx, c)
	})
}

// path gives a path's states, the first of which is what stood there before.
func (r *recovery) path(p wspath.Path, before gitstore.Entry) *versions {
	v := r.paths[p]
	if v == nil {
		v = &versions{list: []gitstore.Entry{before}}
		r.paths[p] = v
	}
	return v
}

// entries reads what a commit's trees do not tell.
func (r *recovery) entries(ctx context.Context, c *gitstore.Commit) error {
	if c.Parent.IsZero() {
		return nil
	}
	before, err := r.w.store.SnapshotOf(ctx, c.Parent)
	if err != nil {
		return err
	}
	after, err := r.w.store.SnapshotOf(ctx, c.ID)
	if err != nil {
		return err
	}
	renames := make(map[wspath.Path]wspath.Path)
	for i := range c.Message.Entries {
		if e := &c.Message.Entries[i]; e.OldPath != "" {
			renames[wspath.Path(e.OldPath)] = wspath.Path(e.Path)
		}
	}
	known := make(map[folderMove]bool)
	var at []folderMove
	told := FolderMoves(c.Message)
	for _, m := range told {
		r.moves = append(r.moves, []folderMove{{m.From, m.To}})
	}
	for i := range c.Message.Entries {
		e := &c.Message.Entries[i]
		path := wspath.Path(strings.TrimSuffix(e.Path, "/"))
		switch {
		case e.Operation == message.Mkdir:
			r.dirs = append(r.dirs, dirChange{path, true})
		case e.Operation == message.Rmdir:
			r.dirs = append(r.dirs, dirChange{path, false})
		case e.OldPath != "" && strings.HasSuffix(e.Path, "/"):
			at = append(at, folderMove{wspath.Path(strings.TrimSuffix(e.OldPath, "/")), path})
		case e.OldPath != "":
			if len(told) > 0 {
				continue
			}
			m, ok, err := wholeFolder(before, after, renames, wspath.Path(e.OldPath), path)
			if err != nil {
				return err
			}
			if ok && !known[m] {
				known[m] = true
				at = append(at, m)
			}
		}
	}
	if len(told) == 0 && len(at) > 0 {
		r.moves = append(r.moves, at)
	}
	return nil
}

// wholeFolder finds the highest folder that moved with all that history had in
// it when a file in it got another name.
func wholeFolder(before, after gitstore.Snapshot, renames map[wspath.Path]wspath.Path, from, to wspath.Path) (m folderMove, ok bool, err error) {
	for from.Base() == to.Base() {
		if from, to = from.Dir(), to.Dir(); from.IsRoot() || to.IsRoot() || from == to {
			break
		}
		moved, err := allMoved(before, after, renames, from, to)
		if err != nil || !moved {
			return m, ok, err
		}
		m, ok = folderMove{from, to}, true
	}
	return m, ok, nil
}

// allMoved reports whether a folder is gone, or a file has its place, and each of
// its files is where it would be if the folder had another name, which was nobody's
// or a file's.
func allMoved(before, after gitstore.Snapshot, renames map[wspath.Path]wspath.Path, from, to wspath.Path) (bool, error) {
	if is, left, err := after.Lookup(from); err != nil || left && is.Mode == object.Dir {
		return false, err
	}
	if is, was, err := before.Lookup(to); err != nil || was && is.Mode == object.Dir {
		return false, err
	}
	all := true
	err := before.Walk(from, func(e gitstore.Entry) error {
		rel, _ := e.Path.Rel(from)
		if renames[e.Path] != to.Join(string(rel)) {
			all = false
			return errStop
		}
		return nil
	})
	if !all {
		return false, nil
	}
	return err == nil, err
}

// finish brings one path to the tip, if what stands there is one of the states
// that it had since the checkpoint. Anything else is a person's, and the scan
// that follows records it.
func (r *recovery) finish(ctx context.Context, p wspath.Path, v *versions, gone bool) error {
	want, ok, err := r.w.store.Snapshot().Lookup(p)
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
	have, err := r.w.lstatDirect(p)
	if err != nil {
		return err
	}
	if have.kind == KindNone && ok {
		// A link that came in its way: what is written there is another path's.
		for dir := range p.Ancestors() {
			if s, err := r.w.lstatDirect(dir); err != nil || s.kind == KindSymlink {
				return err
			}
		}
	}
	if have.kind == KindDir && ok && r.clear(p) {
		have = seen{}
	}
	if have.kind == KindDir || have.kind == KindSpecial {
		return nil
	}
	if have.kind != KindNone {
		if err := r.w.identify(ctx, p, &have); err != nil {
			if _, fatal := skipReason(err); fatal {
				return err
			}
			return nil
		}
	}
	now := state{have.mode, have.id}
	if now == (state{want.Mode, want.ID}) {
		// On disk, though perhaps not yet on stable storage.
		r.w.progress.dirty([]wspath.Path{p})
		return nil
	}
	if r.ours(v, now) {
		return r.bring(ctx, p, want, &have)
	}
	if r.same {
		return nil
	}
	if have.kind == KindNone { // what never got to the disk is as torn as what did half
		return r.repair(ctx, p, want, &have)
	}
	if have.kind != KindFile {
		return nil
	}
	torn, err := r.torn(ctx, p, &have, v)
	if err != nil || !torn {
		return err
	}
	return r.repair(ctx, p, want, &have)
}

// clear removes a folder that holds nothing but folders, and tells whether it
// did: its files went before.
func (r *recovery) clear(p wspath.Path) bool {
	entries, err := r.w.fs.ReadDir(string(p))
	if err != nil {
		return false
	}
	for _, e := range entries {
		if !e.Type.IsDir() || !r.clear(p.Join(e.Name)) {
			return false
		}
	}
	return r.w.fs.Remove(string(p)) == nil
}

func (r *recovery) bring(ctx context.Context, p wspath.Path, want gitstore.Entry, have *seen) error {
	err := r.w.bring(ctx, p, want, have)
	if err != nil && (errs.Is(err, errs.Forbidden) || errs.Is(err, errs.Conflict)) {
		r.w.warn("%q could not be brought up to history: %v", p, err)
		return nil // the scan records what stands there
	}
	return err
}
