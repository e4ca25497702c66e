package exec

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// bitsFile of a layer has the permission bits of directories that an apply opened.
const bitsFile = "bits"

// ownerAll are the rights that a server without those of root needs in a directory to
// change what is in it.
const ownerAll = 0o700

// bits are the permission bits of directories, by path, from which their owner's rights
// were taken, and to which an apply gave them for its own time. They are written before
// that: an apply that is stopped leaves no directory open.
type bits struct {
	Upper map[string]uint32 `json:"upper"` // as the command left them, in the layer
	Root  map[string]uint32 `json:"root"`  // as they were in the workspace
}

// named returns the bits by paths in another form.
func (b bits) named(form func(path string) string) bits {
	out := bits{Upper: map[string]uint32{}, Root: map[string]uint32{}}
	for p, perm := range b.Upper {
		out.Upper[form(p)] = perm
	}
	for p, perm := range b.Root {
		out.Root[form(p)] = perm
	}
	return out
}

// bits reads what an apply of the layer opened; nothing if none did.
func (s *Service) bits(id string) (b bits, err error) {
	raw, err := os.ReadFile(s.path(id, bitsFile))
	if err == nil {
		err = json.Unmarshal(raw, &b)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return b.named(wspath.OfText), errs.Wrap(err, "")
}

// writeBits writes durably what is about to be opened.
func (s *Service) writeBits(id string, b *bits) error {
	if err := errors.Join(s.stepped(), s.anchor(id)); err != nil {
		return err
	}
	raw, err := json.Marshal(b.named(wspath.Text))
	if err != nil {
		return err
	}
	return errs.Wrap(writeDurably(s.path(id), bitsFile, raw), "")
}

// openUpper opens the layer's directories.
func (n *planner) openUpper() error {
	var list []string
	for p, perm := range n.dirs {
		if _, ok := n.opened.Upper[p]; !ok && perm&ownerAll != ownerAll {
			list = append(list, p)
			n.opened.Upper[p] = perm
		}
	}
	if len(list) > 0 {
		if err := n.note(&n.opened); err != nil {
			return err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(n.opened.Upper)) { // what is outside first
		err := os.Chmod(filepath.Join(n.upper, p), fs.FileMode(n.opened.Upper[p]|ownerAll))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.Wrap(err, p)
		}
	}
	return nil
}

// openRoot opens the workspace's directories in which the layer changes something.
func (n *planner) openRoot() error {
	all := maps.Clone(n.dirs)
	above := func(p string) {
		for p = path.Dir(p); p != "."; p = path.Dir(p) {
			if _, ok := all[p]; ok {
				return
			}
			all[p] = 0
		}
	}
	for p := range n.dirs {
		above(p)
	}
	for p := range n.touched {
		above(p)
	}
	for _, m := range n.p.moves {
		above(m.Path)
	}
	list, tried := sortedKeys(all), map[string]bool{} // what is outside first
	for {
		closed, seen := map[string]uint32{}, map[string]bool{".": true}
		for _, p := range list {
			if !seen[path.Dir(p)] {
				continue // what is above does not exist, or is to be opened first
			}
			info, err := os.Lstat(filepath.Join(n.w.Root(), p))
			if seen[p] = err == nil && info.IsDir(); seen[p] && uint32(info.Mode().Perm())&ownerAll != ownerAll && !tried[p] {
				closed[p], tried[p], seen[p] = uint32(info.Mode().Perm()), true, false
			}
		}
		if len(closed) == 0 {
			return nil
		}
		if err := n.openDirs(closed); err != nil {
			return err
		}
	}
}

// openDirs opens directories of the workspace. Those of another user stay as they are.
func (n *planner) openDirs(closed map[string]uint32) error {
	for p, perm := range closed {
		if _, ok := n.opened.Root[p]; !ok {
			n.opened.Root[p] = perm
		}
	}
	if err := n.note(&n.opened); err != nil {
		return err
	}
	root, err := os.OpenRoot(n.w.Root())
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer root.Close()
	for _, p := range sortedKeys(closed) {
		if err := openDir(root, p); err != nil {
			return errs.Wrap(err, p)
		}
	}
	return nil
}

// openDir opens a directory of the workspace durably: after a power failure the commit's
// files must be reached.
func openDir(root *os.Root, p string) error {
	info, err := root.Lstat(p)
	if err != nil || !info.IsDir() || info.Mode().Perm()&ownerAll == ownerAll {
		return ignoreGone(err)
	}
	if err := root.Chmod(p, info.Mode().Perm()|ownerAll); errors.Is(err, fs.ErrPermission) {
		return nil // another user's
	} else if err != nil {
		return ignoreGone(err)
	}
	d, err := root.Open(p)
	if err != nil {
		return ignoreGone(err)
	}
	return errors.Join(d.Sync(), d.Close())
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// openBelow opens a directory that was found to be in the place of a file of the layer.
func (n *planner) openBelow(p string, info fs.FileInfo) error {
	perm := uint32(info.Mode().Perm())
	if perm&ownerAll == ownerAll || n.note == nil {
		return nil
	}
	return n.openDirs(map[string]uint32{p: perm})
}

// closing are the moves that give opened directories their bits: those of the layer, or
// what they had.
func (n *planner) closing() (list []move) {
	add := func(p string, perm uint32) {
		if _, ok := n.perms[p]; !ok { // else it is among the moves
			list = append(list, move{Op: opChmod, Path: p, Perm: perm})
		}
	}
	for _, p := range sortedKeys(n.opened.Upper) {
		add(p, n.opened.Upper[p])
	}
	for _, p := range sortedKeys(n.opened.Root) {
		if _, ok := n.opened.Upper[p]; ok {
			continue
		}
		perm, ok := n.dirs[p]
		if !ok {
			perm = n.opened.Root[p]
		}
		add(p, perm)
	}
	return list
}

// insideFirst sorts moves so that what is in a directory comes before it.
func insideFirst(list []move) []move {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b move) int { return strings.Compare(b.Path, a.Path) })
	return list
}

