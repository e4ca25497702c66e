package wspath

import "maps"

// Dirs is a map of directories that finds those below one without looking at the
// others. The zero value is empty. It is not safe for concurrent use.
type Dirs[V any] struct {
	m map[Path]V
	// subs are the names in a directory at or below which m has any.
	subs map[Path]map[string]bool
}

// Len returns the number of directories.
func (d *Dirs[V]) Len() int { return len(d.m) }

// Get returns a directory's value, the zero value for none.
func (d *Dirs[V]) Get(dir Path) V { return d.m[dir] }

// All is every directory with its value, in no order. Deleting during the iteration
// is allowed.
func (d *Dirs[V]) All() map[Path]V { return d.m }

// Put sets a directory's value. The path is kept.
func (d *Dirs[V]) Put(dir Path, v V) {
	if d.m == nil {
		d.m, d.subs = make(map[Path]V), make(map[Path]map[string]bool)
	}
	d.m[dir] = v
	for at := dir; !at.IsRoot() && !d.subs[at.Dir()][at.Base()]; at = at.Dir() {
		if d.subs[at.Dir()] == nil {
			d.subs[at.Dir()] = make(map[string]bool)
		}
		d.subs[at.Dir()][at.Base()] = true
	}
}

// Delete removes a directory, not those below it.
func (d *Dirs[V]) Delete(dir Path) {
	delete(d.m, dir)
	for at := dir; !at.IsRoot() && d.subs[at] == nil; at = at.Dir() {
		if _, ok := d.m[at]; ok {
			return
		}
		delete(d.subs[at.Dir()], at.Base())
		if len(d.subs[at.Dir()]) == 0 {
			delete(d.subs, at.Dir())
		}
	}
}

// Cut removes a directory and those below it, and returns them; it costs by their
// number.
func (d *Dirs[V]) Cut(top Path) map[Path]V {
	out := make(map[Path]V)
	d.below(top, out)
	for dir := range maps.Keys(out) {
		d.Delete(dir)
	}
	return out
}

func (d *Dirs[V]) below(top Path, out map[Path]V) {
	if v, ok := d.m[top]; ok {
		out[top] = v
	}
	for name := range d.subs[top] {
		d.below(top.Join(name), out)
	}
}
