package merge

import (
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/lineage"
	"umbra/internal/wspath"
)

// step is one commit of the source.
type step struct {
	commit  *gitstore.Commit
	before  gitstore.Snapshot
	after   gitstore.Snapshot
	changes []change
	partial bool     // some of its paths are left out
	again   bool     // some of it was merged before, and taken back
	hunks   []string // that were picked; nil: all of the changes
	todo    []outcome

	next map[string]string // by former names: those that it gives; empty where it deletes the file
	prev map[string]string // by the names that it gives: the former ones
}

// index fills next and prev.
func (s *step) index() {
	s.next, s.prev = map[string]string{}, map[string]string{}
	for _, c := range s.changes {
		if _, moved := s.next[c.path]; c.from == "" && c.now.Mode == 0 && !moved {
			s.next[c.path] = ""
		} else if c.from != "" {
			s.next[c.from], s.prev[c.path] = c.path, c.from
		}
	}
}

// change is a path that a commit changed.
type change struct {
	path     string
	from     string // the former name, where the commit renamed it
	old, now version
	// What no history has of the two.
	oldData, nowData []byte
}

// renames makes changes of paths of what a commit renamed, and returns the names that it
// took from files. What it put at such a name is new, or was renamed too.
func (s *step) renames(all []change) (gone map[string]bool, err error) {
	list := lineage.Renames(s.commit.Message)
	gone = map[string]bool{}
	for more := len(list) > 0; more; {
		more = false
		for i := range all {
			x := &all[i]
			if x.from != "" || x.now.Mode == 0 || x.old.Mode != 0 && !gone[x.path] {
				continue
			}
			x.old = version{}
			from := former(list, x.path)
			if from == "" || gone[from] {
				continue
			}
			e, ok, err := s.before.Lookup(wspath.Path(from))
			if err != nil {
				return nil, err
			}
			if ok && e.Mode != object.Dir {
				x.from, x.old = from, version{e.Mode, e.ID}
				gone[from], more = true, true
			}
		}
	}
	return gone, nil
}

// ordered has what a commit removes before what it moves, of that a name's file before what
// comes to the name, and what is new last: a file may take the place of a directory.
func ordered(all []change) []change {
	var removed, moved, rest []change
	leaves := map[string]change{} // by its former name
	for _, c := range all {
		switch {
		case c.from != "":
			leaves[c.from] = c
		case c.now.Mode == 0:
			removed = append(removed, c)
		default:
			rest = append(rest, c)
		}
	}
	for _, c := range all {
		var chain []change
		for c, ok := leaves[c.from]; ok; c, ok = leaves[c.path] {
			chain = append(chain, c)
			delete(leaves, c.from)
		}
		slices.Reverse(chain)
		moved = append(moved, chain...)
	}
	return slices.Concat(removed, moved, rest)
}

// version is a file or link; the zero value is none.
type version struct {
	Mode object.Mode
	ID   object.ID
}

func (v version) file() bool { return v.Mode == object.Regular || v.Mode == object.Executable }

// step reads what a commit changed and is not done yet; nil where nothing of that is wanted.
func (m *merger) step(id object.ID, done func(change) (bool, error)) (*step, error) {
	st := m.from.Store()
	c, err := st.ReadCommit(m.ctx, id)
	if err != nil {
		return nil, err
	}
	for _, v := range c.Message.Trailers(KeyFrom) {
		// The target's own work, which came here by a merge, is not brought back to it; what a
		// revert took back in between, and another merge brought again, is: so is the revert.
		if ws, _, _ := strings.Cut(v, " "); ws == m.into.ID() && c.Message.Trailer(KeyAgain) == "" {
			return nil, nil
		}
	}
	s := &step{commit: c}
	if s.before, err = st.SnapshotOf(m.ctx, c.Parent); err != nil {
		return nil, err
	}
	if s.after, err = st.SnapshotOf(m.ctx, id); err != nil {
		return nil, err
	}
	var all []change
	err = gitstore.Diff(m.ctx, s.before, s.after, wspath.Root, func(d gitstore.TreeChange) error {
		all = append(all, change{path: string(d.Path), old: version{d.Old.Mode, d.Old.ID}, now: version{d.New.Mode, d.New.ID}})
		return nil
	})
	if err != nil {
		return nil, err
	}
	gone, err := s.renames(all)
	if err != nil {
		return nil, err
	}
	all = ordered(all)
	for _, x := range all {
		has, err := done(x)
		if err != nil {
			return nil, err
		}
		switch {
		case x.now.Mode == 0 && gone[x.path]: // it moved
		case has || !m.within(x.path) && (x.from == "" || !m.within(x.from)):
			s.partial = true
		default:
			s.changes = append(s.changes, x)
		}
	}
	if len(s.changes) == 0 {
		return nil, nil
	}
	s.index()
	return s, nil
}

// former gives the name that a path had before renames; empty: the same.
func former(list []lineage.Move, path string) string {
	for _, r := range list {
		if was, ok := r.Back().Follow(wspath.Path(path)); ok {
			return string(was)
		}
	}
	return ""
}
