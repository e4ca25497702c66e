package watcher

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/wspath"
)

type opKind uint8

const (
	opLook    opKind = iota // a name came, went or moved that is or was a folder
	opRules                 // rules of a folder changed
	opRenew                 // events were lost: look at everything again
	opBarrier               // report when everything before is done
)

// op is something to be done for a workspace, in order.
type op struct {
	kind   opKind
	path   wspath.Path
	reason Reason
	done   chan struct{}
}

// maxOps bounds a workspace's queue; beyond it everything is walked again instead.
const maxOps = 1 << 16

// enqueue adds something to do. Called with the lock.
func (w *Watcher) enqueue(s *space, o op) {
	if s.removed || w.closed || !s.watching && o.kind != opBarrier {
		if o.done != nil {
			close(o.done)
		}
		return
	}
	if s.queued(o) {
		return
	}
	if len(s.ops) >= maxOps {
		s.ops = slices.DeleteFunc(s.ops, func(o op) bool { return o.kind != opBarrier })
		s.ops = append(s.ops, op{kind: opRenew, path: wspath.Root, reason: Backlog})
	}
	s.ops = append(s.ops, o)
	if !s.active {
		s.active = true
		w.ready = append(w.ready, s)
		w.wake.Signal()
	}
}

// queued reports whether something that is still to be done does for another
// thing too.
func (s *space) queued(o op) bool {
	switch o.kind {
	case opLook:
		n := len(s.ops)
		return n > 0 && s.ops[n-1].kind == opLook && s.ops[n-1].path == o.path
	case opRules:
		return slices.ContainsFunc(s.ops, func(q op) bool { return q.kind == opRules && o.path.Within(q.path) })
	case opRenew:
		return slices.ContainsFunc(s.ops, func(q op) bool { return q.kind == opRenew })
	}
	return false
}

// finish ends a walk that Add made; what came meanwhile is done now.
func (w *Watcher) finish(s *space) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(s.ops) == 0 || s.removed || w.closed {
		w.rest(s)
		return
	}
	w.ready = append(w.ready, s)
	w.wake.Signal()
}

// rest makes a space inactive. Called with the lock.
func (w *Watcher) rest(s *space) {
	for _, o := range s.ops {
		if o.done != nil {
			close(o.done)
		}
	}
	s.ops, s.active, s.cache = nil, false, nil
	w.idle.Broadcast()
}

// work does what workspaces have to do, one workspace at a time.
func (w *Watcher) work() {
	for {
		w.mu.Lock()
		for len(w.ready) == 0 && !w.closed {
			w.wake.Wait()
		}
		if w.closed {
			for _, s := range w.ready {
				w.rest(s)
			}
			w.ready = nil
			w.mu.Unlock()
			return
		}
		s := w.ready[0]
		w.ready = slices.Delete(w.ready, 0, 1)
		w.mu.Unlock()
		for w.step(s) {
		}
	}
}

// step does the next thing of a workspace; false when there is none left.
func (w *Watcher) step(s *space) bool {
	w.mu.Lock()
	if len(s.ops) == 0 || s.removed || w.closed {
		w.rest(s)
		w.mu.Unlock()
		return false
	}
	o := s.ops[0]
	s.ops = s.ops[1:]
	w.mu.Unlock()

	var err error
	switch o.kind {
	case opLook:
		err = w.look(s, o.path)
	case opRules:
		if err = w.refresh(s, o.path); err == nil {
			w.notice(s, func(p *pending) { p.rules = true })
		}
	case opRenew:
		if err = w.refresh(s, wspath.Root); err == nil {
			w.notice(s, func(p *pending) { p.lost = o.reason })
		}
	case opBarrier:
		close(o.done)
	}
	// What could not be walked is left to scans, until Add.
	if err != nil && s.ctx.Err() == nil {
		w.stopWatching(s, Failed, err)
	}
	return true
}

