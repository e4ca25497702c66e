package plan

import "umbra/internal/wspath"

// byPath has values by path, and finds those under a path without looking at others. It
// is for one goroutine.
type byPath[V any] struct {
	at map[wspath.Path]V
	// in has by directory what is in it and has a value, or something below it has. It
	// is made when it is first needed.
	in map[wspath.Path]map[wspath.Path]struct{}
}

func newByPath[V any]() byPath[V] { return byPath[V]{at: make(map[wspath.Path]V)} }

func (m *byPath[V]) put(p wspath.Path, v V) {
	m.at[p] = v
	if m.in != nil {
		m.enter(p)
	}
}

func (m *byPath[V]) enter(p wspath.Path) {
	for ; !p.IsRoot(); p = p.Dir() {
		dir := p.Dir()
		if _, ok := m.in[dir][p]; ok {
			return
		}
		if m.in[dir] == nil {
			m.in[dir] = make(map[wspath.Path]struct{}, 1)
		}
		m.in[dir][p] = struct{}{}
	}
}

func (m *byPath[V]) remove(p wspath.Path) {
	delete(m.at, p)
	for ; m.in != nil && !p.IsRoot() && len(m.in[p]) == 0; p = p.Dir() {
		if _, has := m.at[p]; has {
			return
		}
		delete(m.in[p.Dir()], p)
	}
}

// children returns the paths in a directory that have a value.
func (m *byPath[V]) children(dir wspath.Path) (list []wspath.Path) {
	m.index()
	for p := range m.in[key(dir)] {
		if _, ok := m.at[p]; ok {
			list = append(list, p)
		}
	}
	return list
}

// under returns the paths below another that have a value.
func (m *byPath[V]) under(p wspath.Path) (list []wspath.Path) {
	m.index()
	dirs := []wspath.Path{key(p)}
	for len(dirs) > 0 {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		for q := range m.in[dir] {
			if _, ok := m.at[q]; ok {
				list = append(list, q)
			}
			if len(m.in[q]) > 0 {
				dirs = append(dirs, q)
			}
		}
	}
	return list
}

// anyUnder reports whether a path below another has a value.
func (m *byPath[V]) anyUnder(p wspath.Path) bool {
	m.index()
	return len(m.in[key(p)]) > 0
}

// key gives the root its one name.
func key(dir wspath.Path) wspath.Path {
	if dir.IsRoot() {
		return wspath.Root
	}
	return dir
}

func (m *byPath[V]) index() {
	if m.in != nil {
		return
	}
	m.in = make(map[wspath.Path]map[wspath.Path]struct{})
	for p := range m.at {
		m.enter(p)
	}
}