// reopen opens again what a stopped apply closed already, so that it can be finished.
func reopen(root *os.Root, list []move) error {
	for _, m := range slices.Backward(insideFirst(list)) {
		if m.Op != opChmod {
			continue
		}
		if err := openDir(root, m.Path); err != nil {
			return errs.Wrap(err, m.Path)
		}
	}
	return nil
}

// settleBits closes what an apply that was stopped before it was decided had opened.
func (s *Service) settleBits(ctx context.Context, l *Layer) error {
	b, err := s.bits(l.ID)
	if err != nil || len(b.Root) == 0 {
		return err
	}
	w, err := s.o.Workspaces.Get(ctx, l.Workspace)
	if err != nil {
		return err
	}
	defer w.Release()
	return s.closeAgain(w, l.ID, func() (bool, error) { return false, nil })
}

// closeAgain gives the workspace's directories that an apply opened what they had, unless
// the layer is decided.
func (s *Service) closeAgain(w *workspace.Workspace, id string, decided func() (bool, error)) error {
	b, err := s.bits(id)
	if err != nil || len(b.Root) == 0 {
		return err
	}
	if is, err := decided(); err != nil || is {
		return err
	}
	root, err := os.OpenRoot(w.Root())
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer root.Close()
	for _, p := range slices.Backward(sortedKeys(b.Root)) {
		if err := s.stepped(); err != nil {
			return err
		}
		info, err := root.Lstat(p)
		if err != nil || !info.IsDir() || uint32(info.Mode().Perm()) != b.Root[p]|ownerAll {
			continue // another process changed it
		}
		if err := root.Chmod(p, fs.FileMode(b.Root[p])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.Wrap(err, p)
		}
	}
	b.Root = nil
	return s.writeBits(id, &b)
}
