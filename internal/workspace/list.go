package workspace

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/scan"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// ListOptions say what of a folder to list.
type ListOptions struct {
	Recursive bool
	// GitIgnore hides what git's rules ignore, unless the project's own index
	// tracks it; CodeyIgnore what the root's .codeyignore does.
	GitIgnore, CodeyIgnore bool
	// From and Count are the part that is looked at; all is counted.
	From, Count int
}

// Listed is one entry of a listing.
type Listed struct {
	Path wspath.Path // below the folder as it was asked for
	Info vfs.Info    // links are not followed
}

// List reads a folder straight from the disk: folders first, then by name
// bytewise; recursive: each folder followed by what is in it. What is neither
// file, folder nor link is left out, and so are git's own folder and what is
// the server's. Each folder's names are read once, and only the part that was
// asked for is looked at, once an entry.
//
// errs.NotFound file_not_found; errs.Invalid, errs.Conflict not_a_directory.
func (w *Workspace) List(ctx context.Context, p wspath.Path, o ListOptions) (part []Listed, total int, err error) {
	if err := w.enter(); err != nil {
		return nil, 0, err
	}
	defer w.leave()
	l, q, err := w.lister(ctx, p, o)
	if err != nil {
		return nil, 0, err
	}
	l.recursive, l.from, l.to = o.Recursive, o.From, o.From+o.Count
	if err := l.folder(q, p, l.rules, 0); err != nil {
		return nil, 0, err
	}
	return l.out, l.n, nil
}

// lister reads folders as a listing shows them.
type lister struct {
	w          *Workspace
	ctx        context.Context
	git, codey bool
	rules      *ignore.Dir // of the folder it begins at; nil: nothing is hidden
	index      *ignore.Index

	recursive bool
	from, to  int
	n         int // entries met
	out       []Listed
}

func (w *Workspace) lister(ctx context.Context, p wspath.Path, o ListOptions) (*lister, wspath.Path, error) {
	if err := w.checkFolder(); err != nil {
		return nil, "", err
	}
	q, err := w.folderAt(p)
	if err != nil {
		return nil, "", err
	}
	l := &lister{w: w, ctx: ctx, git: o.GitIgnore, codey: o.CodeyIgnore}
	if !o.GitIgnore && !o.CodeyIgnore {
		return l, q, nil
	}
	var exclude []byte
	if o.GitIgnore {
		if exclude, l.index, err = w.projectRules(); err != nil {
			return nil, "", err
		}
	}
	l.rules, err = ignore.NewRoot(ignore.Options{ReadFile: scan.RuleReader(w.fs), InfoExclude: exclude, Codey: o.CodeyIgnore})
	for _, name := range q.Components() {
		if err != nil {
			break
		}
		l.rules, err = l.rules.Child(name)
	}
	if err != nil {
		return nil, "", errs.Wrap(err, string(p))
	}
	return l, q, nil
}

// maxHeld is how many folders on the way down are held open at once; below,
// each is closed before the next is opened.
const maxHeld = 64

// folder lists one folder: at is its place, shown the path that the listing
// tells, rules what holds in it.
func (l *lister) folder(at, shown wspath.Path, rules *ignore.Dir, depth int) error {
	if depth < maxHeld {
		return l.open(at, depth, func(entries []vfs.DirEntry, lstat func(string) (vfs.Info, error)) error {
			return l.entries(at, shown, rules, depth, entries, lstat)
		})
	}
	var copied []vfs.DirEntry
	err := l.open(at, depth, func(entries []vfs.DirEntry, _ func(string) (vfs.Info, error)) error {
		copied = slices.Clone(entries)
		return nil
	})
	if err != nil {
		return err
	}
	return l.entries(at, shown, rules, depth, copied, func(base string) (vfs.Info, error) { return l.w.fs.Lstat(string(at.Join(base))) })
}

// open reads a folder's names. One below the first that is gone or cannot be
// read is empty.
func (l *lister) open(at wspath.Path, depth int, fn func([]vfs.DirEntry, func(string) (vfs.Info, error)) error) error {
	if err := l.ctx.Err(); err != nil {
		return errs.Wrap(err, "")
	}
	var failed error
	err := vfs.ListDir(l.w.fs, string(at), func(entries []vfs.DirEntry, lstat func(string) (vfs.Info, error)) error {
		failed = fn(entries, lstat)
		return nil
	})
	switch {
	case err == nil:
		return failed
	case depth > 0 && cannotList(err):
		return nil
	case isAbsent(err), errors.Is(err, syscall.ELOOP), errors.Is(err, vfs.ErrEscapes):
		return errNotFound(at) // replaced since it was looked at
	}
	return errs.Wrap(err, string(at))
}

// cannotList tells errors that are about one folder.
func cannotList(err error) bool {
	return isAbsent(err) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ELOOP) || errors.Is(err, vfs.ErrEscapes) ||
		errors.Is(err, syscall.ENAMETOOLONG)
}

func (l *lister) entries(at, shown wspath.Path, rules *ignore.Dir, depth int, all []vfs.DirEntry, lstat func(string) (vfs.Info, error)) error {
	shownHere := l.visible(at, rules, all)
	slices.SortFunc(shownHere, func(a, b vfs.DirEntry) int {
		if a.Type.IsDir() != b.Type.IsDir() {
			if a.Type.IsDir() {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	for i := range shownHere {
		e := &shownHere[i]
		if l.n >= l.from && l.n < l.to {
			info, err := lstat(e.Name)
			if err != nil {
				if cannotList(err) {
					continue // gone since the names were read
				}
				return errs.Wrap(err, "")
			}
			l.out = append(l.out, Listed{Path: shown.Join(e.Name), Info: typed(info, e.Type)})
		}
		l.n++
		if !l.recursive || !e.Type.IsDir() {
			continue
		}
		child := at.Join(e.Name)
		below, err := l.child(rules, child)
		if err != nil {
			return err
		}
		if err := l.folder(child, shown.Join(e.Name), below, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// typed gives a stat the type that the names were sorted by, should another
// thing stand there by now.
func typed(info vfs.Info, t fs.FileMode) vfs.Info {
	if info.Mode.Type() != t {
		info.Mode, info.Size = t|info.Mode.Perm(), 0
	}
	return info
}

// child gives the rules of a folder.
func (l *lister) child(rules *ignore.Dir, at wspath.Path) (*ignore.Dir, error) {
	if rules == nil {
		return nil, nil
	}
	d, err := rules.Child(at.Base())
	if err != nil && cannotList(err) {
		return rules.ChildHaving(at.Base(), func(string) bool { return false })
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
		if len(at)+1+len(e.Name) > wspath.MaxPath || len(l.w.own) > 0 && l.w.isOwn(at.Join(e.Name)) {
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
