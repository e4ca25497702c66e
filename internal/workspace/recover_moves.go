package workspace

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"syscall"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// track is one folder's way since the checkpoint. A cut leaves it at any of its
// places, and another folder that was there before or after it at the same.
type track struct {
	at    []wspath.Path // the oldest first; history has it at the last
	ended bool          // another came to its last place
	later bool          // made at its first place since, after another had left it
	place bool          // no way: a folder that stands where one of a way was
}

func (t *track) last() wspath.Path { return t.at[len(t.at)-1] }

// tracks follows the folders through the moves since the checkpoint.
func (r *recovery) tracks() []*track {
	var out []*track
	for n, group := range r.moves {
		moved := make(map[*track]wspath.Path)
		for _, m := range group {
			t := trackAt(out, m.from)
			if t == nil {
				t = &track{at: r.camewith(n, m.from)}
				t.later = slices.ContainsFunc(out, func(o *track) bool { return o.at[0] == t.at[0] })
				out = append(out, t)
			}
			moved[t] = m.to
		}
		for _, t := range out {
			if _, itself := moved[t]; itself || t.ended {
				continue
			}
			for _, m := range group {
				if rel, ok := t.last().Rel(m.from); ok {
					moved[t] = m.to.Join(string(rel)) // the folder above took it along
				} else if t.last() == m.to {
					t.ended = true
				}
			}
		}
		for t, to := range moved {
			t.at = append(t.at, to)
		}
	}
	return out
}

func trackAt(list []*track, p wspath.Path) *track {
	for _, t := range list {
		if !t.ended && t.last() == p {
			return t
		}
	}
	return nil
}

// camewith gives the places that a folder had before a group of moves, as far
// as the folders above took it along; the last is its own.
func (r *recovery) camewith(group int, p wspath.Path) []wspath.Path {
	at := []wspath.Path{p}
	for n := group - 1; n >= 0; n-- {
		for _, m := range r.moves[n] {
			if rel, ok := at[0].Rel(m.to); ok && at[0] != m.to {
				at = slices.Insert(at, 0, m.from.Join(string(rel)))
				break
			}
		}
	}
	return at
}

// places gives where a folder may stand: at the names that it had, and there
// under a folder's new name, where the cut lost just its own move out of it.
func (r *recovery) places(t *track) []wspath.Path {
	out := slices.Clone(t.at)
	for _, group := range r.moves {
		for _, m := range group {
			for _, p := range out {
				if rel, ok := p.Rel(m.from); ok && p != m.from && !slices.Contains(out, m.to.Join(string(rel))) {
					out = slices.Insert(out, 0, m.to.Join(string(rel)))
					break
				}
			}
		}
	}
	return out
}

// folderMoves tells where the folders are that moved since the checkpoint, and
// takes them to where history has them.
type folderMoves struct {
	*recovery
	base   gitstore.Snapshot // at the checkpoint
	tracks []*track
	stands map[wspath.Path]*track // the folders on disk, by place
}

