package plan

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/content"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/index"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/wspath"
)

// OnDisk is a file, link or folder as the steps of a change set will find it:
// what comes out of an exchange must be this, or it is a user's. A step that
// puts a file there sets it.
type OnDisk struct {
	Info vfs.Info
	ID   object.ID
	Mode object.Mode
	Racy bool // the stat alone does not prove that the content is still the same
}

// Node is the state of a path of the view.
type Node struct {
	Kind    op.Kind
	Mode    object.Mode // git's, of files and links
	ID      object.ID   // of files and links; zero before identify
	perm    fs.FileMode
	size    int64
	disk    *OnDisk          // nil: nothing is there
	content *content.Content // set where this change set wrote it
	origin  wspath.Path      // where it was on disk before the change set; empty for what is new
	seen    *disk.Seen       // of a node that comes from the disk
	attrs   wspath.Path      // of new content: origin of the file that it replaced; empty: none
	chmod   bool             // the permission bits were changed, of a file from the disk
}

// View is the workspace as the operations of a change set see it: the disk,
// and over it what the operations before did. Nothing is changed by it.
type View struct {
	disk *disk.Disk
	tip  gitstore.Snapshot
	lock *pathlock.Lock

	seen  map[wspath.Path]*Node // reads the disk, so that each path is read once
	nodes byPath[*Node]         // what the change set did, by path afterwards
	// filled are directories that exist on disk, that history does not have, and
	// that the change set puts something into: where they were before. "" is one that
	// history has.
	filled map[wspath.Path]wspath.Path
}

func NewView(d *disk.Disk, tip gitstore.Snapshot, lock *pathlock.Lock) *View {
	return &View{disk: d, tip: tip, lock: lock, seen: make(map[wspath.Path]*Node), nodes: newByPath[*Node](), filled: make(map[wspath.Path]wspath.Path)}
}

// NeedLocks says that a request has to be planned again with more paths
// locked.
type NeedLocks struct{ Paths []wspath.Path }

func (n *NeedLocks) Error() string { return "workspace: more paths to lock" }