// look finds what exists at a name now and watches it, if it is a directory that
// is to be watched. The name is dirty in any case.
func (w *Watcher) look(s *space, path wspath.Path) error {
	if path.IsRoot() {
		return w.refresh(s, path)
	}
	w.dropTree(s, path)
	defer w.notice(s, func(p *pending) { p.mark(path, w.opts) })
	w.mu.Lock()
	above := s.dirs[path.Dir()] != nil
	w.mu.Unlock()
	if !above {
		return nil // an event of the folder above is still to come
	}
	info, err := os.Lstat(s.abs(path))
	if err != nil || !info.IsDir() {
		return nil
	}
	rules, err := s.rulesOf(path.Dir())
	if err != nil {
		return err
	}
	if !s.wanted(path, rules) {
		return nil
	}
	return w.walk(s, path, rules)
}

// refresh walks a directory again: under the current rules, and keeping the
// watches that are right. It fails if the root is no longer readable; a root that
// disappeared is reported, and is no failure once it existed.
func (w *Watcher) refresh(s *space, path wspath.Path) error {
	s.cache = nil
	var above *ignore.Dir
	if path.IsRoot() {
		if now, err := identify(s.root); err != nil || now != s.rootID {
			w.gone(s)
			return nil
		}
		// Watched before it is read.
		w.watchExclude(s)
		if s.opts.Rules != nil {
			rules, index, err := s.opts.Rules()
			if err != nil {
				return err
			}
			s.rules, s.index = rules, index
		}
	} else {
		w.mu.Lock()
		watched := s.dirs[path] != nil
		w.mu.Unlock()
		if !watched {
			return nil
		}
		var err error
		if above, err = s.rulesOf(path.Dir()); err != nil {
			return err
		}
	}
	s.gen++
	if err := w.walk(s, path, above); err != nil {
		return err
	}
	w.sweep(s, path)
	return nil
}

// watchExclude watches where git's info/exclude is, if there is one.
func (w *Watcher) watchExclude(s *space) {
	dir := ""
	if s.opts.Rules != nil {
		if g, err := ignore.FindGitDir(s.root); err == nil && g.Common != "" && !g.Linked {
			dir = strings.TrimSuffix(g.Common, "/") + "/info"
			if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
				dir = ""
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Set again, since another directory may exist there now.
	w.setExclude(s, "")
	w.setExclude(s, dir)
}

// gone ends the watching of a workspace whose root disappeared, and reports it.
func (w *Watcher) gone(s *space) {
	w.dropTree(s, wspath.Root)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.removed || !s.watching {
		return
	}
	s.watching = false
	w.setExclude(s, "")
	w.note(s, func(p *pending) { *p = pending{gone: true} })
}

// wanted reports whether a folder is to be watched; rules are those of the
// folder that it is in, nil for none.
func (s *space) wanted(path wspath.Path, rules *ignore.Dir) bool {
	name := path.Base()
	if wspath.IsGitName(name) || wspath.IsTemp(name) || len(path) > wspath.MaxPath || s.pruned(path) {
		return false
	}
	if rules == nil {
		return true
	}
	v := rules.Match(name, true)
	if !v.Ignored() || s.opts.TrackedUnder != nil && s.opts.TrackedUnder(path) {
		return true
	}
	// The project's index has a say against git's rules only.
	return !v.ByUmbra() && !v.ByCodey() && s.index.HasUnder(path)
}

// maxCache bounds how many folders' rules are kept between two looks.
const maxCache = 64

// rulesOf gives the rules that hold in a folder, nil for none.
func (s *space) rulesOf(path wspath.Path) (*ignore.Dir, error) {
	if s.rules == nil || path.IsRoot() {
		return s.rules, nil
	}
	if d, ok := s.cache[path]; ok {
		return d, nil
	}
	above, err := s.rulesOf(path.Dir())
	if err != nil {
		return nil, err
	}
	d, err := above.Child(path.Base())
	if err != nil {
		return nil, errs.Wrap(err, string(path))
	}
	if s.cache == nil || len(s.cache) >= maxCache {
		s.cache = make(map[wspath.Path]*ignore.Dir)
	}
	s.cache[path] = d
	return d, nil
}

// isVanished reports whether an error means that something else exists at a name
// now, for which there is an event.
func isVanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || isNotFolder(err)
}
