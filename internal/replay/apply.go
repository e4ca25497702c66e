package replay

import (
	"umbra/gitstore/merge3"
	"umbra/gitstore/object"
)

// Conflict is a file that a step could not be applied to; it stays as it is.
type Conflict struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // "modified", "deleted", "occupied", "binary", "overlapping"
}

// apply does a step's changes on a state: where a file is what the step found,
// it becomes what the step left; elsewhere texts are merged three-way. All
// files leave their old names before any takes a new one.
func (s *state) apply(changes []change) (conflicts []Conflict, err error) {
	type placed struct {
		path string
		f    file
	}
	var put []placed
	var gone []string
	for _, ch := range changes {
		cur := s.files[ch.oldPath]
		next, reason, err := s.judge(ch, cur)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			conflicts = append(conflicts, Conflict{ch.path, reason})
			continue
		}
		if cur.exists() && (!next.exists() || ch.oldPath != ch.path) {
			gone = append(gone, ch.oldPath)
		}
		if next.exists() {
			put = append(put, placed{ch.path, next})
		}
	}
	leaving := make(map[string]bool)
	for _, p := range gone {
		leaving[p] = true
	}
	for i := 0; i < len(put); i++ {
		p := put[i]
		cur := s.files[p.path]
		if cur.exists() && !leaving[p.path] && cur != p.f && !s.own(changes, p.path) {
			conflicts = append(conflicts, Conflict{p.path, "occupied"})
			put = append(put[:i], put[i+1:]...)
			i--
		}
	}
	for _, p := range gone {
		if err := s.remove(p); err != nil {
			return nil, err
		}
	}
	for _, p := range put {
		if err := s.put(p.path, p.f); err != nil {
			return nil, err
		}
	}
	return conflicts, nil
}

// own reports whether a step itself judged the file at a path.
func (s *state) own(changes []change, path string) bool {
	for _, ch := range changes {
		if ch.oldPath == path && ch.old.exists() {
			return true
		}
	}
	return false
}

// judge gives what a file is to become.
func (s *state) judge(ch change, cur file) (next file, reason string, err error) {
	switch {
	case cur == ch.old:
		return ch.new, "", nil
	case !ch.old.exists():
		if cur == ch.new {
			return cur, "", nil
		}
		return cur, "occupied", nil
	case !cur.exists() && !ch.new.exists():
		return file{}, "", nil
	case !cur.exists():
		return cur, "deleted", nil
	case !ch.new.exists():
		return cur, "modified", nil
	}
	next = file{cur.mode, cur.id}
	if ch.new.mode != ch.old.mode {
		if cur.mode != ch.old.mode && cur.mode != ch.new.mode {
			return cur, "modified", nil
		}
		next.mode = ch.new.mode
	}
	switch {
	case ch.new.id == ch.old.id, cur.id == ch.new.id:
		return next, "", nil
	case cur.id == ch.old.id:
		next.id = ch.new.id
		return next, "", nil
	case cur.mode == object.Symlink || ch.new.mode == object.Symlink || ch.old.mode == object.Symlink:
		return cur, "modified", nil
	}
	var sides [3][]byte
	for i, id := range []object.ID{ch.old.id, cur.id, ch.new.id} {
		if sides[i], err = s.bytes(id); err != nil {
			return cur, "", err
		}
	}
	res, err := merge3.Merge(sides[0], sides[1], sides[2], merge3.Options{})
	switch {
	case err != nil:
		return cur, "binary", nil
	case !res.Clean:
		return cur, "overlapping", nil
	}
	next.id = object.Hash(object.Blob, res.Merged)
	s.made[next.id] = res.Merged
	return next, "", nil
}
