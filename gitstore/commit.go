package gitstore

import (
	"context"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"umbra/gitstore/journal"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/overlay"
	"umbra/gitstore/pack"
	"umbra/gitstore/repo"
	"umbra/gitstore/sink"
	"umbra/internal/errs"
)

// Draft is one commit to be.
type Draft struct {
	// Edits of the tip's tree, applied in order.
	Edits []Edit
	// Message is all but Change and Seq, which the committer fills in.
	Message message.Message
	// Authored is git's author date; zero: the time of the commit.
	Authored time.Time
	// Entries is how many changelog entries the commit counts in its task.
	Entries int
	// AllowEmpty makes the commit even if the tree stays as it is.
	AllowEmpty bool
	// Root, if not zero, is the whole new tree, of objects that the store
	// holds durably already; Edits are ignored.
	Root ID
	// Must commits whatever the room: for what takes a change back, or keeps bytes
	// that are nowhere else.
	Must bool
	// Check, if set, is called by the committer just before the commit is
	// made, with the tree that it will change. Its error fails this draft
	// alone. It must not block.
	Check func(Snapshot) error
}

// Committed describes a commit that is durable.
type Committed struct {
	Commit, Parent, Tree ID
	Seq                  uint64    // number in the workspace, from 1
	Change               uint64    // id of its first entry in its task, 0 without a task
	When                 time.Time // whole seconds, UTC
	NoChange             bool      // the tree would have stayed: nothing was made
}

// pending is a draft or a task's record in the queue.
type pending struct {
	draft *Draft
	task  *taskPut
	cut   *cut
	hold  bool // nothing to commit: the others wait while it is waited for
	done  chan struct{}
	lead  chan struct{} // one place: it is this one's turn to commit for all
	out   Committed
	put   Task
	err   error
}

func newPending() *pending {
	return &pending{done: make(chan struct{}), lead: make(chan struct{}, 1)}
}

const (
	// maxGroup bounds how much one fdatasync carries, so that the first member
	// does not wait for a whole storm.
	maxGroup      = 512
	maxGroupBytes = 8 << 20
	// maxDeltaDepth is git's own default of a chain's length (gc.aggressive
	// excepted), after which a tree is written whole again.
	maxDeltaDepth = 50
)

// Commit queues a draft and returns when it is durable or has failed; a
// failed draft leaves no trace. A cancelled ctx takes it back only while it is
// queued. Any goroutine may call it.
func (s *Store) Commit(ctx context.Context, d Draft) (Committed, error) {
	for i := range d.Edits {
		if err := d.Edits[i].Blob.Err(); err != nil {
			return Committed{}, err
		}
	}
	d.pack(s)
	if n := d.newBytes(); n > 0 && !d.Must {
		if err := s.Room(n); err != nil {
			return Committed{}, err
		}
	}
	p := newPending()
	p.draft = &d
	if err := s.enqueue(ctx, p); err != nil {
		return Committed{}, err
	}
	return p.out, p.err
}

// enqueue puts a member into the queue and returns when it is answered. The
// first to come leads: it commits what queued in its own goroutine, which saves
// a lone writer two changes of goroutine, and hands the lead to the first of
// those who came meanwhile.
func (s *Store) enqueue(ctx context.Context, p *pending) error {
	s.queue.mu.Lock()
	if s.queue.stopped {
		s.queue.mu.Unlock()
		return errs.New(errs.Unavailable, "stopping", "The workspace is being unloaded.")
	}
	s.queue.list = append(s.queue.list, p)
	lead := !s.queue.led
	s.queue.led = true
	s.queue.mu.Unlock()
	if lead {
		s.leadGroup()
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-p.lead:
		s.leadGroup()
		return nil
	case <-ctx.Done():
	}
	if s.withdraw(p) {
		return errs.Wrap(context.Cause(ctx), "")
	}
	<-p.done
	return nil
}

