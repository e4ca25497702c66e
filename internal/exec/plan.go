package exec

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"umbra/gitstore"
	"umbra/gitstore/merge3"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/layer"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// maxMerged is the size up to which texts are merged, as in a revert.
const maxMerged = 16 << 20

// Version is a file or link; the zero value is none.
type Version struct {
	Mode object.Mode
	ID   object.ID
}

func (v Version) file() bool { return v.Mode == object.Regular || v.Mode == object.Executable }

// Conflict is a path whose version in the layer could not be merged.
type Conflict struct {
	Path   string
	Reason string // "content", "deleted_here", "changed_here", "occupied"
	Theirs Version
}

// Skip is a path of the layer that is not applied, and why.
type Skip struct{ Path, Reason string }

// The moves, in the order in which they are done. Clear removes what is ignored at
// and below a path, and directories that are empty then; put moves a path of the
// layer to its place; keep names a path that stays as it is.
const (
	opClear = "clear"
	opPut   = "put"
	opChmod = "chmod"
	opKeep  = "keep"
)

// plan is what becomes of a layer.
type plan struct {
	ops       []workspace.Op
	moves     []move
	conflicts []Conflict
	skipped   []Skip
	paths     []wspath.Path // that are recorded
	patches   []patch
}

// planner compares a layer with the workspace.
type planner struct {
	ctx       context.Context
	w         *workspace.Workspace
	upper     string
	base, tip gitstore.Snapshot
	exclude   workspace.IgnoreSources
	index     *ignore.Index
	rules     map[string]*ignore.Dir // by directory
	touched   map[string]Version     // what the layer has of recorded paths; zero: deleted
	perms     map[string]uint32
	dirs      map[string]uint32   // all directories of the layer, and their bits
	opened    bits                // for the time of the apply
	note      func(b *bits) error // writes that before
	folders   []string            // that the base does not have
	gone      []string            // directories of the base that the layer does not have
	empty     []string            // directories of the disk that history does not have, where the layer has a file
	raw       []string            // roots of what is not recorded
	p         plan
}

func at(snap gitstore.Snapshot, p string) (Version, error) {
	e, ok, err := snap.Lookup(wspath.Path(p))
	if err != nil || !ok {
		return Version{}, err
	}
	return Version{e.Mode, e.ID}, nil
}

// read walks the layer and sorts its paths.
func (n *planner) read() error {
	lower := beneath(n.exclude.Options.ReadFile)
	n.exclude.Options.ReadFile = func(p wspath.Path) ([]byte, error) {
		info, err := os.Lstat(filepath.Join(n.upper, string(p)))
		if err != nil || info.Mode().IsDir() {
			return lower(p)
		}
		if !info.Mode().IsRegular() || info.Size() > ignore.MaxFile {
			return nil, fs.ErrNotExist
		}
		return os.ReadFile(filepath.Join(n.upper, string(p)))
	}
	if err := n.sources(); err != nil {
		return err
	}
	opening := func(p string, perm uint32) error { // a stop may leave it open
		if _, ok := n.opened.Upper[p]; ok {
			return nil
		}
		n.opened.Upper[p] = perm
		return n.note(&n.opened)
	}
	return layer.ReadOpening(n.ctx, n.upper, opening, n.entry)
}

// sources reads the rules of what is ignored.
func (n *planner) sources() error {
	n.index = n.exclude.Index
	root, err := ignore.NewRoot(n.exclude.Options)
	if err != nil {
		return errs.Wrap(err, "")
	}
	n.rules[""] = root
	return nil
}

// beneath reads no rules through a directory that is a link out of the workspace by now.
func beneath(read func(wspath.Path) ([]byte, error)) func(wspath.Path) ([]byte, error) {
	return func(p wspath.Path) ([]byte, error) {
		raw, err := read(p)
		if errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.ELOOP) {
			err = fs.ErrNotExist
		}
		return raw, err
	}
}

func (n *planner) ruleDir(dir string) (*ignore.Dir, error) {
	if d := n.rules[dir]; d != nil {
		return d, nil
	}
	parent, name := path.Split(dir)
	d, err := n.ruleDir(strings.TrimSuffix(parent, "/"))
	if err == nil {
		d, err = d.Child(name)
	}
	if err == nil {
		n.rules[dir] = d
	}
	return d, err
}

