package merge

import (
	"slices"
	"strconv"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/lineage"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// had is what the target has, or had, of the commits of the source.
type had struct {
	whole map[object.ID]bool            // all of them
	parts map[object.ID]map[string]bool // some paths
	taken map[object.ID]map[string]bool // of either: names in the target of what a revert took back

	renames []lineage.Move // of the source since the common history; read by takenBack
}

// merged reads which commits of the source the target has.
func (m *merger) merged() (*had, error) {
	h := &had{whole: map[object.ID]bool{}, parts: map[object.ID]map[string]bool{}, taken: map[object.ID]map[string]bool{}}
	st := m.into.Store()
	undone := map[object.ID]bool{}
	var made []*gitstore.Commit
	err := st.Records(m.ctx, m.since+1, st.Tip().Seq, func(r gitstore.Record) error {
		if r.Seq <= m.since || r.Source != message.Merge && r.Source != message.Rollback {
			return nil
		}
		c, err := st.ReadCommit(m.ctx, r.Commit)
		if err != nil {
			return err
		}
		if r.Source == message.Merge {
			made = append(made, c)
		}
		for _, v := range c.Message.Trailers(KeyUndone) {
			if id, err := parsed(m.into, v); err == nil {
				undone[id] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	effects, err := m.effects()
	if err != nil {
		return nil, err
	}
	for _, c := range made {
		if undone[c.ID] {
			continue
		}
		hunks := c.Message.Trailer(KeyHunk) != "" // the rest of what it is made from is missing
		again := c.Message.Trailers(KeyAgain)
		some := map[object.ID]bool{}
		for _, v := range c.Message.Trailers(KeyPart) {
			hex, quoted, _ := strings.Cut(v, " ")
			id, err := parsed(m.from, hex)
			path, uerr := strconv.Unquote(quoted)
			if err != nil || uerr != nil {
				continue
			}
			some[id] = true
			mark(h.parts, id, path, true)
		}
		for _, v := range c.Message.Trailers(KeyFound) {
			_, v, _ = strings.Cut(v, " ")
			hex, quoted, part := strings.Cut(v, " ")
			id, err := parsed(m.from, hex)
			if err != nil {
				continue
			}
			if path, err := strconv.Unquote(quoted); part && err == nil {
				mark(h.parts, id, path, true)
				mark(h.taken, id, path, false)
			} else if !part {
				h.whole[id] = true
				delete(h.taken, id)
			}
		}
		for _, v := range c.Message.Trailers(KeyFrom) {
			ws, hex, _ := strings.Cut(v, " ")
			m.brought[c.Seq] = m.brought[c.Seq] || ws == m.from.ID()
			id, err := parsed(m.from, hex)
			if err != nil {
				continue
			}
			h.whole[id] = h.whole[id] || !some[id] && !hunks
			for path, undone := range effects[c.ID] {
				if undone || slices.Contains(again, hex) {
					mark(h.taken, id, path, undone)
				}
			}
		}
	}
	return h, nil
}

// parsed reads a commit's id of a trailer. One that a purge gave another id is that one.
func parsed(of *workspace.Workspace, hex string) (object.ID, error) {
	id, err := object.ParseID(hex)
	if err != nil {
		return id, err
	}
	if _, now, moved, err := of.Store().Moved(hex); moved || err != nil {
		return now, err
	}
	return id, nil
}

// mark makes a path a member of a commit's set, or no member.
func mark(sets map[object.ID]map[string]bool, id object.ID, path string, member bool) {
	switch {
	case !member:
		delete(sets[id], path)
	case sets[id] == nil:
		sets[id] = map[string]bool{path: true}
	default:
		sets[id][path] = true
	}
}

// effects lists the paths of the target's merge commits, and of each whether a revert took
// the change back; nil where there is no revert.
func (m *merger) effects() (map[object.ID]map[string]bool, error) {
	st := m.into.Store()
	recs, _, err := st.Undoes(m.ctx, 0)
	if err != nil || !slices.ContainsFunc(recs, func(r gitstore.Record) bool { return r.Seq > m.since }) {
		return nil, err
	}
	merges := func(r *gitstore.Record) bool { return r.Source == message.Merge }
	_, list, err := history.NewPicker(m.into, history.Picks{From: m.since + 1, Record: merges}).Task(m.ctx)
	if err != nil {
		return nil, err
	}
	out := map[object.ID]map[string]bool{}
	for _, e := range list {
		if out[e.Commit] == nil {
			out[e.Commit] = map[string]bool{}
		}
		for _, p := range []string{e.Path, e.NewPath} {
			if p != "" {
				out[e.Commit][p] = e.Undone
			}
		}
	}
	return out, nil
}

// takenBack reports whether a revert took a change of a commit of the source back.
func (m *merger) takenBack(h *had, of source, c change) (bool, error) {
	taken := h.taken[of.id]
	if len(taken) == 0 {
		return false, nil
	}
	if m.moves == nil {
		if err := m.readMoves(); err != nil {
			return false, err
		}
	}
	if m.among(taken, c.path) || m.among(taken, c.from) {
		return true, nil
	}
	st := m.from.Store()
	if h.renames == nil {
		list, err := lineage.Since(m.ctx, st, m.since+1, st.Tip().Seq, nil)
		if err != nil {
			return false, err
		}
		h.renames = append([]lineage.Move{}, list...)
	}
	also := func(name wspath.Path, seq uint64) (bool, error) {
		by, err := st.CommitAt(m.ctx, seq)
		return err == nil && m.among(taken, string(name)) && m.among(h.taken[by], string(name)), err
	}
	// A squash has it under the name that a later commit gave it, or has only deleted what an
	// earlier one renamed.
	now, last := wspath.Path(c.path), of.seq
	for _, r := range h.renames {
		if to, ok := r.Follow(now); ok && !r.Whole && r.Seq > last {
			now, last = to, r.Seq
			if back, err := also(now, last); back || err != nil {
				return back, err
			}
		}
	}
	if c.now.Mode != 0 {
		return false, nil
	}
	now, last = wspath.Path(c.path), of.seq
	for _, r := range slices.Backward(h.renames) {
		if from, ok := r.Back().Follow(now); ok && !r.Whole && r.Seq < last {
			now, last = from, r.Seq
			if back, err := also(now, last); back || err != nil {
				return back, err
			}
		}
	}
	return false, nil
}

// among reports whether a path is one of some of the target, as of then or by its own renames.
func (m *merger) among(names map[string]bool, path string) bool {
	now := wspath.Path(path)
	return names[path] || len(names) > 0 && slices.ContainsFunc(m.moves, func(r lineage.Move) bool {
		to, ok := r.Follow(now)
		if ok = ok && !m.brought[r.Seq]; ok {
			now = to
		}
		return ok && names[string(now)]
	})
}
