package watcher

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/wspath"
)

// toEnter is a folder that is still to be watched and listed.
type toEnter struct {
	path  wspath.Path
	above *ignore.Dir // the rules of the folder it is in
}

// errLimit is returned instead of ENOSPC where the limit is our own.
var errLimit = errors.New("limit of watches reached")

// errAliased says that a folder is watched under another name already.
var errAliased = errors.New("directory is watched under another name")

// walk watches a directory and those below it that are wanted, each before it is
// listed. Where watches run out, the workspace is no longer watched, which is
// reported and is no failure.
func (w *Watcher) walk(s *space, path wspath.Path, above *ignore.Dir) error {
	pending := []toEnter{{path, above}}
	for len(pending) > 0 {
		if err := context.Cause(s.ctx); err != nil {
			return err
		}
		last := len(pending) - 1
		e := pending[last]
		pending[last] = toEnter{}
		pending = pending[:last]
		below, err := w.folder(s, e)
		switch {
		case err == nil:
			pending = append(pending, below...)
		case isLimit(err):
			w.stopWatching(s, WatchLimit, err)
			return nil
		case errors.Is(err, errAliased) && e.path.IsRoot():
			w.stopWatching(s, Aliased, err)
			return nil
		case e.path.IsRoot() && isVanished(err):
			w.gone(s)
			return nil
		case s.ctx.Err() != nil, e.path.IsRoot():
			return err
		case isVanished(err), errors.Is(err, fs.ErrPermission):
			// Rights that come back are an event.
		case errors.Is(err, errAliased):
			w.blinded(s, e.path, Aliased, err)
		case errors.Is(err, syscall.ENAMETOOLONG):
			w.blinded(s, e.path, TooDeep, err)
		default:
			w.blinded(s, e.path, Failed, err)
		}
	}
	return nil
}

// blinded notes that a folder cannot be watched, and says so for the first one.
func (w *Watcher) blinded(s *space, path wspath.Path, why Reason, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.blind == "" || s.blind == FileSystem {
		s.blind = why
		w.log.Warn("a directory cannot be watched; the workspace is scanned more often", "workspace", s.id, "path", string(path), "reason", string(why), "error", err)
	}
}

// folder watches one folder, lists it, and gives the folders in it that are to
// be watched.
func (w *Watcher) folder(s *space, e toEnter) ([]toEnter, error) {
	f, err := w.enter(s, e.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var names []string
	var ruled [2]bool // has .gitignore, .umbraignore
	for {
		list, err := f.ReadDir(1024)
		for _, d := range list {
			switch name := d.Name(); {
			case d.IsDir():
				names = append(names, name)
			case name == ignore.GitFile:
				ruled[0] = true
			case name == ignore.UmbraFile:
				ruled[1] = true
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	rules := s.rules
	if !e.path.IsRoot() && e.above != nil {
		rules, err = e.above.ChildHaving(e.path.Base(), func(file string) bool {
			return file == ignore.GitFile && ruled[0] || file == ignore.UmbraFile && ruled[1]
		})
		if err != nil {
			return nil, errs.Wrap(err, string(e.path))
		}
	}
	var below []toEnter
	for _, name := range names {
		if p := e.path.Join(name); s.wanted(p, rules) && s.abs(p) != w.cookies.dir {
			below = append(below, toEnter{path: p, above: rules})
		}
	}
	return below, nil
}

// enter watches a folder and opens it for listing.
func (w *Watcher) enter(s *space, path wspath.Path) (*os.File, error) {
	abs := s.abs(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.removed || w.closed {
		return nil, closedError()
	}
	if !path.IsRoot() && s.dirs[path.Dir()] == nil {
		return nil, fs.ErrNotExist
	}
	x := w.watches[abs]
	if x == nil && w.opts.MaxWatches > 0 && len(w.watches) >= w.opts.MaxWatches {
		return nil, errLimit
	}
	if x != nil {
		// A directory that another workspace watches, or one that a refresh reaches.
		// If another exists there now, its watch is of no use.
		if now, err := identify(abs); err != nil || now.inode != x.id {
			_ = w.src.Remove(abs)
		}
	}
	if err := w.src.Add(abs); err != nil {
		return nil, err
	}
	f, id, err := w.openWatched(s, abs)
	if err != nil {
		if x == nil {
			_ = w.src.Remove(abs)
		}
		return nil, err
	}
	if x == nil {
		x = &watch{abs: abs}
		w.watches[abs] = x
	} else if w.inodes[x.id] == x {
		delete(w.inodes, x.id)
	}
	x.id = id
	w.inodes[id] = x
	s.attach(path, x).gen = s.gen
	return f, nil
}

// openWatched opens a folder that was just watched, and makes sure that its
// events bear this name: fsnotify keeps the first name of a folder that it
// meets under two.
func (w *Watcher) openWatched(s *space, abs string) (*os.File, inode, error) {
	f, err := openFolder(abs)
	if err != nil {
		return nil, inode{}, err
	}
	id, err := identifyFile(f)
	if err == nil && (abs == s.root || id.mount != s.rootID.mount || id.dev != s.rootID.dev) && !eventsComplete(f) {
		if s.blind == "" {
			s.blind = FileSystem
		}
	}
	other := w.inodes[id.inode]
	if err != nil || other == nil || other.abs == abs {
		return f, id.inode, closeUnless(f, err)
	}
	if there, err := identify(other.abs); err == nil && there.inode == id.inode {
		return nil, inode{}, closeUnless(f, errAliased)
	}
	// It was moved, and the event of that is on its way.
	delete(w.inodes, other.id)
	_ = w.src.Remove(other.abs)
	_ = w.src.Remove(abs)
	return f, id.inode, closeUnless(f, w.src.Add(abs))
}

// closeUnless closes a file where there is an error.
func closeUnless(f *os.File, err error) error {
	if err != nil {
		_ = f.Close()
	}
	return err
}

// isLimit reports whether an error means that no more watches can be set or
// directories opened: to go on would leave out a part of the tree.
func isLimit(err error) bool {
	return errors.Is(err, errLimit) || errors.Is(err, errNoSource) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
