package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/scan"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/index"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// candidate is a path whose disk may differ from the tip.
type candidate struct {
	path wspath.Path
	seen disk.Seen // kind none: gone
	// old says that the file was there when the folder was last compared: it
	// is captured only because a rule changed.
	old bool
	// blob has the file's bytes as seen, if captured.
	blob     gitstore.Blob
	captured bool
}

// scanner compares the disk with one tree: all of it, or a few paths.
type scanner struct {
	r       *Reconciler
	tip     gitstore.Snapshot
	workers int  // 0: one a processor
	readNew bool // also of files that are new, whether they can be recorded
	stats   scan.Stats
	skipped disk.Skips
	tracked atomic.Int64
	known   int64 // what was on disk then was compared; 0: nothing was
	// unreported reports whether no event named a path; nil: all were named.
	unreported func(wspath.Path) bool

	mu sync.Mutex
	// expected are the folders of the tree that the walk should come to, visited
	// those that it came to, unread those that could not be listed.
	expected []wspath.Path
	visited  map[wspath.Path]bool
	unread   map[wspath.Path]bool
	met      map[wspath.Path]bool // single files that were there
	list     []candidate
}

func (r *Reconciler) newScanner(gentle bool) *scanner {
	s := &scanner{r: r, tip: r.Disk.Store.Snapshot(), known: r.knownAt.Load(), visited: make(map[wspath.Path]bool), unread: make(map[wspath.Path]bool)}
	if gentle {
		s.workers = 1
	}
	return s
}

// find walks the folder, without locks, and gathers what may differ.
func (s *scanner) find(ctx context.Context) error {
	s.expected = []wspath.Path{wspath.Root}
	err := s.walk(func(o scan.Options) (scan.Stats, error) { return scan.Walk(ctx, s.r.Disk.FS, o, s.single) })
	if err == nil {
		err = s.unvisited(ctx)
	}
	if err != nil {
		return err
	}
	return s.identify(ctx)
}

// findPaths is find for a few paths with what is under them.
func (s *scanner) findPaths(ctx context.Context, paths []wspath.Path) error {
	s.met = make(map[wspath.Path]bool)
	var rest []wspath.Path
	linked := make(map[uint64]bool)
	glance := func(paths []wspath.Path) error {
		for _, p := range paths {
			now, done, err := s.glance(p)
			if err != nil {
				return err
			}
			if !done {
				rest = append(rest, p)
			}
			if !done && now.Kind == op.KindFile && now.Info.Nlink > 1 {
				linked[now.Info.Ino] = true
			}
		}
		return nil
	}
	if err := glance(paths); err != nil {
		return err
	}
	if len(linked) > 0 { // no event names the other names of a file that was written to by one
		more := s.r.Disk.Index.Names(linked)
		if err := glance(more); err != nil {
			return err
		}
		slices.Sort(rest)
		rest = slices.Compact(rest)
	}
	if len(rest) == 0 {
		return nil
	}
	err := s.walk(func(o scan.Options) (scan.Stats, error) { return scan.Paths(ctx, s.r.Disk.FS, o, rest, s.single) })
	if err != nil {
		return err
	}
	for _, p := range rest {
		tip, ok, err := s.tip.Lookup(p)
		switch {
		case err != nil:
			return err
		case !ok:
		case tip.Mode == object.Dir:
			s.expected = append(s.expected, p)
		case !s.met[p]:
			s.gone(p)
		}
	}
	if err := s.unvisited(ctx); err != nil {
		return err
	}
	return s.identify(ctx)
}

// glance settles what needs no rules to be known: our own writes mostly, which
// raise events as anyone's do, and what came and went.
func (s *scanner) glance(p wspath.Path) (now disk.Seen, done bool, err error) {
	if p.IsRoot() {
		return now, false, nil
	}
	if s.r.Disk.IsOwn(p) || wspath.IsTemp(p.Base()) {
		return now, true, nil
	}
	tip, tracked, err := s.tip.Lookup(p)
	if err != nil || tracked && tip.Mode == object.Dir {
		return now, false, err
	}
	now, err = s.r.Disk.Lstat(p)
	switch {
	case err != nil:
		return now, false, nil // the walk reports why
	case now.Kind == op.KindNone:
		return now, !tracked, nil
	case !tracked || now.Kind != op.KindFile || now.Mode != tip.Mode:
		return now, false, nil
	}
	id, known := s.r.Disk.Index.Lookup(p, now.Info)
	return now, known && id == tip.ID, nil
}

