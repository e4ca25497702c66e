package vfs

import "slices"

// A Mem's directories are on disk as of their last SyncDir. Later changes of their
// entries are in a log of operations, each of which a power failure keeps or drops
// whole, independently of the others: only a SyncDir between orders the creation
// of one name and that of another.
//
// Some order every disk keeps, or a rename would lose what it moves:
//   - operations on one and the same entry keep their order;
//   - one that moves something into a directory needs the mkdir of it and of
//     those above it;
//   - a directory's removal needs what emptied it;
//   - moves of directories between directories keep their order, or two of
//     them could make a ring.
//
// A link and a removal are two operations: a caller that makes a rename of them
// without a SyncDir between can lose both names.

// entryOp is one operation: a create, mkdir, link, removal, rename, exchange.
type entryOp struct {
	changes []entryChange
	needs   []*entryOp
	done    bool // it is on disk
}

// entryChange is what an operation does to one entry; nil is no entry.
type entryChange struct {
	dir           *node
	name          string
	before, after *node
}

// entryLog is a file system's operations that are not on disk yet, in order.
type entryLog struct {
	ops      []*entryOp
	pending  int
	lastMove *entryOp // of a directory to another directory
}

// dirLog is a directory's part.
type dirLog struct {
	disk map[string]*node    // the entries on disk
	last map[string]*entryOp // the last operation on an entry
	own  []*entryOp          // all operations on entries of this directory
	born *entryOp            // its mkdir
}

func (o *entryOp) need(other *entryOp) {
	if other != nil && other != o && !other.done && !slices.Contains(o.needs, other) {
		o.needs = append(o.needs, other)
	}
}

// record logs changes that the entries show already.
func (l *entryLog) record(changes []entryChange) {
	op := &entryOp{changes: changes}
	across := slices.ContainsFunc(changes, func(c entryChange) bool { return c.dir != changes[0].dir })
	for _, c := range changes {
		op.need(c.dir.last[c.name])
		if across {
			for d := c.dir; d != nil; d = d.parent {
				op.need(d.born)
			}
		}
		if c.before != nil && c.before.mode.IsDir() && c.before.nlink == 0 {
			for _, emptied := range c.before.own {
				op.need(emptied)
			}
		}
		if across && c.after != nil && c.after.mode.IsDir() {
			op.need(l.lastMove)
			l.lastMove = op
		}
	}
	for _, c := range changes {
		c.dir.last[c.name] = op
		if len(c.dir.own) == cap(c.dir.own) {
			c.dir.own = slices.DeleteFunc(c.dir.own, isDone)
		}
		c.dir.own = append(c.dir.own, op)
		c.hold(1)
	}
	if c := changes[0]; len(changes) == 1 && c.after != nil && c.after.mode.IsDir() {
		c.after.born = op
	}
	if len(l.ops) > 2*l.pending {
		l.ops = slices.DeleteFunc(l.ops, isDone)
	}
	l.ops = append(l.ops, op)
	l.pending++
}

func isDone(o *entryOp) bool { return o.done }

func (c entryChange) hold(n int) {
	if c.before != nil {
		c.before.logged += n
	}
	if c.after != nil {
		c.after.logged += n
	}
}

// commit puts an operation, and what it needs, on disk.
func (s *memState) commit(op *entryOp) {
	if op.done {
		return
	}
	op.done = true
	s.pending--
	for _, n := range op.needs {
		s.commit(n)
	}
	op.needs = nil
	for _, c := range op.changes {
		setEntry(c.dir.disk, c.name, c.after)
		c.hold(-1)
		if c.before != nil {
			s.reclaim(c.before)
		}
		if c.after != nil {
			s.reclaim(c.after)
		}
	}
}

func setEntry(entries map[string]*node, name string, n *node) {
	if n == nil {
		delete(entries, name)
	} else {
		entries[name] = n
	}
}

// syncDir is fsync of a directory.
func (s *memState) syncDir(d *node) {
	for _, op := range d.own {
		s.commit(op)
	}
	d.own = nil
	clear(d.last)
	d.diskMode = d.mode
}