// withdraw takes a member back that is still queued.
func (s *Store) withdraw(p *pending) bool {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	for i, q := range s.queue.list {
		if q != p {
			continue
		}
		s.queue.list = append(s.queue.list[:i], s.queue.list[i+1:]...)
		select {
		case <-p.lead:
			s.passLead()
		default:
		}
		return true
	}
	return false
}

// pause waits for what is being committed, and holds up whatever comes, until
// resume is called.
func (s *Store) pause(ctx context.Context) (resume func(), err error) {
	p := newPending()
	p.hold = true
	s.queue.mu.Lock()
	if s.queue.stopped {
		s.queue.mu.Unlock()
		return nil, errs.New(errs.Unavailable, "stopping", "The workspace is being unloaded.")
	}
	lead := !s.queue.led
	if s.queue.led = true; !lead {
		s.queue.list = append(s.queue.list, p)
	}
	s.queue.mu.Unlock()
	if !lead {
		select {
		case <-p.lead:
			s.queue.mu.Lock()
			s.queue.list = append(s.queue.list[:0], s.queue.list[1:]...) // it is the first
			s.queue.mu.Unlock()
		case <-ctx.Done():
			s.withdraw(p)
			return nil, errs.Wrap(context.Cause(ctx), "")
		}
	}
	return func() {
		s.queue.mu.Lock()
		defer s.queue.mu.Unlock()
		s.passLead()
	}, nil
}

// leadGroup commits one group, the leader's own member first in it, and passes
// the lead on.
func (s *Store) leadGroup() {
	s.queue.mu.Lock()
	batch := s.takeGroup()
	s.queue.mu.Unlock()
	defer func() {
		s.queue.mu.Lock()
		s.passLead()
		s.queue.mu.Unlock()
	}()
	s.commitGroup(batch)
}

// passLead gives the lead to the first waiting caller; queue.mu is held.
func (s *Store) passLead() {
	if len(s.queue.list) > 0 {
		s.queue.list[0].lead <- struct{}{}
		return
	}
	s.queue.led = false
	s.queue.idle.Broadcast()
}

// takeGroup cuts the next group off the queue; queue.mu is held.
func (s *Store) takeGroup() []*pending {
	n, bytes := 0, int64(0)
	for n < len(s.queue.list) && !s.queue.list[n].hold && n < maxGroup && (n == 0 || bytes < maxGroupBytes) {
		if d := s.queue.list[n].draft; d != nil {
			for i := range d.Edits {
				bytes += int64(len(d.Edits[i].Blob.entry))
			}
		}
		n++
	}
	batch := append([]*pending(nil), s.queue.list[:n]...)
	rest := copy(s.queue.list, s.queue.list[n:])
	clear(s.queue.list[rest:])
	s.queue.list = s.queue.list[:rest]
	return batch
}

func (s *Store) commitGroup(batch []*pending) {
	s.r.Committing.Lock()
	whole := false
	defer func() {
		if !whole { // a panic: what the journal holds past its end means nothing
			for _, p := range batch {
				p.err, p.out, p.put = errs.New(errs.Internal, "internal_error", "Something went wrong inside the server."), Committed{}, Task{}
			}
			if s.logs.open != nil {
				s.logs.open.Unsound = true
			}
		}
		s.r.Committing.Unlock()
		for _, p := range batch {
			close(p.done)
		}
	}()
	s.commitLocked(batch)
	whole = true
}

// commitLocked is commitGroup with committing held; every member has its answer after
// it.
func (s *Store) commitLocked(batch []*pending) {
	fail := func(err error) {
		for _, p := range batch {
			p.err = errs.Wrap(err, "")
		}
	}
	if err := s.ensureJournal(batch); err != nil {
		fail(err)
		return
	}
	g := s.newGroup()
	for _, p := range batch {
		g.add(p)
	}
	if len(g.buf) == 0 {
		s.acceptCut(g) // if no task reaches across it, nothing is written
		return
	}
	began := time.Now()
	if err := s.logs.open.Append(g.buf); err != nil {
		s.logs.open.Unsound = true
		for _, p := range g.members {
			p.err, p.out, p.put = errs.Wrap(err, ""), Committed{}, Task{}
		}
		s.r.Log.Error("append to journal failed", "journal", s.logs.open.Number, "error", err)
		if err := s.salvageOpen(); err != nil {
			s.r.Log.Error("journal not salvaged; tried again at the next write", "error", err)
		}
		return
	}
	if err := s.appendHeld(g); err != nil {
		for _, p := range g.members {
			p.err, p.out, p.put = errs.Wrap(err, ""), Committed{}, Task{}
		}
		return
	}
	s.opt.Meter.durable(g, began)
	s.accept(g)
}