// walk calls a walk with what it has to know of the workspace.
func (s *scanner) walk(do func(scan.Options) (scan.Stats, error)) error {
	rules, index, err := s.r.Disk.Rules()
	if err != nil {
		return err
	}
	var failed error
	var once sync.Once
	kind := func(p wspath.Path) object.Mode {
		e, _, err := s.tip.Lookup(p)
		if err != nil {
			once.Do(func() { failed = err })
		}
		return e.Mode
	}
	s.stats, err = do(scan.Options{Rules: rules, Index: index, Prune: s.r.Disk.IsOwn, Workers: s.workers, Folder: s.folder,
		Tracked:      func(p wspath.Path) bool { m := kind(p); return m != 0 && m != object.Dir },
		TrackedUnder: func(p wspath.Path) bool { return kind(p) == object.Dir },
	})
	if err == nil {
		err = failed
	}
	return errs.Wrap(err, "")
}

// single is called with paths that were asked for, and with directories that cannot be
// listed.
func (s *scanner) single(f scan.Found) error {
	if f.Skip != "" {
		s.skipped.Add(f.Path, string(f.Skip))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unread[f.Path] = true
		return nil
	}
	tip, _, err := s.tip.Lookup(f.Path)
	if err != nil {
		return err
	}
	id, known := s.r.Disk.Index.Lookup(f.Path, f.Info)
	if s.compare(f.Path, f.Info, object.Entry{Mode: tip.Mode, ID: tip.ID}, id, known) {
		s.tracked.Add(1)
	}
	if s.met != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.met[f.Path] = true
	}
	return nil
}

// compare notes a file or link that differs from the tip's entry, as far as its
// stat reports; tracked says that the tip has it.
func (s *scanner) compare(p wspath.Path, info vfs.Info, tip object.Entry, id object.ID, known bool) (tracked bool) {
	tracked = tip.Mode != 0 && tip.Mode != object.Dir
	mode := disk.GitMode(info)
	if tracked && known && mode == tip.Mode && id == tip.ID && mode != object.Symlink {
		return true
	}
	c := candidate{path: p, seen: disk.Seen{Kind: disk.KindOf(info.Mode), Info: info, Mode: mode}}
	if !tracked {
		if c.seen.Kind == op.KindFile && info.Size > s.r.Limits.CaptureBytes {
			s.skipped.Add(p, "too_large")
			return false
		}
		c.old = s.known != 0 && info.CtimeNs < s.known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, c)
	return tracked
}

// gone notes a tracked file that the walk did not meet.
func (s *scanner) gone(p wspath.Path) {
	if s.r.Disk.IsOwn(p) {
		return
	}
	now, err := s.r.Disk.Lstat(p)
	if errors.Is(err, vfs.ErrEscapes) {
		now, err = disk.Seen{}, nil
	}
	if err != nil {
		return // not readable: nothing is known of it
	}
	c := candidate{path: p}
	if now.Kind == op.KindFile || now.Kind == op.KindSymlink {
		s.tracked.Add(1)
		c.seen = now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, c)
}

// folderLook compares the listing of one folder with its tree and with what the
// index knows. All three are in the order of names, but for the tree's folders.
type folderLook struct {
	s     *scanner
	dir   wspath.Path
	tree  *object.TreeData
	at    int // the next entry of the tree
	known []index.File
	files int64
	below []wspath.Path // the tree's folders
}

func (s *scanner) folder(dir wspath.Path) (func(scan.Found) error, func() error, error) {
	tree, err := s.tip.Folder(dir)
	if err != nil {
		return nil, nil, err
	}
	f := &folderLook{s: s, dir: dir, tree: tree, known: s.r.Disk.Index.Files(dir)}
	return f.visit, f.done, nil
}