// recorded reports whether history has a path, or would.
func (n *planner) recorded(p string, dir bool) (bool, error) {
	for c := range strings.SplitSeq(p, "/") {
		if wspath.CheckName(c) != nil {
			return false, nil // .git, in any spelling
		}
	}
	for _, snap := range []gitstore.Snapshot{n.base, n.tip} {
		if v, err := at(snap, p); err != nil || v.Mode != 0 {
			return err == nil, err
		}
	}
	if n.index != nil && (n.index.Has(wspath.Path(p)) || dir && n.index.HasUnder(wspath.Path(p))) {
		return true, nil
	}
	parent, name := path.Split(p)
	d, err := n.ruleDir(strings.TrimSuffix(parent, "/"))
	if err != nil {
		return false, errs.Wrap(err, p)
	}
	return !d.Match(name, dir).Ignored(), nil
}

// under reports whether a path is below one that is moved as a whole.
func (n *planner) under(p string) bool {
	if len(n.raw) == 0 {
		return false
	}
	last := n.raw[len(n.raw)-1] // the walk is in order
	return strings.HasPrefix(p, last+"/")
}

func (n *planner) entry(e layer.Entry) (enter bool, err error) {
	if perm, ok := n.opened.Upper[e.Path]; ok && e.Kind == layer.Dir {
		e.Perm = perm
	}
	if e.Kind == layer.Dir {
		n.dirs[e.Path] = e.Perm
	}
	if e.Kind == layer.Special {
		n.p.skipped = append(n.p.skipped, Skip{e.Path, e.Type})
		return false, nil
	}
	if n.under(e.Path) {
		return true, nil
	}
	recorded, err := n.recorded(e.Path, e.Kind == layer.Dir)
	if err != nil {
		return false, err
	}
	base, err := at(n.base, e.Path)
	if err != nil {
		return false, err
	}
	if base.Mode == object.Dir && (e.Kind != layer.Dir || e.Opaque) {
		n.gone = append(n.gone, e.Path)
		err := n.base.Walk(wspath.Path(e.Path), func(f gitstore.Entry) error {
			n.touched[string(f.Path)] = Version{}
			return nil
		})
		if err != nil {
			return false, err
		}
	}
	if e.Kind == layer.Whiteout || e.Kind == layer.Dir && e.Opaque {
		n.p.moves = append(n.p.moves, move{Op: opClear, Path: e.Path})
	}
	switch {
	case e.Kind == layer.Whiteout:
		if base.Mode != 0 && base.Mode != object.Dir {
			n.touched[e.Path] = Version{}
		}
		return false, nil
	case !recorded:
		n.raw = append(n.raw, e.Path)
		n.p.moves = append(n.p.moves, move{Op: opPut, Path: e.Path})
		return true, nil
	case e.Kind == layer.Dir:
		if base.Mode != 0 && base.Mode != object.Dir {
			n.touched[e.Path] = Version{}
		}
		n.folders = append(n.folders, e.Path)
		n.perms[e.Path] = e.Perm
		return true, nil
	case e.Kind == layer.Symlink:
		n.touched[e.Path] = Version{object.Symlink, object.Hash(object.Blob, []byte(e.Target))}
	default:
		id, err := hashFile(filepath.Join(n.upper, e.Path), e.Size)
		if err != nil {
			return false, err
		}
		v := Version{object.Regular, id}
		if e.Perm&0o100 != 0 {
			v.Mode = object.Executable
		}
		n.touched[e.Path] = v
		n.perms[e.Path] = e.Perm
	}
	return false, nil
}

// hashFile returns the id of a file's content as a blob.
func hashFile(name string, size int64) (id object.ID, err error) {
	f, err := openOwn(name)
	if err != nil {
		return id, errs.Wrap(err, "")
	}
	defer f.Close()
	h := object.NewHash(object.Blob, size)
	n, err := io.Copy(h, io.LimitReader(f, size+1))
	if err == nil && n != size {
		err = errors.New("a file of the layer changed while it was read")
	}
	copy(id[:], h.Sum(nil))
	return id, err
}

