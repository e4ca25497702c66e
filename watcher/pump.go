package watcher

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/fsnotify/fsnotify"

	"umbra/internal/ignore"
	"umbra/internal/wspath"
)

// moved are the events after which something else may exist at a name.
const moved = fsnotify.Create | fsnotify.Remove | fsnotify.Rename

// pump takes every event as it comes and only notes it, so that the kernel's
// queue is emptied faster than a build can fill it.
func (w *Watcher) pump() {
	for ev := range w.src.Events() {
		w.events.Add(1)
		w.event(ev)
	}
}

func (w *Watcher) event(ev fsnotify.Event) {
	name := ev.Name
	if strings.HasPrefix(name, "//") { // what is in a watched "/"
		name = name[1:]
	}
	slash := strings.LastIndexByte(name, '/')
	if slash < 0 {
		return
	}
	if w.cookies.seen(name[:slash], name[slash+1:], ev.Op) || wspath.IsTemp(name[slash+1:]) && !ev.Has(fsnotify.Remove|fsnotify.Rename) {
		return
	}
	// fsnotify keeps to itself that an event is of a folder.
	isDir, closed := false, false
	if ev.Has(fsnotify.Create | fsnotify.Chmod) {
		info, err := os.Lstat(name)
		isDir = err == nil && info.IsDir()
		closed = isDir && ev.Has(fsnotify.Chmod) && isClosed(name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.excludes[name[:slash]] {
		if name[slash+1:] == "exclude" {
			w.enqueue(s, op{kind: opRules, path: wspath.Root})
		}
	}
	// A folder may be in several workspaces, one in another.
	for at := name; ; {
		for _, s := range w.roots[at] {
			w.changed(s, rel(at, name), ev.Op, isDir, closed)
		}
		switch i := strings.LastIndexByte(at, '/'); {
		case at == "/":
			return
		case i == 0:
			at = "/"
		default:
			at = at[:i]
		}
	}
}

// isClosed reports whether a folder cannot be listed, or what is in it not be
// opened.
func isClosed(dir string) bool {
	const readAndSearch = 4 | 1 // access(2): R_OK, X_OK
	return errors.Is(syscall.Access(dir, readAndSearch), fs.ErrPermission)
}

// changed notes an event of one workspace; closed says that it is of a folder
// that cannot be read now. Called with the lock.
func (w *Watcher) changed(s *space, path wspath.Path, what fsnotify.Op, isDir, closed bool) {
	if path.IsRoot() {
		if what.Has(fsnotify.Remove | fsnotify.Rename | fsnotify.Create) {
			w.enqueue(s, op{kind: opLook, path: wspath.Root})
		}
		return
	}
	dir, base := path.Dir(), path.Base()
	if s.dirs[dir] == nil {
		return // not watched for this workspace
	}
	known := s.dirs[path] != nil
	switch {
	case known && !what.Has(moved):
		// A folder's own attributes are in no history, but what is in it may come
		// to be hidden, or be seen again.
		if s.closed[path] != closed && what.Has(fsnotify.Chmod) {
			s.setClosed(path, closed)
			w.note(s, func(p *pending) { p.mark(path, w.opts) })
		}
		return
	case known, isDir && !wspath.IsGitName(base) && !s.pruned(path):
		w.enqueue(s, op{kind: opLook, path: path})
		return
	case base == ".git" && dir.IsRoot() && what.Has(moved):
		w.enqueue(s, op{kind: opRules, path: wspath.Root})
		return
	case wspath.IsGitName(base), wspath.IsTemp(base), s.pruned(path):
		return
	}
	w.note(s, func(p *pending) { p.mark(path, w.opts) })
	if ignore.IsRuleFile(base) {
		w.enqueue(s, op{kind: opRules, path: dir})
	}
}
