package blame

import (
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/lineage"
	"umbra/internal/wspath"
)

// version is a file as one commit left it.
type version struct {
	seq    uint64
	commit object.ID
	parent object.ID // zero where the history begins
	path   string
	mode   object.Mode // 0: the commit removed the file
	blob   object.ID
	// before is the path at which the commit found the file; empty where it made it.
	before string
	// undone are the commits that this one takes back.
	undone []object.ID
	// segments are its lines; nil where they are not kept.
	segments []segment
	lines    int
	// read is the commit, as long as the answer that the walk is for was not made;
	// nil where it is to be read again.
	read *gitstore.Commit
}

// maxRead bounds how many commits a walk keeps for the answer.
const maxRead = 8192

func (v *version) exists() bool { return v.mode != 0 }

// walk follows a file backward from a commit down to number from, exclusive, and
// returns its versions, newest first, and the path at which the file was after
// commit from; empty where that is not known. done reports that the file begins
// among the versions.
func walk(ctx context.Context, st *gitstore.Store, at, from uint64, path string) (list []version, was string, done bool, err error) {
	begin := max(1, st.Boundary().Seq)
	present := true
	ctx, cancel := context.WithCancel(ctx)
	all := newSteps(st, max(from+1, begin), at, path)
	defer all.wait()
	defer cancel()
	for {
		if err := ctx.Err(); err != nil {
			return nil, "", false, errs.Wrap(err, "")
		}
		s, ok, err := all.next(ctx)
		if err != nil {
			return nil, "", false, err
		}
		if !ok {
			if from+1 > begin { // it is as it was at from
				return list, path, false, nil
			}
			return list, path, true, nil
		}
		v := s.v
		if len(list) >= maxRead {
			v.read = nil
		}
		below := v.seq
		switch {
		case !s.changed:
			continue
		case v.seq == begin:
			if present {
				list = append(list, v)
			}
			return list, path, true, nil
		case present:
			list = append(list, v)
			if s.old == "" { // made here
				if len(v.undone) == 0 {
					return list, path, true, nil
				}
				present = false
				gone, err := takenAway(ctx, st, &v)
				switch {
				case err != nil:
					return nil, "", false, err
				case gone > 0 && gone <= from:
					return list, "", false, nil // what is kept is another file
				case gone > 0:
					below = gone + 1
				}
			} else {
				path = s.old
			}
		default: // the commit took away what a revert brought back later
			v.mode, v.blob = 0, object.Zero
			list = append(list, v)
			present = true
		}
		all.turn(below, path, present)
	}
}

// takenAway returns the number of the newest commit that took away the file which a
// revert made again, of those that it undoes; 0: none of them did. Other files may
// have been at the path since then.
func takenAway(ctx context.Context, st *gitstore.Store, v *version) (newest uint64, err error) {
	for _, id := range v.undone {
		if err := ctx.Err(); err != nil {
			return 0, errs.Wrap(err, "")
		}
		c, err := st.ReadCommit(ctx, id)
		if errs.Is(err, errs.Gone) || errs.Is(err, errs.NotFound) {
			continue // dropped since
		}
		if err != nil {
			return 0, err
		}
		if c.Seq <= newest || c.Seq >= v.seq || c.Parent.IsZero() {
			continue
		}
		now, err := lookup(ctx, st, id, v.path)
		if err != nil {
			return 0, err
		}
		was, err := lookup(ctx, st, c.Parent, v.path)
		if err != nil {
			return 0, err
		}
		if was.Mode != 0 && now.Mode == 0 {
			newest = c.Seq
		}
	}
	return newest, nil
}

