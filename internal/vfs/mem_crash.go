package vfs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashMode says how a machine stops.
type CrashMode uint8

// The ways to stop.
const (
	// CrashRandom is a power cut: of what was not synced, Rand decides what
	// is left. Each entry change since the directory's last SyncDir may be
	// there or not (rename and exchange with both their sides); each file has
	// its synced bytes, its newest, or a torn mix.
	CrashRandom CrashMode = iota
	// CrashNothing is kill -9: the page cache stays, and stays unsynced, so
	// that a later crash of the clone may still lose it.
	CrashNothing
	// CrashSyncedOnly keeps nothing but what was synced.
	CrashSyncedOnly
	// CrashNamesOnly keeps every change of an entry and no byte that was not
	// synced: what RENAME_EXCHANGE without a write-out leaves on ext4.
	CrashNamesOnly
)

func (c CrashMode) String() string {
	names := [...]string{"random", "nothing", "synced-only", "names-only"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("CrashMode(%d)", c)
}

// CrashOptions choose one of the states that a crash may leave.
type CrashOptions struct {
	Mode CrashMode
	// Rand decides in CrashRandom. Nil is always the same sequence.
	Rand *rand.Rand
}

// CrashClone gives the whole file system (of a Sub too) as it may be after a
// crash at this moment. It shares nothing with the original, which goes on, with
// its open handles. After any power cut all that is left is durable. Inode
// numbers stay as they are.
func (m *Mem) CrashClone(opt CrashOptions) *Mem {
	if opt.Rand == nil {
		opt.Rand = rand.New(rand.NewPCG(1, 2))
	}
	m.s.mu.RLock()
	defer m.s.mu.RUnlock()
	c := &cloner{from: m.s, nodes: map[*node]*node{}, ops: map[*entryOp]*entryOp{}}
	if opt.Mode == CrashNothing {
		return c.finish(c.whole(), c.log())
	}
	return c.finish(c.afterCut(opt), entryLog{})
}

type cloner struct {
	from  *memState
	nodes map[*node]*node
	ops   map[*entryOp]*entryOp
}

func (c *cloner) finish(root *node, log entryLog) *Mem {
	s := &memState{opt: c.from.opt, root: root, next: c.from.next, entryLog: log}
	used := map[uint64]bool{}
	for _, n := range c.nodes {
		used[n.ino] = true
	}
	for ino := uint64(firstIno); ino < s.next; ino++ {
		if !used[ino] {
			s.free = append(s.free, ino)
		}
	}
	return &Mem{s: s, top: root}
}

// node copies what is a node's own; the links between nodes follow.
func (c *cloner) node(n *node) (clone *node, fresh bool) {
	if clone = c.nodes[n]; clone != nil {
		return clone, false
	}
	clone = &node{ino: n.ino, mode: n.mode, diskMode: n.diskMode, uid: n.uid, gid: n.gid,
		mtime: n.mtime, ctime: n.ctime, diskMtime: n.diskMtime, target: n.target}
	if n.mode.IsDir() {
		clone.entries = make(map[string]*node, len(n.entries))
		clone.disk = make(map[string]*node, len(n.entries))
		clone.last = map[string]*entryOp{}
	}
	c.nodes[n] = clone
	return clone, true
}

// whole copies everything that the root, or an operation in the log, leads to.
func (c *cloner) whole() *node {
	root := c.deep(c.from.root)
	for _, op := range c.from.ops {
		for _, ch := range op.changes {
			c.deep(ch.dir)
			c.deep(ch.before)
			c.deep(ch.after)
		}
	}
	return root
}

func (c *cloner) deep(n *node) *node {
	if n == nil {
		return nil
	}
	clone, fresh := c.node(n)
	if !fresh {
		return clone
	}
	clone.nlink, clone.logged = n.nlink, n.logged
	clone.data = fileData{cur: slices.Clone(n.data.cur), disk: slices.Clone(n.data.disk), dirty: slices.Clone(n.data.dirty)}
	clone.parent = c.deep(n.parent)
	for name, child := range n.entries {
		clone.entries[name] = c.deep(child)
	}
	for name, child := range n.disk {
		clone.disk[name] = c.deep(child)
	}
	return clone
}

// log copies the operations that are not on disk, between the copied nodes.
func (c *cloner) log() entryLog {
	l := entryLog{pending: c.from.pending}
	for _, op := range c.from.ops {
		if op.done {
			continue
		}
		clone := &entryOp{}
		c.ops[op] = clone
		l.ops = append(l.ops, clone)
		for _, ch := range op.changes {
			dir := c.nodes[ch.dir]
			clone.changes = append(clone.changes, entryChange{dir: dir, name: ch.name,
				before: c.nodes[ch.before], after: c.nodes[ch.after]})
			dir.own = append(dir.own, clone)
			dir.last[ch.name] = clone
		}
		for _, need := range op.needs {
			clone.need(c.ops[need]) // earlier in the log, or done
		}
	}
	for n, clone := range c.nodes {
		clone.born = c.ops[n.born]
	}
	l.lastMove = c.ops[c.from.lastMove]
	return l
}

// afterCut copies what the disk holds, with those operations that got there.
func (c *cloner) afterCut(opt CrashOptions) *node {
	disk := map[*node]map[string]*node{}
	kept := map[*entryOp]bool{}
	for _, op := range c.from.ops {
		if op.done || !c.survives(op, kept, opt) {
			continue
		}
		kept[op] = true
		for _, ch := range op.changes {
			entries := disk[ch.dir]
			if entries == nil {
				entries = make(map[string]*node, len(ch.dir.disk))
				maps.Copy(entries, ch.dir.disk)
				disk[ch.dir] = entries
			}
			setEntry(entries, ch.name, ch.after)
		}
	}
	root := c.rebuild(c.from.root, disk, opt)
	root.nlink += 2
	return root
}

func (c *cloner) survives(op *entryOp, kept map[*entryOp]bool, opt CrashOptions) bool {
	for _, need := range op.needs {
		if !need.done && !kept[need] {
			return false
		}
	}
	switch opt.Mode {
	case CrashSyncedOnly:
		return false
	case CrashNamesOnly:
		return true
	default:
		return opt.Rand.IntN(2) == 0
	}
}

// rebuild copies a node, and what is below it on disk. Names are taken in their
// order, so that the same Rand gives the same clone.
func (c *cloner) rebuild(n *node, disk map[*node]map[string]*node, opt CrashOptions) *node {
	clone, fresh := c.node(n)
	if !fresh {
		return clone
	}
	if n.mode != n.diskMode && (opt.Mode != CrashRandom || opt.Rand.IntN(2) == 0) {
		clone.mode = n.diskMode
	}
	clone.diskMode = clone.mode
	if n.mode.IsRegular() && n.mtime != n.diskMtime && (opt.Mode != CrashRandom || opt.Rand.IntN(2) == 0) {
		clone.mtime = n.diskMtime // as fdatasync leaves it
	}
	clone.diskMtime = clone.mtime
	if n.mode.IsRegular() {
		clone.data.disk = c.bytes(&n.data, opt)
		clone.data.cur = slices.Clone(clone.data.disk)
	}
	entries, ok := disk[n]
	if !ok {
		entries = n.disk
	}
	for _, name := range sortedKeys(entries) {
		child := c.rebuild(entries[name], disk, opt)
		clone.entries[name], clone.disk[name] = child, child
		child.attach(clone)
	}
	return clone
}

func (c *cloner) bytes(d *fileData, opt CrashOptions) []byte {
	if opt.Mode == CrashRandom {
		return d.afterCut(opt.Rand)
	}
	return slices.Clone(d.disk)
}