// maxClosing is how many full journals may wait to be shown before no more is
// taken: what they hold is in history, but only this program can read it.
const maxClosing = 32

// ensureJournal sees to an open journal that is sound and has room.
func (s *Store) ensureJournal(batch []*pending) error {
	if err := s.salvageOpen(); err != nil {
		return err
	}
	want := int64(0)
	for _, p := range batch {
		want += 2 << 10
		if d := p.draft; d != nil {
			for i := range d.Edits {
				want += int64(len(d.Edits[i].Blob.entry)) + 256
			}
		}
	}
	if s.r.Held != nil {
		if err := s.r.Held.Writable(want); err != nil {
			return err
		}
	}
	full := int64(0)
	switch j := s.logs.open; {
	case j != nil && j.Used()+want <= j.Room:
		return nil
	case j != nil && j.Empty():
		return nil // too large for any journal made ahead: it grows
	case j != nil && len(s.logs.closing) >= maxClosing:
		if slices.ContainsFunc(batch, func(p *pending) bool { return p.draft == nil || !p.draft.Must }) {
			s.kickPublisher()
			return &errs.Error{Kind: errs.Unavailable, Code: "publishing_blocked",
				Detail: "History can no longer be shown to git, and too much of it waits; the server's log says why."}
		}
		return nil // it grows
	case j != nil:
		full = j.Room
		s.logs.closing = append(s.logs.closing, j)
		s.logs.open = nil
		s.setLive()
		s.kickPublisher()
	}
	j, err := s.logs.set.Rotate(full)
	if err != nil {
		return err
	}
	s.logs.open = j
	s.setLive()
	return nil
}

// group is what one write and one fdatasync make durable.
type group struct {
	s       *Store
	j       *journal.Journal
	buf     []byte
	objs    map[object.ID]journal.Loc
	trees   map[object.ID]*object.TreeData
	tip     Tip
	when    time.Time
	tasks   map[string]*Task // changed ones, as of this group
	members []*pending
	records []Record
	blobs   []Blob        // large ones that commits of the group need
	cut     *cut          // a move of the boundary
	rows    []sink.Record // of the sink's transaction
}

// maxBehind is by how much a commit's date may be later than the clock, for the
// sake of ascending dates.
const maxBehind = time.Hour

func (s *Store) newGroup() *group {
	tip := *s.r.Head.Load()
	when := s.r.Now().UTC().Truncate(time.Second)
	// git likes ordered dates, so a clock that is corrected by little is followed
	// late. One that was far ahead stamps no later commit: order is the number's.
	if behind := s.logs.lastWhen.Sub(when); behind > 0 && behind <= maxBehind {
		when = s.logs.lastWhen
	}
	return &group{s: s, j: s.logs.open, objs: make(map[object.ID]journal.Loc), trees: make(map[object.ID]*object.TreeData),
		tip: tip, when: when, tasks: make(map[string]*Task)}
}

// tree gives trees of this group first.
func (g *group) Tree(id object.ID) (*object.TreeData, error) {
	if t, ok := g.trees[id]; ok {
		return t, nil
	}
	return g.s.r.Tree(id)
}