// openOwn opens a file from which the command may have taken the right to read.
func openOwn(name string) (*os.File, error) {
	f, err := os.Open(name)
	if !errors.Is(err, fs.ErrPermission) {
		return f, err
	}
	info, failed := os.Lstat(name)
	if failed != nil || !info.Mode().IsRegular() || os.Chmod(name, info.Mode().Perm()|0o400) != nil {
		return nil, err
	}
	f, err = os.Open(name)
	return f, errors.Join(err, os.Chmod(name, info.Mode().Perm()))
}

// lazyFile opens a file at its first read, and closes it at its end: a request
// may have more files than a process descriptors.
type lazyFile struct {
	name string
	f    *os.File
	done bool
}

func (l *lazyFile) Read(b []byte) (int, error) {
	if l.done {
		return 0, io.EOF
	}
	if l.f == nil {
		f, err := openOwn(l.name)
		if err != nil {
			return 0, err
		}
		l.f = f
	}
	n, err := l.f.Read(b)
	if err != nil {
		l.done = true
		l.f.Close()
	}
	return n, err
}

// outcome is what a path becomes.
type outcome struct {
	path      string
	base, now Version
	want      Version
	data      []byte // of a merge
}

// decide compares the three versions of each path, and makes the operations.
func (n *planner) decide() error {
	var all []outcome
	for _, p := range sortedKeys(n.touched) {
		o, err := n.judge(p)
		if err != nil {
			return err
		}
		if o != nil {
			all = append(all, *o)
		}
	}
	var removed, written []outcome
	for _, o := range all {
		n.p.paths = append(n.p.paths, wspath.Path(o.path))
		if o.want.Mode == 0 {
			removed = append(removed, o)
		} else {
			written = append(written, o)
		}
	}
	moved := n.renames(&removed, written)
	for _, o := range removed {
		n.p.ops = append(n.p.ops, workspace.Op{Kind: workspace.OpDelete, Path: wspath.Path(o.path), If: match(o.now)})
	}
	for to, from := range inOrder(moved) {
		n.p.ops = append(n.p.ops, workspace.Op{Kind: workspace.OpRename, Path: wspath.Path(from.path), To: wspath.Path(to), If: match(from.now)})
	}
	if err := n.prune(); err != nil {
		return err
	}
	for _, o := range written {
		if _, ok := moved[o.path]; !ok {
			if err := n.write(&o); err != nil {
				return err
			}
		}
	}
	n.makeFolders(written)
	n.permissions(all)
	return nil
}

func match(v Version) workspace.Condition {
	if v.Mode == 0 {
		return workspace.Condition{NoneMatchAny: true}
	}
	return workspace.Condition{Match: []string{v.ID.String()}}
}

// judge merges one path; nil where nothing is to be done.
func (n *planner) judge(p string) (*outcome, error) {
	o := outcome{path: p, want: n.touched[p]}
	var err error
	if o.base, err = at(n.base, p); err != nil {
		return nil, err
	}
	if o.now, err = at(n.tip, p); err != nil {
		return nil, err
	}
	if o.base.Mode == object.Dir {
		o.base = Version{}
	}
	mine := o.want
	conflict := func(reason string) (*outcome, error) {
		n.p.conflicts = append(n.p.conflicts, Conflict{Path: p, Reason: reason, Theirs: mine})
		return nil, nil
	}
	if o.now.Mode == object.Dir {
		free, err := n.emptied(p)
		if err != nil || mine.Mode == 0 {
			return nil, err
		}
		if !free {
			return conflict("occupied")
		}
		o.now = Version{}
	}
	switch {
	case mine == o.base, mine == o.now:
		return nil, nil
	case o.now.Mode == 0 && mine.Mode != 0:
		if free, err := n.directories(p); err != nil || !free {
			if err != nil {
				return nil, err
			}
			return conflict("occupied")
		}
		if blocked, err := n.blocked(p); err != nil || blocked {
			if err != nil {
				return nil, err
			}
			return conflict("occupied")
		}
	}
	switch {
	case o.now == o.base:
		return &o, nil
	case mine.Mode == 0:
		return conflict("changed_here")
	case o.now.Mode == 0:
		return conflict("deleted_here")
	case !mine.file() || !o.now.file() || !o.base.file():
		return conflict("content")
	}
	if mine.Mode == o.base.Mode {
		o.want.Mode = o.now.Mode
	}
	switch {
	case mine.ID == o.base.ID:
		o.want.ID = o.now.ID
	case mine.ID != o.now.ID && o.now.ID != o.base.ID:
		merged, ok, err := n.merge(p, o.base.ID, o.now.ID)
		if err != nil {
			return nil, err
		}
		if !ok {
			return conflict("content")
		}
		o.want.ID, o.data = object.Hash(object.Blob, merged), merged
		if o.data == nil {
			o.data = []byte{}
		}
	}
	if o.want == o.now {
		return nil, nil
	}
	return &o, nil
}

