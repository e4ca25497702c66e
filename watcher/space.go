package watcher

import (
	"context"
	"slices"
	"strings"
	"sync"

	"umbra/internal/ignore"
	"umbra/internal/wspath"
)

// space is one workspace.
type space struct {
	id, root string
	opts     Space
	ctx      context.Context // ended by Remove and Close
	cancel   context.CancelFunc
	rootID   identity

	reporting sync.Mutex // held while callbacks run

	// Under Watcher.mu.
	dirs     map[wspath.Path]*dir
	closed   map[wspath.Path]bool // of them those that cannot be read any more
	ops      []op
	active   bool // a goroutine walks it, or it is in Watcher.ready
	removed  bool
	watching bool
	blind    Reason // why it is not trusted
	exclude  string // the folder watched for git's info/exclude
	pend     pending

	// Owned by the goroutine that made it active.
	rules *ignore.Dir
	index *ignore.Index
	cache map[wspath.Path]*ignore.Dir
	gen   uint32
}

// newSpace gives a space that is active until finish.
func newSpace(id, root string, opts Space) *space {
	s := &space{id: id, root: root, opts: opts, dirs: map[wspath.Path]*dir{}, active: true, watching: true}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// abs gives the absolute form of a path.
func (s *space) abs(path wspath.Path) string {
	switch {
	case path.IsRoot():
		return s.root
	case s.root == "/":
		return "/" + string(path)
	}
	return s.root + "/" + string(path)
}

func (s *space) pruned(path wspath.Path) bool { return s.opts.Prune != nil && s.opts.Prune(path) }

// setClosed notes whether a watched folder can be read. Called with the lock.
func (s *space) setClosed(path wspath.Path, closed bool) {
	if !closed {
		delete(s.closed, path)
		return
	}
	if s.closed == nil {
		s.closed = make(map[wspath.Path]bool)
	}
	s.closed[path] = true
}

// dir is a watched folder of one workspace.
type dir struct {
	path          wspath.Path
	watch         *watch
	up, first     *dir // the folder above, the first below
	before, after *dir // siblings
	gen           uint32
}

// watch is a watched folder of the system, for all workspaces that it is in.
type watch struct {
	abs  string
	id   inode
	refs int
}

// inode identifies a directory among those that exist at the same time.
type inode struct{ dev, ino uint64 }

// identity distinguishes a directory from any other that is or was at its path.
type identity struct {
	inode
	mount uint64
}

// attach makes the record of a watched folder. Called with the lock.
func (s *space) attach(path wspath.Path, x *watch) *dir {
	d := s.dirs[path]
	if d != nil {
		return d
	}
	// The path shares its bytes with the watch's, which lives as long.
	if !path.IsRoot() {
		path = wspath.Path(x.abs[len(x.abs)-len(path):])
	}
	d = &dir{path: path, watch: x}
	x.refs++
	s.dirs[path] = d
	if !path.IsRoot() {
		if d.up = s.dirs[path.Dir()]; d.up != nil {
			if d.after = d.up.first; d.after != nil {
				d.after.before = d
			}
			d.up.first = d
		}
	}
	return d
}

// detach drops the record of a folder without any below it, and its watch with
// the last record. Called with the lock.
func (w *Watcher) detach(s *space, d *dir) {
	delete(s.dirs, d.path)
	delete(s.closed, d.path)
	if d.before != nil {
		d.before.after = d.after
	} else if d.up != nil {
		d.up.first = d.after
	}
	if d.after != nil {
		d.after.before = d.before
	}
	w.release(d.watch)
}

func (w *Watcher) release(x *watch) {
	if x.refs--; x.refs > 0 {
		return
	}
	delete(w.watches, x.abs)
	if w.inodes[x.id] == x {
		delete(w.inodes, x.id)
	}
	// It fails where the system has dropped the watch with the folder.
	_ = w.src.Remove(x.abs)
}

// dropChunk is how many watches are dropped while the pump waits.
const dropChunk = 256

// dropTree drops a folder and all below it.
func (w *Watcher) dropTree(s *space, path wspath.Path) {
	for more := true; more; {
		more = w.dropSome(s, path)
	}
}

// dropSome drops the lowest folders first.
func (w *Watcher) dropSome(s *space, path wspath.Path) (more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	top := s.dirs[path]
	if top == nil {
		return false
	}
	d := top
	for range dropChunk {
		for d.first != nil {
			d = d.first
		}
		up := d.up
		w.detach(s, d)
		if d == top {
			return false
		}
		d = up
	}
	return true
}

// sweep drops the folders below one that the last walk did not come to.
func (w *Watcher) sweep(s *space, path wspath.Path) {
	w.mu.Lock()
	var stale []wspath.Path
	if top := s.dirs[path]; top != nil {
		for d := top; d != nil; d = next(d, top) {
			if d.gen != s.gen {
				stale = append(stale, d.path)
			}
		}
	}
	w.mu.Unlock()
	for _, p := range stale {
		w.dropTree(s, p)
	}
}

// next goes through a tree from the top down.
func next(d, top *dir) *dir {
	if d.first != nil {
		return d.first
	}
	for d != top {
		if d.after != nil {
			return d.after
		}
		d = d.up
	}
	return nil
}

// stopWatching gives all watches of a workspace back: half a tree watched would
// be no use, and others may need them.
func (w *Watcher) stopWatching(s *space, why Reason, err error) {
	w.dropTree(s, wspath.Root)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.removed || w.closed {
		return
	}
	s.watching, s.blind = false, why
	w.setExclude(s, "")
	w.note(s, func(p *pending) { p.lost = why })
	if why != WatchLimit {
		w.log.Warn("a workspace cannot be watched; it is scanned instead", "workspace", s.id, "reason", string(why), "error", err)
		return
	}
	if !w.limitLog {
		w.limitLog = true
		w.log.Warn("no more directories can be watched; such workspaces are scanned instead (see fs.inotify.max_user_watches)",
			"workspace", s.id, "watches", len(w.watches), "error", err)
	}
}

// setExclude watches another folder for git's info/exclude, or none. Called with
// the lock.
func (w *Watcher) setExclude(s *space, dir string) {
	if old := s.exclude; old != "" {
		unlist(w.excludes, old, s)
		if x := w.watches[old]; x != nil {
			w.release(x)
		}
	}
	s.exclude = ""
	if dir == "" || s.removed || w.closed || w.src.Add(dir) != nil {
		return
	}
	x := w.watches[dir]
	if x == nil {
		x = &watch{abs: dir}
		w.watches[dir] = x
	}
	x.refs++
	s.exclude = dir
	w.excludes[dir] = append(w.excludes[dir], s)
}

func unlist(m map[string][]*space, key string, s *space) {
	list := slices.DeleteFunc(slices.Clone(m[key]), func(o *space) bool { return o == s })
	if len(list) == 0 {
		delete(m, key)
		return
	}
	m[key] = list
}

// rel gives an event's path as seen from a root that it begins with.
func rel(root, name string) wspath.Path {
	if len(name) == len(root) {
		return wspath.Root
	}
	return wspath.Path(strings.TrimPrefix(name[len(root):], "/"))
}
