package browse

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/partsort"
	"umbra/internal/scan"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/wspath"
)

// ListOptions say what of a folder to list.
type ListOptions struct {
	Recursive bool
	// GitIgnore hides what git's rules ignore, unless the project's own index
	// tracks it; CodeyIgnore what the root's .codeyignore does.
	GitIgnore, CodeyIgnore bool
	// From and Count are the part that is checked; all is counted.
	From, Count int
}

// Listed is one entry of a listing.
type Listed struct {
	Path wspath.Path // below the folder as it was asked for
	Info vfs.Info    // links are not followed
}

// List reads a folder straight from the disk: folders first, then by name
// bytewise; recursive: each folder followed by what is in it. Entries that are neither
// file, folder nor link are left out, and so are git's own folder and what is
// the server's. Each folder's names are read once, and only the part that was
// asked for is checked, once an entry.
//
// errs.NotFound file_not_found; errs.Invalid, errs.Conflict not_a_directory.
func (r *Reader) List(ctx context.Context, p wspath.Path, o ListOptions) (part []Listed, total int, err error) {
	l, q, err := r.lister(ctx, p, o)
	if err != nil {
		return nil, 0, err
	}
	l.recursive, l.from, l.to = o.Recursive, o.From, o.From+o.Count
	l.resume(q)
	if l.kept != nil {
		defer func() { r.kept.put(l.kept, r.disk.Now()) }()
	}
	if err := l.folder(q, p, nil, 0); err != nil {
		return nil, 0, err
	}
	if part, err = l.page.look(ctx, r.disk.FS); err != nil {
		return nil, 0, err
	}
	return part, l.n - (l.page.entries - len(part)), nil
}

// lister reads folders as a listing shows them.
type lister struct {
	r          *Reader
	ctx        context.Context
	git, codey bool
	rules      *ignore.Dir // of the folder it begins at; nil: nothing is hidden
	exclude    []byte
	index      *ignore.Index
	kept       *keptListing // nil: nothing is kept of this one

	recursive bool
	from, to  int
	n         int // entries met
	page      page
}

func (r *Reader) lister(ctx context.Context, p wspath.Path, o ListOptions) (*lister, wspath.Path, error) {
	q, err := r.folderAt(p)
	if err != nil {
		return nil, "", err
	}
	l := &lister{r: r, ctx: ctx, git: o.GitIgnore, codey: o.CodeyIgnore}
	if !o.GitIgnore && !o.CodeyIgnore {
		return l, q, nil
	}
	if o.GitIgnore {
		if l.exclude, l.index, err = r.disk.GitRules(); err != nil {
			return nil, "", err
		}
	}
	l.rules, err = ignore.NewRoot(ignore.Options{ReadFile: scan.RuleReader(r.disk.FS), InfoExclude: l.exclude, Codey: o.CodeyIgnore})
	for _, name := range q.Components() {
		if err != nil {
			break
		}
		l.rules, err = l.rules.Child(name)
	}
	if err != nil {
		if cannotList(err) {
			err = disk.ErrNotFound(p) // replaced since it was checked
		}
		return nil, "", errs.Wrap(err, string(p))
	}
	return l, q, nil
}

// folder lists one folder: at is its place, shown its path in the listing, above
// the rules of the folder it is in.
func (l *lister) folder(at, shown wspath.Path, above *ignore.Dir, depth int) error {
	if f := l.again(at, above); f != nil {
		return l.emit(at, shown, f.rules, depth, f.shown)
	}
	f := l.before(at)
	all, err := l.names(at, depth)
	if err != nil {
		return err
	}
	return l.entries(at, shown, above, depth, f, all)
}

// names reads a folder's names. One below the first that is gone or cannot be
// read is empty.
func (l *lister) names(at wspath.Path, depth int) ([]vfs.DirEntry, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, errs.Wrap(err, "")
	}
	all, err := l.r.disk.FS.ReadDir(string(at))
	switch {
	case err == nil:
		return all, nil
	case depth > 0 && cannotList(err):
		return nil, nil
	case disk.IsAbsent(err), errors.Is(err, syscall.ELOOP), errors.Is(err, vfs.ErrEscapes):
		return nil, disk.ErrNotFound(at) // replaced since it was checked
	}
	return nil, errs.Wrap(err, string(at))
}