// step returns what the commit of a record made of the file at a path, and the
// path at which it found it; empty: it made it. Where present is false it is the
// commit that took the file away from the path which counts.
func step(ctx context.Context, st *gitstore.Store, rec *gitstore.Record, path string, present bool) (out stepped) {
	fail := func(err error) stepped { return stepped{err: err} }
	if err := ctx.Err(); err != nil {
		return fail(errs.Wrap(err, ""))
	}
	c, err := st.ReadCommit(ctx, rec.Commit)
	if err != nil {
		return fail(err)
	}
	v := version{seq: rec.Seq, commit: rec.Commit, parent: c.Parent, path: path, read: c}
	if c.Message.Source == message.Revert || c.Message.Source == message.Rollback || len(c.Message.Reverts) > 0 {
		v.undone = c.Message.Reverts
	}
	if len(v.undone) == 0 && c.Message.Trailer(message.KeyRejects) != "" {
		if v.undone, err = ofTask(ctx, st, c, path); err != nil {
			return fail(err)
		}
	}
	now, err := lookup(ctx, st, rec.Commit, path)
	if err != nil {
		return fail(err)
	}
	v.mode, v.blob = now.Mode, now.ID
	if c.Parent.IsZero() {
		return stepped{v, "", now.Mode != 0, nil}
	}
	if present && now.Mode != 0 && modifies(c.Message, path) {
		v.before = path
		return stepped{v, path, true, nil} // the parent's tree says no more
	}
	was, err := lookup(ctx, st, c.Parent, path)
	if err != nil {
		return fail(err)
	}
	if !present {
		return stepped{v, path, was.Mode != 0, nil}
	}
	if old, ok := lineage.Before(c.Message, path); ok {
		v.before = old
		return stepped{v, old, true, nil}
	}
	if _, moved := lineage.After(c.Message, path); moved || was.Mode == 0 {
		return stepped{v, "", true, nil}
	}
	v.before = path
	return stepped{v, path, was.ID != now.ID || was.Mode != now.Mode, nil}
}

// ofTask returns the commits of a task before one that may have changed a file: a
// rejection of hunks takes back lines of any of them.
func ofTask(ctx context.Context, st *gitstore.Store, c *gitstore.Commit, path string) (out []object.ID, err error) {
	recs, err := st.TaskRecords(ctx, c.Message.TaskID)
	for i := range recs {
		if rec := &recs[i]; rec.Seq < c.Seq && rec.MayTouch(path) {
			out = append(out, rec.Commit)
		}
	}
	return out, err
}

// modifies reports whether a message says that a file which was at a path before
// changed there, and nothing else about that path.
func modifies(m *message.Message, path string) bool {
	found := false
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.OldPath == path {
			return false
		}
		if e.Path == path {
			if found || e.Operation != message.Modify && e.Operation != message.Chmod {
				return false
			}
			found = true
		}
	}
	return found
}

// lookup returns the file or link at a path of a commit; its mode is 0 where there
// is none.
func lookup(ctx context.Context, st *gitstore.Store, commit object.ID, path string) (gitstore.Entry, error) {
	snap, err := st.SnapshotOf(ctx, commit)
	if err != nil {
		return gitstore.Entry{}, err
	}
	e, ok, err := snap.Lookup(wspath.Path(path))
	if err != nil || !ok || e.Mode == object.Dir {
		return gitstore.Entry{}, err
	}
	return e, nil
}

// past is a file's versions, oldest first. Not safe for concurrent use.
type past struct {
	whitespace bool
	size       int // of the newest version, in bytes
	versions   []version
	bytes      int64 // memory of kept segments
	place      map[object.ID]int
	placed     int // how many versions place has
}

// checkpointEvery is how far apart the versions are whose lines stay in memory,
// for reverts to come.
const checkpointEvery = 64

// maxCheckpoints bounds the memory of these, in bytes, for one file.
const maxCheckpoints = 4 << 20

// maxContent bounds the content of which lines are known, in bytes.
const maxContent = 64 << 20

// content reads a version; nil where there is none that has lines. The bytes are valid
// until the call after the next.
func content(ctx context.Context, blobs *gitstore.Blobs, v *version) ([]byte, error) {
	if !v.exists() {
		return nil, nil
	}
	data, err := blobs.Read(ctx, v.blob, maxContent)
	if errs.Is(err, errs.TooLarge) {
		return nil, nil
	}
	return data, err
}

// extend computes the lines of the versions from one on, the first of which that
// were not.
func (l *past) extend(ctx context.Context, st *gitstore.Store, from int) error {
	if from >= len(l.versions) {
		return nil
	}
	var before []segment
	if from > 0 {
		var err error
		if before, err = l.at(ctx, st, from-1); err != nil {
			return err
		}
	}
	needed, known := l.needed(from), make(map[int][]segment)
	ahead := newScripts(ctx, st, l.versions, from, l.whitespace, l.size > largeFile)
	defer ahead.close()
	for i := from; i < len(l.versions); i++ {
		v := &l.versions[i]
		d, err := ahead.next(ctx)
		if err != nil {
			return err
		}
		v.lines = d.lines
		before = carry(before, d.lines, d.changes, int32(i))
		if len(v.undone) > 0 && v.exists() {
			now, err := content(ctx, st.Blobs(), v)
			if err != nil {
				return err
			}
			if before, err = l.bringBack(ctx, st, i, before, now, known); err != nil {
				return err
			}
		}
		if needed[i] || i == len(l.versions)-1 || i%checkpointEvery == 0 {
			l.keep(i, before)
		}
	}
	// Of what was the newest before and is no checkpoint nothing stays.
	if k := from - 1; k >= 0 && k%checkpointEvery != 0 {
		l.drop(k)
	}
	for i := range needed {
		if i%checkpointEvery != 0 && i != len(l.versions)-1 {
			l.drop(i)
		}
	}
	for i := 0; i < len(l.versions)-1 && l.bytes > maxCheckpoints; i++ {
		l.drop(i)
	}
	return nil
}