// add makes a member's objects; a member that fails, or has nothing to commit,
// leaves nothing behind.
func (g *group) add(p *pending) {
	mark := len(g.buf)
	var made []object.ID
	track := func(id object.ID, l journal.Loc) {
		g.objs[id] = l
		made = append(made, id)
	}
	keep, err := false, error(nil)
	switch {
	case p.task != nil:
		keep, err = g.addTask(p, track)
	case p.cut != nil:
		keep, err = g.addCut(p.cut, track)
	default:
		keep, err = g.addDraft(p, track)
	}
	p.err = err
	if err == nil {
		// Also one that changes nothing: what it says of the tip holds only if
		// the group becomes durable.
		g.members = append(g.members, p)
	}
	if keep {
		return
	}
	g.buf = g.buf[:mark]
	for _, id := range made {
		delete(g.objs, id)
		delete(g.trees, id)
	}
}

func (g *group) has(id object.ID) (journal.Loc, bool) {
	if l, ok := g.objs[id]; ok {
		return l, true
	}
	return g.j.Find(id)
}

// emit appends an encoded entry.
func (g *group) emit(id object.ID, kind object.Kind, size int64, base object.ID, depth uint8, entry []byte, track func(object.ID, journal.Loc)) {
	off := g.j.End() + int64(len(g.buf))
	g.buf = append(g.buf, entry...)
	track(id, journal.Loc{Off: off, End: off + int64(len(entry)), Size: size, Kind: kind, Base: base, Depth: depth,
		CRC: crc32.ChecksumIEEE(entry)})
}

func (g *group) emitWhole(kind object.Kind, data []byte, track func(object.ID, journal.Loc)) object.ID {
	id := object.Hash(kind, data)
	if _, ok := g.has(id); !ok {
		g.emit(id, kind, int64(len(data)), object.Zero, 0, pack.AppendEntry(nil, kind, data, g.s.level(len(data))), track)
	}
	return id
}

// emitTree appends a tree, as a delta of the one that it came from if that
// is in this journal.
func (g *group) emitTree(t, base *object.TreeData, baseID object.ID, track func(object.ID, journal.Loc)) (object.ID, error) {
	id := t.ID()
	if _, ok := g.has(id); ok {
		g.trees[id] = t
		return id, nil
	}
	if err := checkTree(t); err != nil {
		return object.Zero, err
	}
	data := t.Bytes()
	if base != nil {
		if bl, ok := g.has(baseID); ok && bl.Depth < maxDeltaDepth {
			delta := object.SpliceDelta(base.Bytes(), data)
			if len(delta) < len(data)/2 {
				off := g.j.End() + int64(len(g.buf))
				g.emit(id, object.Tree, int64(len(data)), baseID, bl.Depth+1,
					pack.AppendOfsDelta(nil, uint64(off-bl.Off), delta, g.s.level(len(delta))), track)
				g.trees[id] = t
				return id, nil
			}
		}
	}
	g.emit(id, object.Tree, int64(len(data)), object.Zero, 0, pack.AppendEntry(nil, object.Tree, data, g.s.level(len(data))), track)
	g.trees[id] = t
	return id, nil
}

func (g *group) addDraft(p *pending, track func(object.ID, journal.Loc)) (bool, error) {
	d := p.draft
	if d.Check != nil {
		if err := d.Check(repo.SnapshotOf(g, g.tip.Tree)); err != nil {
			return false, err
		}
	}
	task, err := g.taskOf(d.Message.TaskID)
	if err != nil {
		return false, err
	}
	if err := g.heldBlobs(d, track); err != nil {
		return false, err
	}
	root, err := g.rewrite(d, track)
	if err != nil {
		return false, err
	}
	if root == g.tip.Tree && !d.AllowEmpty && g.tip.Seq > 0 {
		p.out = Committed{Commit: g.tip.Commit, Parent: g.tip.Commit, Tree: root, Seq: g.tip.Seq, When: g.when, NoChange: true}
		return false, nil
	}
	m := d.Message
	m.Seq, m.Change = g.tip.Seq+1, 0
	if task != nil && d.Entries > 0 {
		m.Change = task.Changes + 1
	}
	id, err := g.emitCommit(&m, d.Authored, root, track)
	if err != nil {
		return false, err
	}
	p.out = Committed{Commit: id, Parent: g.tip.Commit, Tree: root, Seq: m.Seq, Change: m.Change, When: g.when}
	g.tip = Tip{Commit: id, Tree: root, Seq: m.Seq}
	if task != nil {
		task.Changes += uint64(d.Entries)
		task.Head = id
		g.tasks[task.ID] = task
	}
	for i := range d.Edits {
		if d.Edits[i].Blob.large != nil {
			g.blobs = append(g.blobs, d.Edits[i].Blob)
		}
	}
	if g.s.opt.CommitRecords != nil && g.s.r.Held != nil {
		g.rows = append(g.rows, g.s.opt.CommitRecords(&m)...)
	}
	g.records = append(g.records, repo.RecordOf(&Commit{ID: id, Seq: m.Seq, When: g.when, Message: &m}))
	return true, nil
}

