package merge

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/merge3"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/lineage"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// maxMerged is the size up to which texts are merged, as in a revert.
const maxMerged = 16 << 20

// plan decides for each commit what it does to the target, one after the other. A
// path at which a commit in the middle conflicts is tried once more as a whole, from
// before the first commit to after the last.
func (m *merger) plan() error {
	m.deferred, m.excluded = map[string]bool{}, map[string]Conflict{}
	for {
		more, err := m.attempt()
		if err != nil || !more {
			return err
		}
	}
}

// attempt plans all steps. It reports whether another path is to be merged as a
// whole, and all is to be planned again.
func (m *merger) attempt() (again bool, err error) {
	m.tip, m.over, m.conflicts, m.skipped = m.into.Store().Snapshot(), map[string]cell{}, nil, map[string]bool{}
	if m.moves == nil {
		if err := m.readMoves(); err != nil {
			return false, err
		}
	}
	m.names, m.carried = map[string]string{}, map[string]bool{}
	for _, path := range sortedKeys(m.excluded) {
		m.skipped[path] = true
		if x := m.excluded[path]; !slices.Contains(m.conflicts, x) {
			m.conflicts = append(m.conflicts, x)
		}
	}
	for _, s := range m.steps {
		s.todo, s.along = nil, nil
	}
	for i, s := range m.steps {
		m.seq, m.named = s.commit.Seq, maps.Clone(m.names)
		for _, c := range s.changes { // the names that it takes from files
			if c.from != "" {
				delete(m.names, c.from)
			} else if c.old.Mode == 0 || c.now.Mode == 0 {
				delete(m.names, c.path)
			}
		}
		for _, c := range s.changes {
			if m.leftOut(c.path) || c.from != "" && m.leftOut(c.from) {
				m.skipped[c.path] = true
				continue
			}
			if m.deferred[c.path] {
				last, whole := m.whole(i, c)
				if !last {
					continue
				}
				c = whole
			}
			m.apart = nil
			o, reason, err := m.judge(i, c)
			if err != nil {
				return false, err
			}
			if reason == "" {
				if o != nil {
					s.todo = append(s.todo, *o)
				}
				continue
			}
			if !m.deferred[c.path] && m.canDefer(c.path) {
				m.deferred[c.path] = true
				return true, nil
			}
			if err := m.conflict(i, c, reason); err != nil {
				return false, err
			}
			if m.leaveOut(i, c) {
				return true, nil
			}
		}
		if err := m.along(i); err != nil {
			return false, err
		}
	}
	return false, nil
}

// leaveOut skips the file of the newest conflict, or all files of its directory. It reports
// whether earlier steps do something to them, under any name, which is to be left out too.
func (m *merger) leaveOut(i int, c change) (again bool) {
	m.skipped[c.path] = true
	names := m.formerly(i, c)
	if m.apart != nil {
		dir := string(m.apart.To) + "/"
		m.skipped[dir] = true
		names = append(names, dir)
		for _, x := range m.steps[i].changes {
			if strings.HasPrefix(x.path, dir) {
				names = append(names, m.formerly(i, x)...)
			}
		}
	}
	if !slices.ContainsFunc(names, m.planned) {
		return false
	}
	for _, name := range names {
		m.excluded[name] = m.conflicts[len(m.conflicts)-1]
	}
	return true
}

// leftOut reports whether a path of the source is skipped, or a directory that it is in.
func (m *merger) leftOut(path string) bool {
	if len(m.skipped) == 0 || m.skipped[path] {
		return m.skipped[path]
	}
	for dir := range wspath.Path(path).Ancestors() {
		if m.skipped[string(dir)+"/"] {
			return true
		}
	}
	return false
}

// planned reports whether a step does something for a path of the source.
func (m *merger) planned(path string) bool {
	return slices.ContainsFunc(m.steps, func(s *step) bool {
		return slices.ContainsFunc(s.todo, func(o outcome) bool { return o.source == path })
	})
}

// canDefer reports whether the changes of a path can be taken as one: several
// commits made them, each on what the one before left, without another name.
func (m *merger) canDefer(path string) bool {
	n := 0
	var last version
	for _, s := range m.steps {
		for _, c := range s.changes {
			if c.from == path || c.path == path && c.from != "" {
				return false
			}
			if c.path != path {
				continue
			}
			if n++; n > 1 && c.old != last {
				return false
			}
			last = c.now
		}
	}
	return n > 1
}

// whole gives the one change that all of a path make, and whether a step is the
// last that has the path.
func (m *merger) whole(i int, c change) (last bool, all change) {
	for _, s := range m.steps[i+1:] {
		for _, x := range s.changes {
			if x.path == c.path {
				return false, c
			}
		}
	}
	all = c
	for _, s := range m.steps {
		for _, x := range s.changes {
			if x.path == c.path {
				all.old = x.old
				return true, all
			}
		}
	}
	return true, all
}