// covered sees to it that a path is locked.
func (v *View) covered(paths ...wspath.Path) error {
	var missing []wspath.Path
	for _, p := range paths {
		if !v.lock.Covers(p) {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		return &NeedLocks{Paths: missing}
	}
	return nil
}

// at gives what is at a path.
func (v *View) at(p wspath.Path) (*Node, error) {
	if p.IsRoot() {
		return &Node{Kind: op.KindDir, origin: wspath.Root}, nil
	}
	if n, ok := v.nodes.at[p]; ok {
		return n, nil
	}
	if len(v.nodes.at) > 0 {
		for dir := range p.Ancestors() {
			n, ok := v.nodes.at[dir]
			if !ok {
				continue
			}
			rel, _ := p.Rel(dir)
			if n.Kind != op.KindDir || n.origin == "" {
				return &Node{}, nil
			}
			return v.look(n.origin.Join(string(rel)))
		}
	}
	return v.look(p)
}

// look gives what is at a path of the disk, before the change set.
func (v *View) look(p wspath.Path) (*Node, error) {
	if n, ok := v.seen[p]; ok {
		return n, nil
	}
	n, err := v.peek(p)
	if err == nil {
		v.seen[p] = n
	}
	return n, err
}

// peek is look without remembering, for walks over many files.
func (v *View) peek(p wspath.Path) (*Node, error) {
	s, err := v.disk.Lstat(p)
	if err != nil || s.Kind == op.KindNone {
		return &Node{}, err
	}
	n := &Node{Kind: s.Kind, Mode: s.Mode, perm: s.Info.Mode.Perm(), size: s.Info.Size, origin: p, seen: &s}
	n.disk = &OnDisk{Info: s.Info, Mode: s.Mode}
	return n, nil
}

// identify sets a node's blob id.
func (v *View) identify(ctx context.Context, n *Node) error {
	if n.seen == nil || n.seen.Known || n.content != nil {
		return nil
	}
	if err := v.disk.Identify(ctx, n.origin, n.seen); err != nil {
		return err
	}
	v.settle(n)
	return nil
}

// settle takes over what was seen once it is identified.
func (v *View) settle(n *Node) {
	s := n.seen
	n.ID, n.Mode, n.size, n.perm = s.ID, s.Mode, s.Info.Size, s.Info.Mode.Perm()
	n.disk.Info, n.disk.ID, n.disk.Mode, n.disk.Racy = s.Info, s.ID, s.Mode, index.IsRacy(s.Info, v.disk.Now())
}

// set makes a path represent something new, and its missing folders exist.
func (v *View) set(p wspath.Path, n *Node) error {
	if err := v.ensureDirs(p.Dir()); err != nil {
		return err
	}
	v.nodes.put(p, n)
	return v.noteFilled(p.Dir())
}

// noteFilled notes which directories from dir up were empty on disk.
func (v *View) noteFilled(dir wspath.Path) error {
	for ; !dir.IsRoot() && v.disk != nil && v.disk.Physical(); dir = dir.Dir() {
		if _, known := v.filled[dir]; known {
			return nil
		}
		n, err := v.at(dir)
		if err != nil {
			return err
		}
		_, tracked, err := v.tip.Lookup(dir)
		if err != nil {
			return err
		}
		v.filled[dir] = ""
		if !tracked && n.Kind == op.KindDir && n.origin != "" {
			if _, was, err := v.tip.Lookup(n.origin); err != nil {
				return err
			} else if !was {
				v.filled[dir] = n.origin
			}
		}
		if tracked {
			return nil
		}
	}
	return nil
}

func (v *View) ensureDirs(dir wspath.Path) error {
	n, err := v.at(dir)
	if err != nil || n.Kind == op.KindDir {
		return err
	}
	if err := v.ensureDirs(dir.Dir()); err != nil {
		return err
	}
	v.nodes.put(dir, &Node{Kind: op.KindDir})
	return nil
}

// remove takes a path away with everything under it.
func (v *View) remove(p wspath.Path) {
	v.forget(p)
	v.nodes.put(p, &Node{})
}

func (v *View) forget(p wspath.Path) {
	for _, q := range v.nodes.under(p) {
		v.nodes.remove(q)
	}
}

// move takes what is at a path to another, with everything under it.
func (v *View) move(from, to wspath.Path, n *Node) error {
	moved := make(map[wspath.Path]*Node)
	for _, q := range v.nodes.under(from) {
		rel, _ := q.Rel(from)
		moved[to.Join(string(rel))] = v.nodes.at[q]
	}
	v.remove(from)
	v.forget(to)
	if err := v.set(to, n); err != nil {
		return err
	}
	for q, k := range moved {
		v.nodes.put(q, k)
	}
	return nil
}

// child is one name in a folder of the view.
type child struct {
	name string
	node *Node
}

// children lists a folder, by name. Our temporary files are left out; git's
// own folder is not.
func (v *View) children(p wspath.Path, n *Node) ([]child, error) {
	names := make(map[string]bool)
	if n.origin != "" {
		entries, err := v.disk.FS.ReadDir(string(n.origin))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errs.Wrap(err, string(p))
		}
		for _, e := range entries {
			if !wspath.IsTemp(e.Name) {
				names[e.Name] = true
			}
		}
	}
	for _, q := range v.nodes.children(p) {
		names[q.Base()] = true
	}
	out := make([]child, 0, len(names))
	for name := range names {
		q := p.Join(name)
		k, ok := v.nodes.at[q]
		if !ok {
			var err error
			if k, err = v.peek(n.origin.Join(name)); err != nil {
				return nil, err
			}
		}
		if k.Kind != op.KindNone {
			out = append(out, child{name, k})
		}
	}
	slices.SortFunc(out, func(a, b child) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// recorded calls fn with each file at or under a path that history tracks
// before the change set, by its path in the view and its path then.
func (v *View) recorded(p wspath.Path, fn func(now, then wspath.Path, e gitstore.Entry) error) error {
	n, err := v.at(p)
	if err != nil {
		return err
	}
	if err := v.recordedFrom(p, n, fn); err != nil {
		return err
	}
	for _, q := range v.nodes.under(p) {
		if err := v.recordedFrom(q, v.nodes.at[q], fn); err != nil {
			return err
		}
	}
	return nil
}

// recordedFrom lists what came along with one node: files under it for which
// there is no nearer node.
func (v *View) recordedFrom(p wspath.Path, n *Node, fn func(now, then wspath.Path, e gitstore.Entry) error) error {
	then := n.origin
	if n.Kind == op.KindNone || then == "" {
		return nil
	}
	return v.tip.Walk(then, func(e gitstore.Entry) error {
		rel, _ := e.Path.Rel(then)
		now := p.Join(string(rel))
		if now != p && len(v.nodes.at) > 0 {
			if _, ok := v.nodes.at[now]; ok {
				return nil
			}
			for dir := range now.Ancestors() {
				if dir == p {
					break
				}
				if _, ok := v.nodes.at[dir]; ok {
					return nil
				}
			}
		}
		return fn(now, e.Path, e)
	})
}

// maxLinks bounds how many links one path may lead through, as the kernel does.
const maxLinks = 40

// Resolve follows the links in a path's folders, and in its last component too
// if last is set. It stops at a component that does not exist: the rest is as written.
func (v *View) Resolve(p wspath.Path, last bool) (wspath.Path, error) {
	todo := p.Components()
	at := wspath.Root
	links := 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			if at.IsRoot() {
				return "", disk.ErrNotFound(p)
			}
			at = at.Dir()
			continue
		}
		next := at.Join(name)
		n, err := v.at(next)
		if err != nil {
			return "", err
		}
		if n.Kind == op.KindNone {
			return v.finish(p, next, todo)
		}
		if n.Kind != op.KindSymlink || (len(todo) == 0 && !last) {
			if n.Kind != op.KindDir && len(todo) > 0 {
				return "", disk.ErrNotDir(p)
			}
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", disk.ErrNotFound(p)
		}
		target, err := v.readlink(n)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(target, "/") || target == "" {
			return "", disk.ErrNotFound(p) // leads out, or nowhere
		}
		todo = append(splitTarget(target), todo...)
	}
	if at.IsRoot() && !p.IsRoot() {
		return at, nil
	}
	return v.check(at)
}