func (f *folderLook) visit(found scan.Found) error {
	if found.Skip != "" {
		f.s.skipped.Add(found.Path, string(found.Skip))
		return nil
	}
	name := found.Path.Base()
	var tip object.Entry
	if e, ok := f.advance(name); ok {
		tip = e
		f.files++
	}
	for len(f.known) > 0 && f.known[0].Name < name {
		f.known = f.known[1:]
	}
	var id object.ID
	known := len(f.known) > 0 && f.known[0].Name == name && f.known[0].Holds(found.Info)
	if known {
		id = f.known[0].ID
	}
	f.s.compare(found.Path, found.Info, tip, id, known)
	return nil
}

// advance passes the tree's entries before a name, which were not met, and
// gives that of the name if it is a file.
func (f *folderLook) advance(name string) (object.Entry, bool) {
	for ; f.at < f.tree.Len(); f.at++ {
		e := f.tree.At(f.at)
		switch c := strings.Compare(e.Name, name); {
		case e.Mode == object.Dir:
			f.below = append(f.below, f.dir.Join(e.Name))
		case name == "" || c < 0:
			f.s.gone(f.dir.Join(e.Name))
		case c == 0:
			f.at++
			return e, true
		default:
			return object.Entry{}, false
		}
	}
	return object.Entry{}, false
}

func (f *folderLook) done() error {
	f.advance("")
	f.s.tracked.Add(f.files)
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.s.visited[f.dir] = true
	f.s.expected = append(f.s.expected, f.below...)
	return nil
}

// unvisited finds the tree's folders that are no more, with all their files.
func (s *scanner) unvisited(ctx context.Context) error {
	for _, dir := range s.expected {
		if err := ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		if s.visited[dir] || s.unread[dir] || s.r.Disk.IsOwn(dir) {
			continue
		}
		// A folder that is there again, or that is not known of, is left to
		// the next look.
		if now, err := s.r.Disk.Lstat(dir); err != nil || now.Kind == op.KindDir {
			if real, err := s.r.realDir(dir); err != nil || real {
				continue
			}
		}
		err := s.tip.Walk(dir, func(e gitstore.Entry) error {
			s.list = append(s.list, candidate{path: e.Path})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// realDir reports whether a path is a folder, and so is all that leads to it:
// no link is on the way.
func (r *Reconciler) realDir(p wspath.Path) (bool, error) {
	for at := p; !at.IsRoot(); at = at.Dir() {
		now, err := r.Disk.Lstat(at)
		if errors.Is(err, syscall.ELOOP) || errors.Is(err, vfs.ErrEscapes) {
			return false, nil // a link in a circle, or out of the workspace, is on the way
		}
		if err != nil || now.Kind != op.KindDir {
			return false, err
		}
	}
	return true, nil
}

// identify reads tracked files whose stat data do not prove their content, and keeps
// only what differs.
func (s *scanner) identify(ctx context.Context) error {
	list := s.list
	keep := make([]bool, len(list))
	err := scan.Spread(ctx, len(list), s.workers, func(ctx context.Context, i int) (err error) {
		keep[i], err = s.differs(ctx, &list[i])
		return err
	})
	if err != nil {
		return err
	}
	s.list = s.list[:0]
	for i, c := range list {
		if keep[i] {
			s.list = append(s.list, c)
		}
	}
	// A path that is gone may have been reported itself, and with each folder above it.
	slices.SortFunc(s.list, func(a, b candidate) int { return strings.Compare(string(a.path), string(b.path)) })
	s.list = slices.CompactFunc(s.list, func(a, b candidate) bool { return a.path == b.path })
	return nil
}

func (s *scanner) differs(ctx context.Context, c *candidate) (bool, error) {
	if c.seen.Kind == op.KindNone {
		return true, nil
	}
	e, ok, err := s.tip.Lookup(c.path)
	if err != nil || (!ok || e.Mode == object.Dir) && !s.readNew {
		return true, err // new: read once, when it is captured
	}
	if err := s.r.Disk.Identify(ctx, c.path, &c.seen); err != nil {
		reason, fatal := disk.SkipReason(err)
		if fatal {
			return false, err
		}
		if reason == "" {
			return true, nil // gone meanwhile: compared again under the lock
		}
		s.skipped.Add(c.path, reason)
		return false, nil
	}
	return e.ID != c.seen.ID || e.Mode != c.seen.Mode, nil
}