func sortedKeys(m map[string]Conflict) []string { return slices.Sorted(maps.Keys(m)) }

// at gives what is planned for a path of the target, or is there.
func (m *merger) at(path string) (cell, error) {
	if c, ok := m.over[path]; ok {
		return c, nil
	}
	e, ok, err := m.tip.Lookup(wspath.Path(path))
	if err != nil || !ok {
		return cell{}, err
	}
	return cell{version: version{e.Mode, e.ID}}, nil
}

// judge merges one change of a step into the target. A reason is given where that cannot be
// done; no outcome where nothing is to be done.
func (m *merger) judge(i int, c change) (o *outcome, reason string, err error) {
	source := c.path
	if c.from != "" {
		source = c.from
	}
	at := source
	if c.old.Mode != 0 {
		if at, err = m.follow(source); err != nil {
			return nil, "", err
		}
	}
	ours, err := m.at(at)
	if err != nil {
		return nil, "", err
	}
	to := at
	switch {
	case c.from != "":
		if to, reason, err = m.renamed(i, c, at); reason != "" || err != nil {
			return nil, reason, err
		}
		if to != c.path {
			m.names[c.path] = to
		}
	case c.old.Mode == 0:
		if to, err = m.placed(c.path); err != nil {
			return nil, "", err
		}
	}
	there, err := m.at(to)
	if err != nil {
		return nil, "", err
	}
	dir := there.Mode == object.Dir && c.now.Mode != 0
	if dir {
		if dir, err = m.emptied(to, at); err != nil {
			return nil, "", err
		}
		if dir {
			there = cell{}
		}
	}
	if c.from == "" {
		at, ours = to, there
	} else if to != at && there.Mode != 0 {
		if there.version == c.now && ours.Mode == 0 {
			return nil, "", nil // moved there already
		}
		return nil, "occupied", nil
	}
	if reason, err = m.blocked(to, at, c.now); reason != "" || err != nil {
		return nil, reason, err
	}
	if ours.Mode == object.Dir {
		return nil, "occupied", nil
	}
	out := outcome{path: to, source: c.path, was: ours.version}
	if to != at {
		out.from = at
		out.apart = dir || wspath.Path(to).IsUnder(wspath.Path(at))
	}
	switch {
	case ours.version == c.old:
		out.want, out.data = c.now, c.nowData
	case ours.version == c.now && out.from == "":
		return nil, "", nil
	case c.now.Mode == 0:
		return nil, "changed_here", nil
	case ours.Mode == 0:
		return nil, "deleted_here", nil
	case c.old.Mode == 0 || !ours.file() || !c.now.file() || !c.old.file():
		return nil, "content", nil
	default:
		if out.want.Mode = c.now.Mode; c.now.Mode == c.old.Mode {
			out.want.Mode = ours.Mode
		}
		switch {
		case ours.ID == c.now.ID || c.now.ID == c.old.ID:
			out.want.ID, out.data = ours.ID, ours.data
		case ours.ID == c.old.ID:
			out.want.ID, out.data = c.now.ID, c.nowData
		default:
			text, ok, err := m.text(c, ours)
			if err != nil {
				return nil, "", err
			}
			if !ok {
				return nil, "content", nil
			}
			out.data, out.want.ID = text, object.Hash(object.Blob, text)
		}
	}
	if out.from == "" && out.want == ours.version {
		return nil, "", nil
	}
	if out.from != "" {
		m.over[out.from] = cell{}
	}
	m.over[to] = cell{version: out.want, data: out.data}
	return &out, "", nil
}

// placed returns the path at which a file of the source is put that the target does not
// have: where the target renamed a directory that it is in, in that one.
func (m *merger) placed(path string) (string, error) {
	if c, err := m.at(path); err != nil || c.Mode != 0 {
		return path, err
	}
	p := wspath.Path(path)
	for _, r := range m.dirs {
		to, ok := r.Follow(p)
		if !ok {
			continue
		}
		if c, err := m.at(string(r.From)); err != nil || c.Mode != 0 {
			return path, err // there is another directory of that name
		}
		p = to
	}
	return string(p), nil
}

// emptied reports whether nothing is left of a directory by what is planned, but what moves
// to its path from another one.
func (m *merger) emptied(dir, from string) (bool, error) {
	for path, c := range m.over {
		if c.Mode != 0 && path != from && wspath.Path(path).IsUnder(wspath.Path(dir)) {
			return false, nil
		}
	}
	left := errors.New("a file is left")
	err := m.tip.Walk(wspath.Path(dir), func(e gitstore.Entry) error {
		if _, planned := m.over[string(e.Path)]; planned || string(e.Path) == from {
			return nil
		}
		return left
	})
	if errors.Is(err, left) {
		return false, nil
	}
	return err == nil, err
}

