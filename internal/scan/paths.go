package scan

import (
	"context"

	"umbra/internal/ignore"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Paths visits a few paths as Walk would: a file or link by itself, a directory
// with everything below it. Paths that do not exist, are left out by rules or are
// behind a link are not visited. Options.Start is ignored; it fails as Walk does.
func Paths(ctx context.Context, f vfs.FS, opts Options, paths []wspath.Path, visit func(Found) error) (Stats, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := newWalker(ctx, f, opts, visit)
	places := map[wspath.Path]*place{wspath.Root: {rules: opts.Rules}}
	for _, p := range paths {
		if err := context.Cause(ctx); err != nil {
			return w.stats.snapshot(), err
		}
		if p.IsRoot() {
			w.pending = append(w.pending, folder{path: wspath.Root, rules: opts.Rules})
			continue
		}
		in, err := w.place(places, p.Dir())
		if err != nil {
			return w.stats.snapshot(), err
		}
		if in == nil {
			continue
		}
		enter, err := w.look(in.rules, p)
		if err != nil {
			return w.stats.snapshot(), err
		}
		if enter {
			w.pending = append(w.pending, folder{path: p, above: in.rules})
		}
	}
	if len(w.pending) == 0 {
		return w.stats.snapshot(), nil
	}
	return w.run(cancel)
}

// place is a folder on the way to a path.
type place struct{ rules *ignore.Dir }

// place gives a folder that the walk would enter, nil for another.
func (w *walker) place(known map[wspath.Path]*place, dir wspath.Path) (*place, error) {
	if d, ok := known[dir]; ok {
		return d, nil
	}
	above, err := w.place(known, dir.Dir())
	if err != nil {
		return nil, err
	}
	var here *place
	if above != nil {
		// Whether it is visited does not matter here.
		quiet := &walker{fs: w.fs, opts: w.opts, ctx: w.ctx, visit: func(Found) error { return nil }}
		quiet.opts.Dirs = true
		enter, err := quiet.look(above.rules, dir)
		if err != nil {
			return nil, err
		}
		if enter {
			here = &place{}
			if above.rules != nil {
				if here.rules, err = above.rules.Child(dir.Base()); err != nil {
					if !vanished(err) {
						return nil, err
					}
					here = nil
				}
			}
		}
	}
	known[dir] = here
	return here, nil
}

// look visits what exists at a path, in a directory with these rules; enter means
// that it is a directory whose content is to be visited.
func (w *walker) look(rules *ignore.Dir, p wspath.Path) (enter bool, err error) {
	info, err := w.fs.Lstat(string(p))
	switch {
	case err == nil:
	case vanished(err):
		return false, nil
	case outOfResources(err):
		return false, err
	default:
		return false, w.skip(w.visit, p, Unreadable)
	}
	e := vfs.DirEntry{Name: p.Base(), Type: info.Mode.Type()}
	return w.entry(w.visit, p.Dir(), rules, e, func(string) (vfs.Info, error) { return info, nil })
}
