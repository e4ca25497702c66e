package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"umbra/gitstore/journal"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/refs"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
)

// start makes or opens the folder and brings the store to its newest durable
// commit.
func (s *Store) start(ctx context.Context) error {
	tail, err := s.openHeld(ctx)
	if err != nil {
		return err
	}
	if err := s.openRepo(ctx); err != nil {
		return err
	}
	if s.recovery.Purged, err = s.purger.Resume(ctx); err != nil {
		return err
	}
	if err := s.r.Packs.Load(); err != nil {
		return err
	}
	if err := s.nameHeld(tail); err != nil {
		return err
	}
	s.purger.Hide()
	if err := s.r.Large.Load(); err != nil {
		return err
	}
	if err := s.openBase(ctx); err != nil {
		return err
	}
	found, err := s.findJournals()
	if err != nil {
		return err
	}
	if err := s.r.LoadBoundary(ctx); err != nil {
		return err
	}
	values, err := s.lastValues()
	if err != nil {
		return err
	}
	if id, ok := values[refs.ShadowRef]; ok {
		if err := s.startFrom(ctx, id); err != nil {
			return err
		}
	} else if s.r.Base != nil {
		if err := s.startFromBase(ctx); err != nil {
			return err
		}
	}
	if err := s.r.LoadTasks(ctx, values); err != nil {
		return err
	}
	r := &replay{s: s, ctx: ctx, when: s.logs.lastWhen}
	for _, j := range found {
		if err := r.journal(j); err != nil {
			return err
		}
	}
	if err := s.checkHeld(tail); err != nil {
		return err
	}
	s.logs.lastWhen = r.when
	s.r.Large.Sweep()
	if s.r.Index, err = s.r.OpenRecords(); err != nil {
		return err
	}
	fill := s.r.Index.Fill
	if s.r.Held != nil {
		fill = s.r.Index.FillLater
	}
	if err := fill(ctx, s.Tip().Seq, s.Tip().Commit); err != nil {
		return err
	}
	return s.settle(ctx)
}