// finish appends what is not there by the words.
func (v *View) finish(asked, at wspath.Path, todo []string) (wspath.Path, error) {
	for _, name := range todo {
		if name == ".." {
			if at.IsRoot() {
				return "", disk.ErrNotFound(asked)
			}
			at = at.Dir()
			continue
		}
		at = at.Join(name)
	}
	return v.check(at)
}

// check refuses what a link led to and a request could not have named.
func (v *View) check(p wspath.Path) (wspath.Path, error) {
	if p.IsRoot() {
		return p, nil
	}
	q, err := wspath.Parse(string(p))
	if err != nil {
		return "", err
	}
	if v.disk.IsOwn(q) {
		return "", &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "The path is in a directory of the server's own.", Path: string(p)}
	}
	return q, nil
}

func (v *View) readlink(n *Node) (string, error) {
	if n.content != nil {
		return n.content.Target, nil
	}
	target, err := v.disk.FS.Readlink(string(n.origin))
	return target, errs.Wrap(err, string(n.origin))
}

func splitTarget(target string) []string {
	var out []string
	for name := range strings.SplitSeq(target, "/") {
		if name != "" && name != "." {
			out = append(out, name)
		}
	}
	return out
}

// linkStays reports whether a link with this target, made at a path, would end
// inside the root.
func (v *View) linkStays(p wspath.Path, target string) bool {
	if strings.HasPrefix(target, "/") {
		return false
	}
	// A ".." that climbs over the root by the words leaves it whatever is there.
	at := path.Join("/x", string(p.Dir()))
	depth := strings.Count(at, "/") - 1
	if p.Dir().IsRoot() {
		depth = 0
	}
	for _, name := range splitTarget(target) {
		if name != ".." {
			depth++
		} else if depth--; depth < 0 {
			return false
		}
	}
	saved, had := v.nodes.at[p]
	v.nodes.put(p, &Node{Kind: op.KindSymlink, Mode: object.Symlink, content: &content.Content{Target: target}})
	_, err := v.Resolve(p, true)
	if had {
		v.nodes.put(p, saved)
	} else {
		v.nodes.remove(p)
	}
	// A link in a circle, or through a file, stays inside.
	return err == nil || errs.CodeOf(err) == "not_a_directory" || v.circular(p, target)
}

// circular reports whether a link leads back to itself, and not out of the root.
func (v *View) circular(p wspath.Path, target string) bool {
	return path.Join(path.Dir(string(p)), target) == string(p)
}

// restricted gives the permission bits for a file that is put in place of a
// node: those it has, but for x where the mode changes.
func (v *View) permFor(n *Node, mode object.Mode, limit *uint32) fs.FileMode {
	exec := mode == object.Executable
	var perm fs.FileMode
	switch {
	case n.Kind == op.KindFile && (n.Mode == object.Executable) == exec:
		perm = n.perm
	case n.Kind == op.KindFile:
		perm = rootfs.ExecBits(n.perm, exec)
	default:
		perm = v.disk.Root.FilePerm(exec)
	}
	if limit != nil {
		perm &= fs.FileMode(*limit)
	}
	return perm
}
