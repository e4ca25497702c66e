package merge

import (
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
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
	along   []outcome // after todo: files of the target that move with its directories

	next map[string]string // by former names: those that it gives; empty where it deletes the file
	prev map[string]string // by the names that it gives: the former ones
}

// all returns what a step does to the target.
func (s *step) all() []outcome { return slices.Concat(s.todo, s.along) }

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
	own, only, err := m.targetsOwn(c)
	if err != nil || only {
		return nil, err
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
		if err == nil && !has {
			has, err = m.given(own, x)
		}
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

// targetsOwn returns the commits of the target that a commit of the source is made from, and
// whether it is made from nothing else: the target's own work, which came here by merges, is not
// brought back to it. What a revert took back in between, and another merge brought again, is:
// so is the revert. A commit may have several parts, of a squash: each begins with the workspace
// that the first one names, and what follows is what that part was made from itself.
func (m *merger) targetsOwn(c *gitstore.Commit) (own []*gitstore.Commit, only bool, err error) {
	if c.Message.Trailer(KeyAgain) != "" {
		return nil, false, nil
	}
	first, part := "", true
	only = true
	for _, v := range c.Message.Trailers(KeyFrom) {
		ws, hex, _ := strings.Cut(v, " ")
		if first == "" || ws == first {
			first, only, part = ws, only && part, false
		}
		part = part || ws == m.into.ID()
		id, perr := parsed(m.into, hex)
		if perr != nil {
			continue
		}
		if x, err := m.into.Store().Own(m.ctx, id); err == nil {
			own, part = append(own, x), true
		} else if !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Gone) {
			return nil, false, err
		}
	}
	return own, first != "" && only && part, nil
}

// given reports whether one of some commits of the target did to a file what a change does.
func (m *merger) given(own []*gitstore.Commit, c change) (bool, error) {
	for _, x := range own {
		was, err := m.versionAt(x.Parent, c.path)
		if err != nil {
			return false, err
		}
		if now, err := m.versionAt(x.ID, c.path); err != nil || now == c.now && now != was {
			return err == nil, err
		}
	}
	return false, nil
}

// versionAt returns what the target had at a path; none also where it has no such commit any more.
func (m *merger) versionAt(commit object.ID, path string) (version, error) {
	snap, err := m.into.Store().SnapshotOf(m.ctx, commit)
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Gone) {
		return version{}, nil
	}
	if err != nil {
		return version{}, err
	}
	e, _, err := snap.Lookup(wspath.Path(path))
	return version{e.Mode, e.ID}, err
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