// rewrite applies a draft's edits and appends the blobs and trees they need.
func (g *group) rewrite(d *Draft, track func(object.ID, journal.Loc)) (object.ID, error) {
	if !d.Root.IsZero() {
		return d.Root, nil
	}
	if len(d.Edits) == 0 {
		if g.tip.Seq > 0 {
			return g.tip.Tree, nil
		}
	}
	o, err := overlay.New(g.Tree, g.tip.Tree)
	if err != nil {
		return object.Zero, err
	}
	for i := range d.Edits {
		e := &d.Edits[i]
		if err := e.apply(o); err != nil {
			return object.Zero, err
		}
		if e.MoveTo != "" || e.Mode == 0 {
			continue
		}
		if e.Blob.entry == nil {
			if err := g.s.r.StillThere(e.Blob.id); err != nil {
				return object.Zero, err
			}
			continue
		}
		if _, ok := g.has(e.Blob.id); !ok {
			g.emit(e.Blob.id, object.Blob, e.Blob.size, object.Zero, 0, e.Blob.entry, track)
		}
	}
	return o.Write(func(t, base *object.TreeData, baseID object.ID) (object.ID, error) {
		return g.emitTree(t, base, baseID, track)
	})
}

func (g *group) emitCommit(m *message.Message, authored time.Time, tree object.ID, track func(object.ID, journal.Loc)) (object.ID, error) {
	actor := m.Actor
	if actor == "" && m.Source == message.External {
		actor = g.s.opt.Person
	}
	name, email := message.Author(actor)
	if a, ok := g.s.opt.Identities[actor]; ok {
		name, email = a.Name, a.Email
	}
	if authored.IsZero() {
		authored = g.when
	}
	c := object.CommitData{Tree: tree, Message: m.Encode(), Author: object.Signature{Name: name, Email: email, When: authored.UTC()}}
	cn, ce := message.Committer()
	c.Committer = object.Signature{Name: cn, Email: ce, When: g.when}
	if g.tip.Seq > 0 {
		c.Parents = []object.ID{g.tip.Commit}
	}
	data, err := c.Encode()
	if err != nil {
		return object.Zero, &errs.Error{Kind: errs.Invalid, Code: "validation_failed",
			Detail: "The actor is not valid in a commit.", Err: err}
	}
	return g.emitWhole(object.Commit, data, track), nil
}

// accept makes a durable group the store's state.
func (s *Store) accept(g *group) {
	g.j.Accept(len(g.buf), g.objs)
	endOf(g.j).add(g.tip, g.tasks)
	s.copyGroup(g)
	for id, t := range g.trees {
		s.r.Cached.Trees.Add(id, t)
	}
	for _, b := range g.blobs {
		b.large.Commit()
	}
	s.logs.lastWhen = g.when
	s.r.TaskMap.Mu.Lock()
	maps.Copy(s.r.TaskMap.ByID, g.tasks)
	s.r.TaskMap.Mu.Unlock()
	s.acceptCut(g)
	s.r.Index.Append(g.records)
	s.r.MoveTip(g.tip)
	s.noteActivity()
	if g.j.HalfFull() && !s.logs.set.IsReady() {
		s.kickPublisher()
	}
}