func (l *past) keep(i int, list []segment) {
	if l.versions[i].segments == nil {
		l.versions[i].segments = slices.Clip(slices.Clone(list))
		if list == nil {
			l.versions[i].segments = []segment{}
		}
		l.bytes += int64(len(list)) * segmentSize
	}
}

func (l *past) drop(i int) {
	l.bytes -= int64(len(l.versions[i].segments)) * segmentSize
	l.versions[i].segments = nil
}

// needed are the versions from one on whose lines a later revert asks for.
func (l *past) needed(from int) map[int]bool {
	out := make(map[int]bool)
	for i := from; i < len(l.versions); i++ {
		for _, k := range l.runs(i) {
			if k >= from {
				out[k] = true
			}
		}
	}
	return out
}

// runs are the versions that a revert goes back to, oldest first: the one before
// each run of commits that it takes back.
func (l *past) runs(i int) (out []int) {
	v := &l.versions[i]
	if len(v.undone) == 0 {
		return nil
	}
	if l.place == nil {
		l.place = make(map[object.ID]int)
	}
	for ; l.placed < len(l.versions); l.placed++ {
		l.place[l.versions[l.placed].commit] = l.placed
	}
	undone := make(map[int]bool, len(v.undone))
	for _, id := range v.undone {
		if k, ok := l.place[id]; ok && k > 0 && k < i {
			undone[k] = true
		}
	}
	for k := range undone {
		if !undone[k-1] {
			out = append(out, k-1)
		}
	}
	slices.Sort(out)
	return out
}

// at returns the lines of a version.
func (l *past) at(ctx context.Context, st *gitstore.Store, i int) ([]segment, error) {
	return l.atKnown(ctx, st, i, make(map[int][]segment))
}

// atKnown is like at. known has versions whose lines were made on the way: what brings
// lines back may ask for the same ones again and again.
func (l *past) atKnown(ctx context.Context, st *gitstore.Store, i int, known map[int][]segment) ([]segment, error) {
	of := func(k int) []segment {
		if s := l.versions[k].segments; s != nil {
			return s
		}
		return known[k]
	}
	k := i
	for k > 0 && of(k) == nil {
		k--
	}
	if s := of(k); s != nil && k == i {
		return s, nil
	}
	var list []segment
	var old []byte
	var err error
	blobs := st.Blobs()
	if s := of(k); s != nil {
		list = s
		if old, err = content(ctx, blobs, &l.versions[k]); err != nil {
			return nil, err
		}
		k++
	}
	for ; k <= i; k++ {
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap(err, "")
		}
		v := &l.versions[k]
		now, err := content(ctx, blobs, v)
		if err != nil {
			return nil, err
		}
		list = carry(list, count(now), compare(old, now, l.whitespace), int32(k))
		if len(v.undone) > 0 && v.exists() {
			if list, err = l.bringBack(ctx, st, k, list, now, known); err != nil {
				return nil, err
			}
			known[k] = list
		}
		old = now
	}
	known[i] = list
	return list, nil
}

// bringBack gives the lines of a revert that earlier versions had to those who
// wrote them.
func (l *past) bringBack(ctx context.Context, st *gitstore.Store, i int, list []segment, now []byte, known map[int][]segment) ([]segment, error) {
	for _, k := range l.runs(i) {
		own := 0
		for _, s := range list {
			if s.from == int32(i) {
				own += int(s.n)
			}
		}
		if own == 0 {
			break
		}
		if !l.versions[k].exists() {
			continue
		}
		older, err := l.atKnown(ctx, st, k, known)
		if err != nil {
			return nil, err
		}
		old, err := content(ctx, st.Blobs(), &l.versions[k])
		if err != nil {
			return nil, err
		}
		list, _ = restore(list, older, count(now), compare(old, now, l.whitespace), int32(i))
	}
	return list, nil
}