// moveFolders finishes the moves of folders as the renames that they are, so that
// what is in no history goes along. What is left at a place that history does
// not have is finished file by file.
func (r *recovery) moveFolders(ctx context.Context) error {
	if len(r.moves) == 0 && len(r.via) == 0 {
		return nil
	}
	f := &folderMoves{recovery: r, tracks: r.tracks(), stands: make(map[wspath.Path]*track)}
	if err := f.find(ctx); err != nil {
		return err
	}
	if err := f.along(); err != nil {
		return err
	}
	// The folders above come first: they take along what is in them.
	slices.SortStableFunc(f.tracks, func(a, b *track) int { return len(a.last().Components()) - len(b.last().Components()) })
	for range len(f.tracks) + 1 {
		again := false
		for _, t := range f.tracks {
			for p, is := range f.stands {
				if is != t || p == t.last() {
					continue
				}
				did, err := f.take(ctx, t, p)
				if err != nil {
					return err
				}
				if again = again || did; did {
					break
				}
			}
		}
		if !again {
			break
		}
	}
	for p, t := range f.stands {
		if t.place || p != t.last() {
			if err := f.leftOver(ctx, p, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// find looks which folder stands at each place.
func (f *folderMoves) find(ctx context.Context) error {
	claims := make(map[wspath.Path][]*track)
	for _, t := range f.tracks {
		for _, p := range f.places(t) {
			claims[p] = append(claims[p], t)
		}
	}
	for _, p := range f.via {
		if _, ok := claims[p]; !ok {
			claims[p] = nil
		}
	}
	id, err := f.w.store.CommitAt(ctx, f.from)
	if err == nil {
		f.base, err = f.w.store.SnapshotOf(ctx, id)
	}
	if err != nil && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Gone) {
		return err
	}
	var all []claim
	for p, list := range claims {
		is, err := f.w.lstatDirect(p)
		if err != nil {
			return err
		}
		if is.kind != KindDir {
			continue
		}
		there, err := f.holds(ctx, p)
		if err != nil {
			return err
		}
		// Whoever has no way, where no other has more of a right.
		f.stands[p] = &track{at: []wspath.Path{p}, place: true}
		if f.recorded(p) && !slices.ContainsFunc(list, func(t *track) bool { return t.last() == p }) {
			list = append(list, f.stands[p])
		}
		for _, t := range list {
			c, err := f.claim(p, there, t)
			if err != nil {
				return err
			}
			all = append(all, c)
		}
	}
	// Each folder stands once: those that are most like what history has first,
	// then those that are where they should be.
	slices.SortStableFunc(all, func(a, b claim) int {
		return cmp.Or(cmp.Compare(b.same, a.same), cmp.Compare(b.named, a.named), cmp.Compare(b.home(), a.home()),
			cmp.Compare(a.p, b.p), cmp.Compare(slices.Index(f.tracks, a.t), slices.Index(f.tracks, b.t)))
	})
	at, known := make(map[*track]bool), make(map[wspath.Path]bool)
	for _, c := range all {
		if !known[c.p] && !at[c.t] {
			known[c.p], at[c.t] = true, true
			f.stands[c.p] = c.t
		}
	}
	return nil
}

// recorded reports whether history has a folder at a path.
func (r *recovery) recorded(p wspath.Path) bool {
	e, ok, err := r.w.store.Snapshot().Lookup(p)
	return err == nil && ok && e.Mode == object.Dir
}

// claim is how much of what a folder holds is what history has of another.
type claim struct {
	p           wspath.Path
	t           *track
	same, named int // files
}

func (c claim) home() int {
	if c.t.last() == c.p {
		return 1
	}
	return 0
}

// A folder is told from another by this many of its files, read up to a size.
const (
	maxLikeFiles = 64
	maxLikeBytes = 1 << 20
)

// holds reads some of the files in a folder.
func (f *folderMoves) holds(ctx context.Context, dir wspath.Path) (map[wspath.Path]object.ID, error) {
	out := make(map[wspath.Path]object.ID)
	err := f.files(ctx, dir, func(p wspath.Path) error {
		rel, _ := p.Rel(dir)
		out[rel] = object.ID{}
		if s, err := f.w.lstatDirect(p); err == nil && s.info.Size <= maxLikeBytes && s.kind != KindSpecial && f.w.identify(ctx, p, &s) == nil {
			out[rel] = s.id
		}
		if len(out) == maxLikeFiles {
			return errStop
		}
		return nil
	})
	if err == errStop {
		err = nil
	}
	return out, err
}

// files walks the files and links in a folder.
func (r *recovery) files(ctx context.Context, dir wspath.Path, fn func(wspath.Path) error) error {
	if err := ctxErr(ctx); err != nil {
		return err
	}
	entries, err := r.w.fs.ReadDir(string(dir))
	if err != nil {
		if unlistable(err) {
			return nil
		}
		return errs.Wrap(err, string(dir))
	}
	for _, e := range entries {
		p := dir.Join(e.Name)
		switch {
		case wspath.IsTemp(e.Name), e.Name == ".git", r.w.IsOwn(p):
		case e.Type.IsDir():
			err = r.files(ctx, p, fn)
		case e.Type.IsRegular(), e.Type&fs.ModeSymlink != 0:
			err = fn(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *folderMoves) claim(p wspath.Path, there map[wspath.Path]object.ID, t *track) (claim, error) {
	c := claim{p: p, t: t}
	for rel, id := range there {
		list, err := f.known(t, rel)
		if err != nil {
			return c, err
		}
		if len(list) > 0 {
			c.named++
		}
		if slices.ContainsFunc(list, func(e gitstore.Entry) bool { return e.ID == id }) {
			c.same++
		}
	}
	return c, nil
}

// known gives a file of a folder as history has it now and had it at the
// checkpoint.
func (f *folderMoves) known(t *track, rel wspath.Path) (list []gitstore.Entry, err error) {
	for _, x := range []struct {
		snap gitstore.Snapshot
		dir  wspath.Path
	}{{f.w.store.Snapshot(), t.last()}, {f.base, t.at[0]}} {
		if x.snap == (gitstore.Snapshot{}) || t.later && x.snap == f.base {
			continue
		}
		e, ok, err := x.snap.Lookup(x.dir.Join(string(rel)))
		if err != nil {
			return nil, err
		}
		if ok && e.Mode != object.Dir {
			list = append(list, e)
		}
	}
	return list, nil
}

// take renames a folder from a place to where history has it.
func (f *folderMoves) take(ctx context.Context, t *track, from wspath.Path) (did bool, err error) {
	w, to := f.w, t.last()
	if e, ok, err := w.store.Snapshot().Lookup(to); err != nil || ok && e.Mode != object.Dir {
		return false, err // a file's place by now
	}
	if t.ended {
		return false, nil
	}
	if to.IsUnder(from) {
		return f.outOfTheWay(t, from)
	}
	is, err := w.lstatDirect(to)
	if err != nil || is.kind == KindSpecial {
		return false, err
	}
	other := f.stands[to]
	if is.kind == KindDir && (other == nil || other.place) && w.fs.Remove(string(to)) == nil {
		is = seen{} // an empty one, which it takes the place of
	}
	if is.kind == KindDir {
		if other == nil || other == t || from.IsUnder(to) || other.place && f.recorded(to) {
			return false, nil
		}
		switch err := w.fs.Exchange(string(from), string(to)); {
		case errors.Is(err, errors.ErrUnsupported), errors.Is(err, fs.ErrPermission):
			return false, nil // file by file
		case err != nil:
			return false, errs.Wrap(err, string(to))
		}
		f.moved(from, to, true)
		return true, nil
	}
	if is.kind != KindNone {
		// A file that has to go: it was moved away before.
		if v := f.paths[to]; v == nil {
			return false, nil
		} else if err := f.finish(ctx, to, v, true); err != nil {
			return false, err
		}
		if is, err = w.lstatDirect(to); err != nil || is.kind != KindNone {
			return false, err
		}
	}
	return f.rename(from, to)
}

// outOfTheWay renames a folder that comes to stand in itself to another of the names
// that it had on its way.
func (f *folderMoves) outOfTheWay(t *track, from wspath.Path) (did bool, err error) {
	for _, to := range t.at {
		if to.Within(from) || from.IsUnder(to) || f.recorded(to) {
			continue
		}
		if is, err := f.w.lstatDirect(to); err != nil || is.kind != KindNone {
			continue
		}
		if did, err := f.rename(from, to); did || err != nil {
			f.empty = append(f.empty, to.Dir())
			return did, err
		}
	}
	return false, nil
}

func (f *folderMoves) rename(from, to wspath.Path) (did bool, err error) {
	switch _, err := f.w.root.EnsureDir(to.Dir()); {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		return false, nil // a file stands where the folder above must be: it goes first, then file by file
	case err != nil:
		return false, errs.Wrap(err, string(to))
	}
	if err := f.w.fs.RenameNoReplace(string(from), string(to)); err != nil {
		return false, errs.Wrap(err, string(to))
	}
	f.moved(from, to, false)
	return true, nil
}

// moved notes a rename, or an exchange.
func (f *folderMoves) moved(from, to wspath.Path, both bool) {
	now := make(map[wspath.Path]*track, len(f.stands))
	for p, t := range f.stands {
		if rel, ok := p.Rel(from); ok {
			p = to.Join(string(rel))
		} else if rel, ok := p.Rel(to); ok && both {
			p = from.Join(string(rel))
		}
		now[p] = t
	}
	f.stands = now
	f.w.progress.dirty([]wspath.Path{from, to})
	f.w.progress.follow(from, to)
	if both {
		f.w.progress.follow(to, from)
	}
}

// along adds the places that a file may have come to with its folder: one that a
// change set first moved out of it, or deleted, stands in it still, under another
// of the folder's names, if the cut lost just that.
func (f *folderMoves) along() error {
	through := make(map[wspath.Path][]*track)
	places := make(map[*track][]wspath.Path, len(f.tracks))
	for _, t := range f.tracks {
		places[t] = f.places(t)
		for _, p := range places[t] {
			through[p] = append(through[p], t)
		}
	}
	more := make(map[wspath.Path]*versions)
	for p, v := range f.paths {
		for dir := range p.Ancestors() {
			for _, t := range through[dir] {
				rel, _ := p.Rel(dir)
				for _, other := range places[t] {
					at := other.Join(string(rel))
					if other == dir || f.paths[at] != nil {
						continue
					}
					if is, there, err := f.w.store.Snapshot().Lookup(at); err != nil {
						return err
					} else if there && is.Mode != object.Dir {
						continue
					}
					if more[at] == nil {
						more[at] = &versions{}
					}
					more[at].list = append(more[at].list, v.list...)
					more[at].several = more[at].several || v.several
				}
			}
		}
	}
	maps.Copy(f.paths, more)
	return nil
}

// leftOver has the files of a folder finished one by one that stands where
// history has none, as far as history had them in it.
func (f *folderMoves) leftOver(ctx context.Context, dir wspath.Path, t *track) error {
	if f.recorded(dir) {
		return nil
	}
	f.empty = append(f.empty, dir)
	return f.files(ctx, dir, func(p wspath.Path) error {
		for at := p.Dir(); at != dir && f.empty[len(f.empty)-1] != at; at = at.Dir() {
			f.empty = append(f.empty, at)
		}
		if f.paths[p] != nil {
			return nil
		}
		if t.place { // of whatever the change set moved through
			f.paths[p] = &versions{list: []gitstore.Entry{{}}, several: true}
			return nil
		}
		rel, _ := p.Rel(dir)
		list, err := f.known(t, rel)
		if err != nil {
			return err
		}
		for _, at := range t.at {
			if v := f.paths[at.Join(string(rel))]; v != nil {
				list = append(list, v.list...)
			}
		}
		if len(list) > 0 {
			f.paths[p] = &versions{list: list}
			return nil
		}
		return f.carry(p, t.last().Join(string(rel)))
	})
}

// carry takes a file that is in no history to where its folder should have gone,
// if there is room.
func (f *folderMoves) carry(from, to wspath.Path) error {
	if !f.recorded(to.Dir()) {
		return nil
	}
	if is, err := f.w.lstatDirect(to); err != nil || is.kind != KindNone {
		return err
	}
	_, err := f.rename(from, to)
	return err
}