// blocked reports why nothing can be put at a path: a file, other than what moves there
// from another path, where a directory of it would be.
func (m *merger) blocked(path, from string, want version) (string, error) {
	if want.Mode == 0 {
		return "", nil
	}
	for dir := range wspath.Path(path).Ancestors() {
		if dir.IsRoot() || string(dir) == from {
			continue
		}
		if c, err := m.at(string(dir)); err != nil {
			return "", err
		} else if c.Mode != 0 && c.Mode != object.Dir {
			return "occupied", nil
		}
	}
	return "", nil
}

// text merges three texts; not ok where they overlap or are no texts.
func (m *merger) text(c change, ours cell) (merged []byte, ok bool, err error) {
	read := func(w *workspace.Workspace, id object.ID, known []byte) []byte {
		if err != nil || known != nil {
			return known
		}
		var data []byte
		data, err = w.Store().ReadBlob(m.ctx, id, maxMerged)
		return data
	}
	b, t := read(m.from, c.old.ID, c.oldData), read(m.from, c.now.ID, c.nowData)
	o := ours.data
	if o == nil {
		o = read(m.ownerOf(ours.ID), ours.ID, nil)
	}
	if errs.Is(err, errs.TooLarge) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	r, err := merge3.Merge(b, o, t, merge3.Options{})
	if errors.Is(err, merge3.ErrBinary) || errors.Is(err, merge3.ErrTooLarge) {
		return nil, false, nil
	}
	if err != nil || !r.Clean {
		return nil, false, err
	}
	if r.Merged == nil {
		r.Merged = []byte{}
	}
	return r.Merged, true, nil
}

// ownerOf gives the workspace whose history has a blob.
func (m *merger) ownerOf(id object.ID) *workspace.Workspace {
	if m.into.Store().HasBlob(id) {
		return m.into
	}
	return m.from
}

// readMoves lists the renames that the target made since the common history.
func (m *merger) readMoves() error {
	st := m.into.Store()
	all, err := lineage.Since(m.ctx, st, m.since+1, st.Tip().Seq, nil)
	m.moves, m.dirs = []lineage.Move{}, nil
	for _, r := range all {
		if r.Whole { // each file in it has a rename of its own
			m.dirs = append(m.dirs, r)
		} else {
			m.moves = append(m.moves, r)
		}
	}
	if err != nil || len(m.moves) == 0 || m.since == 0 {
		return err
	}
	theirs := m.from.Store()
	if m.sent, err = lineage.Since(m.ctx, theirs, m.since+1, theirs.Tip().Seq, nil); err != nil {
		return err
	}
	at, err := theirs.CommitAt(m.ctx, m.since)
	if err == nil {
		m.shared, err = theirs.SnapshotOf(m.ctx, at)
	}
	return err
}

// conflict notes a conflict with who made the two versions.
func (m *merger) conflict(i int, c change, reason string) error {
	at := c.path
	if c.from != "" {
		at = c.from
	}
	at, err := m.follow(at)
	if err != nil {
		return err
	}
	x := Conflict{Path: c.path, Reason: reason, Theirs: whoOf(m.steps[i].commit)}
	switch {
	case m.apart != nil:
		x.Path, x.Here = string(m.apart.To), string(m.apart.From)
	case reason == Renamed:
		if x.Path, x.Here = m.final(i, c.path), at; at == m.named[c.from] { // the plan moves it there
			x.Here, _ = m.forward(m.origin(c.from))
		}
	}
	for _, p := range []string{cmp.Or(x.Here, at), at, c.path} {
		if x.Ours, err = m.lastChange(p); err != nil || !x.Ours.Commit.IsZero() {
			break
		}
	}
	m.conflicts = append(m.conflicts, x)
	return err
}

func whoOf(c *gitstore.Commit) Who {
	m := c.Message
	return Who{Commit: c.ID, TaskID: m.TaskID, SubtaskID: m.SubtaskID, Actor: m.Actor, Source: m.Source, At: c.When}
}

// lastChange finds who changed a path of the target last since the common history.
func (m *merger) lastChange(path string) (Who, error) {
	st := m.into.Store()
	var list []object.ID
	err := st.Records(m.ctx, m.since+1, st.Tip().Seq, func(r gitstore.Record) error {
		if r.Seq > m.since && r.Entries > 0 && r.MayTouch(path) {
			list = append(list, r.Commit)
		}
		return nil
	})
	for i := len(list) - 1; i >= 0 && err == nil; i-- {
		var entries []workspace.ChangeEntry
		if entries, err = m.into.EntriesAt(m.ctx, list[i]); err != nil {
			break
		}
		for j := range entries {
			for _, name := range []string{entries[j].Path, entries[j].NewPath} {
				if name == path || strings.HasSuffix(name, "/") && strings.HasPrefix(path, name) {
					c, err := st.ReadCommit(m.ctx, list[i])
					if err != nil {
						return Who{}, err
					}
					return whoOf(c), nil
				}
			}
		}
	}
	return Who{}, err
}