// emptied reports whether all that history has under a path is deleted by the
// layer, unchanged.
func (n *planner) emptied(dir string) (bool, error) {
	free := true
	err := n.tip.Walk(wspath.Path(dir), func(f gitstore.Entry) error {
		v, ok := n.touched[string(f.Path)]
		base, err := at(n.base, string(f.Path))
		free = free && ok && v.Mode == 0 && base == Version{f.Mode, f.ID}
		return err
	})
	return free, err
}

// blocked reports whether a file that stays is at a directory's place above p.
func (n *planner) blocked(p string) (bool, error) {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		v, err := at(n.tip, dir)
		if err != nil {
			return false, err
		}
		if v.Mode == 0 || v.Mode == object.Dir {
			continue
		}
		mine, ok := n.touched[dir]
		base, err := at(n.base, dir)
		if err != nil || !ok || mine.Mode != 0 || base != v {
			return true, err
		}
	}
	return false, nil
}

func (n *planner) merge(p string, base, now object.ID) (merged []byte, ok bool, err error) {
	info, err := os.Lstat(filepath.Join(n.upper, p))
	if err != nil || info.Size() > maxMerged {
		return nil, false, errs.Wrap(err, p)
	}
	mine, err := readFile(filepath.Join(n.upper, p))
	if err != nil {
		return nil, false, errs.Wrap(err, p)
	}
	var texts [2][]byte
	for i, id := range []object.ID{base, now} {
		size, err := n.w.Store().BlobSize(n.ctx, id)
		if err != nil || size > maxMerged {
			return nil, false, err
		}
		if texts[i], err = n.w.Store().ReadBlob(n.ctx, id, maxMerged); err != nil {
			return nil, false, err
		}
	}
	res, err := merge3.Merge(texts[0], texts[1], mine, merge3.Options{})
	if errors.Is(err, merge3.ErrBinary) || errors.Is(err, merge3.ErrTooLarge) {
		return nil, false, nil
	}
	return res.Merged, err == nil && res.Clean, err
}

// renames finds files that have another name and are otherwise as they were, and
// takes them out of what is removed.
func (n *planner) renames(removed *[]outcome, written []outcome) map[string]outcome {
	count := map[Version]int{}
	for _, o := range *removed {
		count[o.now]++
	}
	for _, o := range written {
		if o.now.Mode == 0 && o.base.Mode == 0 {
			count[o.want] += 1 << 20
		}
	}
	const once = 1<<20 + 1
	empty := object.EmptyBlob
	to := map[Version]string{}
	for _, o := range written {
		if count[o.want] == once && o.now.Mode == 0 && o.base.Mode == 0 && o.want.ID != empty {
			to[o.want] = o.path
		}
	}
	out := map[string]outcome{}
	*removed = slices.DeleteFunc(*removed, func(o outcome) bool {
		name, ok := to[o.now]
		if !ok || strings.HasPrefix(name, o.path+"/") || strings.HasPrefix(o.path, name+"/") {
			return false
		}
		if slices.Contains(n.gone, name) || slices.Contains(n.empty, name) {
			return false // a directory is in the way until then
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if v, ok := n.touched[dir]; ok && v.Mode == 0 {
				return false // a file is in the way until the operations are done
			}
		}
		out[name] = o
		return true
	})
	return out
}