// cannotList reports whether an error is about one folder.
func cannotList(err error) bool {
	return disk.IsAbsent(err) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ELOOP) || errors.Is(err, vfs.ErrEscapes) ||
		errors.Is(err, syscall.ENAMETOOLONG)
}

// entries describes a folder whose names are read; f is where the reading is to
// be kept, nil for nowhere.
func (l *lister) entries(at, shown wspath.Path, above *ignore.Dir, depth int, f *keptFolder, all []vfs.DirEntry) error {
	rules, err := l.rulesOf(at, above, all)
	if err != nil {
		return err
	}
	list := l.visible(at, rules, all)
	if f != nil || l.recursive {
		slices.SortFunc(list, dirsFirst)
	} else {
		partsort.Sort(list, l.from, l.to, dirsFirst)
	}
	if f != nil {
		l.keep(f, at, above, rules, all, list)
	}
	return l.emit(at, shown, rules, depth, list)
}

func dirsFirst(a, b vfs.DirEntry) int {
	if a.Type.IsDir() != b.Type.IsDir() {
		if a.Type.IsDir() {
			return -1
		}
		return 1
	}
	return strings.Compare(a.Name, b.Name)
}

// emit counts what a folder shows, and notes what of it is on the page.
func (l *lister) emit(at, shown wspath.Path, rules *ignore.Dir, depth int, list []vfs.DirEntry) error {
	if !l.recursive {
		first, last := min(max(l.from, 0), len(list)), min(max(l.to, 0), len(list))
		l.page.add(at, shown, list, first, last)
		l.n = len(list)
		return nil
	}
	for i, e := range list {
		if l.n >= l.from && l.n < l.to {
			l.page.add(at, shown, list, i, i+1)
		}
		l.n++
		if !e.Type.IsDir() {
			continue
		}
		if err := l.folder(at.Join(e.Name), shown.Join(e.Name), rules, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// typed gives a stat the type that the names were sorted by, should another
// thing are there by now.
func typed(info vfs.Info, t fs.FileMode) vfs.Info {
	if info.Mode.Type() != t {
		info.Mode, info.Size = t|info.Mode.Perm(), 0
	}
	return info
}

// rulesOf gives the rules of a folder whose names are read: those of the
// folder that it is in, nil for where the listing begins, and its own.
func (l *lister) rulesOf(at wspath.Path, above *ignore.Dir, all []vfs.DirEntry) (*ignore.Dir, error) {
	if l.rules == nil || above == nil {
		return l.rules, nil
	}
	has := func(file string) bool {
		return slices.ContainsFunc(all, func(e vfs.DirEntry) bool { return e.Name == file })
	}
	d, err := above.ChildHaving(at.Base(), has)
	if err != nil && cannotList(err) {
		return above.ChildHaving(at.Base(), func(string) bool { return false })
	}
	return d, errs.Wrap(err, "")
}

// visible gives the entries of a folder that a listing shows, in no order.
func (l *lister) visible(at wspath.Path, rules *ignore.Dir, all []vfs.DirEntry) []vfs.DirEntry {
	out := make([]vfs.DirEntry, 0, len(all))
	for _, e := range all {
		isDir := e.Type.IsDir()
		if !isDir && !e.Type.IsRegular() && e.Type != fs.ModeSymlink || wspath.IsGitName(e.Name) || wspath.IsTemp(e.Name) {
			continue
		}
		if len(at)+1+len(e.Name) > wspath.MaxPath || len(l.r.disk.Own) > 0 && l.r.disk.IsOwn(at.Join(e.Name)) {
			continue
		}
		if rules != nil && l.hidden(at, rules, e.Name, isDir) {
			continue
		}
		out = append(out, e)
	}
	return out
}

func (l *lister) hidden(at wspath.Path, rules *ignore.Dir, name string, isDir bool) bool {
	v := rules.Match(name, isDir)
	if l.codey && v.ByCodey() {
		return true
	}
	if !l.git || !v.ByGit() {
		return false
	}
	switch {
	case l.index == nil:
		return true
	case isDir:
		return !l.index.HasUnder(at.Join(name))
	}
	return !l.index.Has(at.Join(name))
}
