package browse

import (
	"context"

	"umbra/internal/errs"
	"umbra/internal/scan"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// page is what of a listing is to be checked, in order: the names are read
// first, and then all of the page checked by several goroutines.
type page struct {
	runs    []run
	entries int
}

// run is a part of one folder's entries.
type run struct {
	at, shown wspath.Path // the folder's place, and its path in the listing
	list      []vfs.DirEntry
	from, to  int
	first     int // index of the first on the page
}

// runMost is how many entries one goroutine checks in one go.
const runMost = 256

// add takes list[from:to] of a folder onto the page.
func (p *page) add(at, shown wspath.Path, list []vfs.DirEntry, from, to int) {
	for from < to {
		if n := len(p.runs); n > 0 {
			if last := &p.runs[n-1]; last.at == at && last.to == from && last.to-last.from < runMost {
				more := min(to-from, runMost-(last.to-last.from))
				last.to += more
				from += more
				p.entries += more
				continue
			}
		}
		p.runs = append(p.runs, run{at: at, shown: shown, list: list, from: from, to: from, first: p.entries})
	}
}

// look checks each entry once. What went since its name was read is left out.
func (p *page) look(ctx context.Context, f vfs.FS) ([]Listed, error) {
	out := make([]Listed, p.entries)
	err := scan.Spread(ctx, len(p.runs), 0, func(_ context.Context, i int) error {
		return p.runs[i].look(f, out)
	})
	if err != nil {
		return nil, err
	}
	kept := out[:0]
	for _, l := range out {
		if l.Path != "" {
			kept = append(kept, l)
		}
	}
	return kept, nil
}

func (r *run) look(f vfs.FS, out []Listed) error {
	err := vfs.LookIn(f, string(r.at), func(lstat func(string) (vfs.Info, error)) error {
		for i, e := range r.list[r.from:r.to] {
			info, err := lstat(e.Name)
			switch {
			case err == nil:
				out[r.first+i] = Listed{Path: r.shown.Join(e.Name), Info: typed(info, e.Type)}
			case !cannotList(err):
				return err
			}
		}
		return nil
	})
	if err != nil && !cannotList(err) {
		return errs.Wrap(err, string(r.at))
	}
	return nil
}