// prune removes the directories that the layer does not have, where they are
// empty by then.
func (n *planner) prune() error {
	var list []string
	for _, dir := range n.gone {
		seen := map[string]bool{dir: true}
		err := n.base.Walk(wspath.Path(dir), func(f gitstore.Entry) error {
			for d := path.Dir(string(f.Path)); len(d) > len(dir); d = path.Dir(d) {
				seen[d] = true
			}
			return nil
		})
		if err != nil {
			return err
		}
		for d := range seen {
			if info, err := os.Lstat(filepath.Join(n.upper, d)); err == nil && info.IsDir() {
				continue // made again
			}
			list = append(list, d)
		}
	}
	prune := slices.Clone(n.empty)
	for _, d := range list {
		v, err := at(n.tip, d)
		if err != nil {
			return err
		}
		if v.Mode == object.Dir {
			prune = append(prune, d)
		}
	}
	slices.SortFunc(prune, func(a, b string) int { return strings.Compare(b, a) }) // what is inside first
	for _, d := range slices.Compact(prune) {
		n.p.ops = append(n.p.ops, workspace.Op{Kind: workspace.OpPrune, Path: wspath.Path(d)})
	}
	return nil
}

func (n *planner) write(o *outcome) error {
	p := wspath.Path(o.path)
	file := filepath.Join(n.upper, o.path)
	mode := o.want.Mode
	switch {
	case mode == object.Symlink:
		target, err := os.Readlink(file)
		if err != nil {
			return errs.Wrap(err, o.path)
		}
		n.p.ops = append(n.p.ops, workspace.Op{Kind: workspace.OpSymlink, Path: p, Target: target, Overwrite: true, If: match(o.now)})
	case o.want.ID == o.now.ID && o.now.file():
		n.p.ops = append(n.p.ops, workspace.Op{Kind: workspace.OpChmod, Path: p, Mode: &mode, If: match(o.now)})
	case o.data != nil:
		n.p.ops = append(n.p.ops, workspace.Op{Kind: workspace.OpWrite, Path: p, Data: o.data, Mode: &mode, NoFollow: true, If: match(o.now)})
	default:
		op := workspace.Op{Kind: workspace.OpWrite, Path: p, Body: &lazyFile{name: file}, Size: -1, Mode: &mode, NoFollow: true, If: match(o.now)}
		if perm, ok := n.perms[o.path]; ok && o.now.Mode == 0 {
			op.Permissions = &perm
		}
		n.p.ops = append(n.p.ops, op)
	}
	return nil
}

// makeFolders makes the directories in which no file is written.
func (n *planner) makeFolders(written []outcome) {
	has, gone := map[string]bool{}, map[string]bool{}
	for _, op := range n.p.ops {
		if op.Kind == workspace.OpDelete || op.Kind == workspace.OpRename {
			gone[string(op.Path)] = true
		}
	}
	for _, o := range written {
		for d := path.Dir(o.path); d != "."; d = path.Dir(d) {
			has[d] = true
		}
	}
	for _, d := range slices.Backward(n.folders) { // what is inside first
		if has[d] {
			continue
		}
		if !n.lacks(d, gone) {
			continue
		}
		for up := path.Dir(d); up != "."; up = path.Dir(up) {
			has[up] = true
		}
		n.p.ops = append(n.p.ops, workspace.Op{Kind: workspace.OpMkdir, Path: wspath.Path(d), Recursive: true})
	}
}

// permissions has the bits set that history does not keep, of paths that only the
// layer changed.
func (n *planner) permissions(all []outcome) {
	merged := map[string]bool{}
	for _, c := range n.p.conflicts {
		merged[c.Path] = true
	}
	for _, o := range all {
		merged[o.path] = merged[o.path] || o.now != o.base
	}
	for _, p := range sortedKeys(n.perms) {
		if !merged[p] {
			n.p.moves = append(n.p.moves, move{Op: opChmod, Path: p, Perm: n.perms[p]})
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func inOrder[V any](m map[string]V) func(func(string, V) bool) {
	return func(yield func(string, V) bool) {
		for _, k := range sortedKeys(m) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

func readFile(name string) ([]byte, error) {
	f, err := openOwn(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxMerged))
}