func (s *Store) openRepo(ctx context.Context) error {
	if err := s.r.FS.Mkdir(journal.Dir, 0o700); err == nil {
		if err := s.r.FS.SyncDir("."); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.r.OpenRefs(); err != nil {
		return err
	}
	if cleared, err := s.r.Refs.ClearStale(ctx); err != nil {
		return err
	} else if len(cleared) > 0 {
		s.r.Log.Warn("stale locks cleared", "locks", cleared)
	}
	var err error
	s.r.Note, err = refs.OpenNote(s.r.FS, "refs")
	return err
}

// lastValues gives our refs as last noted. Without a note (a repository that
// was copied alone) what is in the refs is taken.
func (s *Store) lastValues() (map[string]ID, error) {
	values := s.r.Note.All()
	delete(values, refs.Boundary)
	if len(values) > 0 {
		return values, nil
	}
	list, err := s.r.Refs.List("refs/")
	if err != nil {
		return nil, err
	}
	values = make(map[string]ID)
	for _, r := range list {
		if r.Name == refs.ShadowRef || strings.HasPrefix(r.Name, storedir.Tasks) {
			values[r.Name] = r.ID
		}
	}
	return values, nil
}

func (s *Store) startFrom(ctx context.Context, id ID) error {
	c, err := s.ReadCommit(ctx, id)
	if errs.Is(err, errs.NotFound) {
		return fmt.Errorf("the history's newest commit %s is in none of the store's packs: the repository is damaged", id)
	}
	if err != nil {
		return err
	}
	s.r.Head.Store(&Tip{Commit: id, Tree: c.Tree, Seq: c.Seq})
	s.logs.lastWhen = c.When
	return nil
}

// findJournals opens what journal/ holds, oldest first, and removes what a
// crash left that was never used.
func (s *Store) findJournals() ([]*journal.Journal, error) {
	names, err := s.r.FS.ReadDir(journal.Dir)
	if err != nil {
		return nil, err
	}
	var out []*journal.Journal
	shown := s.r.Note.Shown()
	s.logs.set.Skip(shown)
	for _, e := range names {
		name := path.Join(journal.Dir, e.Name)
		switch n, ok := journal.ParseName(e.Name); {
		case ok && n <= shown:
			if err := s.r.FS.Remove(name); err != nil {
				return nil, err
			}
		case ok:
			j, err := journal.Open(s.r.FS, n)
			if err != nil {
				return nil, err
			}
			out = append(out, j)
			s.logs.set.Skip(n)
		case strings.HasPrefix(e.Name, "tmp-"), strings.HasSuffix(e.Name, ".new"), storedir.StaleIdx(e.Name, shown):
			if err := s.r.FS.Remove(name); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(out, func(a, b *journal.Journal) int {
		if a.Number < b.Number {
			return -1
		}
		return 1
	})
	return out, nil
}

// settle closes the journals that the start found, so that their files are never
// appended to, and moves the refs that are not what the ref log says. One that
// another process moved is kept under refs/foreign.
func (s *Store) settle(ctx context.Context) error {
	p := &s.pub
	todo, err := s.detach()
	if err != nil {
		return err
	}
	todo.tip = s.Tip()
	s.r.TaskMap.Mu.Lock()
	for id, t := range s.r.TaskMap.ByID {
		if s.taskLags(id) {
			c := *t
			todo.tasks[id] = &c
		}
	}
	s.r.TaskMap.Mu.Unlock()
	if s.r.Note.Damage() {
		s.r.Warn("the file refs was damaged: refs may have older values than they had; umbra verify --repair looks for newer ones")
	}
	p.noted = s.Tip().Seq
	if err := s.expect(); err != nil {
		return err
	}
	noted, _ := s.r.Note.Get(refs.ShadowRef)
	p.kept = &todo
	ctx, cancel := context.WithTimeout(ctx, repo.LockPatience)
	defer cancel()
	failed, err := p.publish(ctx)
	if errs.CodeOf(err) == "ref_locked" { // a purge that cannot end: it is tried again
		p.retry()
		return nil
	}
	s.recovery.Foreign = int(p.foreign.Load())
	if err != nil || len(failed) > 0 || s.r.Held == nil && todo.through == 0 && noted == todo.tip.Commit {
		return err
	}
	foreign, err := s.r.Refs.EnsureLinks(ctx)
	s.reportForeign(foreign)
	return err
}

// taskLags reports whether a task's refs differ from the note; tasks.mu is held.
func (s *Store) taskLags(id string) bool {
	t := s.r.TaskMap.ByID[id]
	for which, want := range map[string]ID{"base": t.Base, "head": t.Head, "info": t.InfoTag} {
		if noted, _ := s.r.Note.Get(storedir.Tasks + id + "/" + which); noted != want {
			return true
		}
	}
	return false
}

// expect finds the refs that are not what the ref log says.
func (s *Store) expect() error {
	for name, noted := range s.r.Note.All() {
		if name == refs.Boundary {
			continue
		}
		now, _, found, err := s.r.Refs.Read(name)
		if _, damaged := errors.AsType[*refs.DamagedError](err); err != nil && !damaged {
			return err
		}
		if err != nil || !found || now != noted {
			s.r.Note.Expect(name)
		}
	}
	return nil
}

// replay brings the tip forward through one journal after the other.
type replay struct {
	s    *Store
	ctx  context.Context
	when time.Time

	j       *journal.Journal
	pending map[object.ID]journal.Loc // entries since the last commit or tag
	offsets map[int64]object.ID
	good    int64 // where the accepted entries end
}

var errNotNext = errors.New("not the next commit")

// journal accepts what the journal holds whole, and sees to the file.
func (r *replay) journal(j *journal.Journal) error {
	s := r.s
	sc, err := j.Scan(object.MaxMeta)
	if err != nil {
		return err
	}
	r.j, r.good = j, journal.HeaderLen
	r.pending, r.offsets = make(map[object.ID]journal.Loc), make(map[int64]object.ID)
	s.logs.closing = append(s.logs.closing, j)
	s.setLive()
	for {
		e, err := sc.Next()
		if err == io.EOF && len(r.pending) == 0 {
			return r.finish(false)
		}
		if err == io.EOF || errors.Is(err, pack.ErrTorn) {
			return r.finish(true)
		}
		if err != nil {
			return err
		}
		err = r.entry(e)
		if errors.Is(err, errNotNext) {
			return r.finish(true)
		}
		if err != nil {
			return err
		}
	}
}

// finish leaves a journal that can be closed: as it is after a clean end, cut
// to its good entries, in a new file, after another. The old one is kept aside.
func (r *replay) finish(torn bool) error {
	s, j := r.s, r.j
	if torn {
		aside := path.Join(journal.Dir, fmt.Sprintf("torn-%010d-%d", j.Number, s.r.Now().Unix()))
		if err := s.r.FS.Link(j.Name, aside); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		s.recovery.Torn = append(s.recovery.Torn, aside)
		s.r.Warn("journal %d did not end cleanly; its unacknowledged rest is kept as %s", j.Number, aside)
	}
	if j.Empty() {
		s.logs.closing = s.logs.closing[:len(s.logs.closing)-1]
		s.setLive()
		j.Close()
		return s.r.FS.Remove(j.Name)
	}
	if torn {
		sound, err := s.logs.set.Salvage(j)
		if err != nil {
			return err
		}
		s.logs.closing[len(s.logs.closing)-1] = sound
		s.setLive()
		j.Close()
	}
	return nil
}

// entry takes one entry of the scan.
func (r *replay) entry(e pack.Scanned) error {
	l := journal.Loc{Off: e.Offset, End: e.End, Kind: e.Header.Kind, CRC: e.CRC, Size: int64(len(e.Data))}
	data := e.Data
	switch e.Header.Kind {
	case pack.OfsDelta:
		base, ok := r.offsets[e.Offset-int64(e.Header.BaseDistance)]
		if !ok {
			return errNotNext
		}
		bt, err := r.tree(base) // only trees are written as deltas
		if err != nil {
			return errNotNext
		}
		if data, err = pack.ApplyDelta(bt.Bytes(), data); err != nil {
			return errNotNext
		}
		bl, _ := r.find(base)
		l.Kind, l.Base, l.Depth, l.Size = object.Tree, base, bl.Depth+1, int64(len(data))
	case pack.RefDelta:
		return errNotNext
	}
	id := object.Hash(l.Kind, data)
	r.offsets[e.Offset] = id
	r.pending[id] = l
	switch l.Kind {
	case object.Tree:
		t, err := object.NewTree(data)
		if err != nil {
			return errNotNext
		}
		r.s.r.Cached.Trees.Add(id, t)
	case object.Commit:
		if err := r.commit(id, data); err != nil {
			return err
		}
		r.accept(e.End)
	case object.Tag:
		if err := r.tag(id, data); err != nil {
			return err
		}
		r.accept(e.End)
	}
	return nil
}

func (r *replay) find(id object.ID) (journal.Loc, bool) {
	if l, ok := r.pending[id]; ok {
		return l, true
	}
	return r.j.Find(id)
}

func (r *replay) accept(end int64) {
	r.j.Accept(int(end-r.good), r.pending)
	endOf(r.j).add(r.s.Tip(), nil)
	r.good = end
	clear(r.pending)
}

// tree gives a tree of this journal, accepted or not, or an older one of the
// store.
func (r *replay) tree(id object.ID) (*object.TreeData, error) {
	l, ok := r.pending[id]
	if !ok {
		return r.s.r.Tree(id)
	}
	if t, ok := r.s.r.Cached.Trees.Get(id); ok {
		return t, nil
	}
	buf := make([]byte, l.End-l.Off)
	if _, err := r.j.ReadAt(buf, l.Off); err != nil {
		return nil, err
	}
	_, data, err := pack.InflateEntry(buf)
	if err != nil {
		return nil, err
	}
	if !l.Base.IsZero() {
		base, err := r.tree(l.Base)
		if err != nil {
			return nil, err
		}
		if data, err = pack.ApplyDelta(base.Bytes(), data); err != nil {
			return nil, err
		}
	}
	t, err := object.NewTree(data)
	if err == nil {
		r.s.r.Cached.Trees.Add(id, t)
	}
	return t, err
}

// commit checks that a commit is the next one and that all it brings is there.
func (r *replay) commit(id ID, data []byte) error {
	c, err := repo.ParseCommit(id, data)
	if err != nil {
		return errNotNext
	}
	tip := r.s.Tip()
	if c.Seq <= tip.Seq {
		// Shown already: the publication was cut off before the journal went.
		if f, err := r.s.r.Packs.Holding(id); err != nil {
			return err
		} else if f != nil {
			f.Release()
			return nil
		}
		return errNotNext
	}
	if c.Seq != tip.Seq+1 || c.Parent != tip.Commit {
		return errNotNext
	}
	if err := r.closed(tip.Tree, c.Tree); err != nil {
		return err
	}
	r.s.r.Head.Store(&Tip{Commit: id, Tree: c.Tree, Seq: c.Seq})
	r.s.recovery.Commits++
	r.when = c.When
	if m := c.Message; m.TaskID != "" {
		t := r.s.r.TaskMap.ByID[m.TaskID]
		if t == nil {
			return errNotNext
		}
		t.Head = id
		if m.Change > 0 {
			t.Changes = m.Change + uint64(m.EntryCount()) - 1
		}
	}
	return nil
}

// closed checks that every object which the new tree has and the old one has
// not is held by us. What a finished pack holds is whole by itself.
func (r *replay) closed(old, id ID) error {
	if old == id || id == object.EmptyTree && r.has(id) {
		return nil
	}
	if _, here := r.find(id); !here {
		return r.held(id)
	}
	t, err := r.tree(id)
	if err != nil {
		return errNotNext
	}
	var before *object.TreeData
	if !old.IsZero() && old != object.EmptyTree {
		if before, err = r.tree(old); err != nil {
			return err
		}
	}
	for i := range t.Len() {
		e := t.At(i)
		var was object.Entry
		if before != nil {
			was, _ = before.Find(e.Name)
		}
		if was.ID == e.ID {
			continue
		}
		if e.Mode == object.Dir {
			if was.Mode != object.Dir {
				was.ID = object.Zero
			}
			err = r.closed(was.ID, e.ID)
		} else if !r.has(e.ID) {
			err = r.held(e.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *replay) has(id ID) bool {
	_, ok := r.find(id)
	return ok
}

// held checks that an older journal, a finished pack or a large blob's pack
// holds an object; the large blob is kept.
func (r *replay) held(id ID) error {
	for _, j := range *r.s.r.Live.Load() {
		if _, ok := j.Find(id); ok {
			return nil
		}
	}
	if r.s.r.Large.Keep(id) {
		return nil
	}
	f, err := r.s.r.Packs.Holding(id)
	if err != nil {
		return err
	}
	if f != nil {
		f.Release()
		return nil
	}
	if ok, err := r.s.r.HasBaseObject(id); err != nil || ok {
		return err
	}
	return errNotNext
}

func (r *replay) tag(id ID, data []byte) error {
	tag, err := object.ParseTag(data)
	if err != nil {
		return errNotNext
	}
	info, err := message.ParseInfo(tag.Message)
	if err != nil || tag.Name != info.TagName() || (!r.has(tag.Object) && r.held(tag.Object) != nil) {
		return errNotNext
	}
	t := r.s.r.TaskMap.ByID[info.TaskID]
	if t == nil {
		t = &Task{ID: info.TaskID, Base: tag.Object, Head: tag.Object}
		r.s.r.TaskMap.ByID[info.TaskID] = t
	}
	if info.BaseWas != "" && t.Base != tag.Object {
		// The history before it was dropped, or is to be. The tags before this
		// one are on what goes.
		t.Base, t.Past = tag.Object, nil
	} else if !t.InfoTag.IsZero() && id != t.InfoTag {
		t.Past = append(t.Past, t.InfoTag)
	}
	t.InfoTag, t.Info = id, *info
	return nil
}
