package calls

import (
	"bytes"
	"context"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/project"
	"umbra/internal/workspace"
)

// maxOverwrote bounds the paths of one call that are checked.
const maxOverwrote = 1000

// overwrote finds the paths that a call deleted, or of whose last writer nothing
// is left, where that was another agent, a person, or what the workspace began
// with, and no commit of the project's own git has the content.
func (s *Service) overwrote(ctx context.Context, w *workspace.Workspace, rec *Record, entries []workspace.ChangeEntry) ([]Overwritten, error) {
	if w.Root() == "" {
		return nil, nil
	}
	type change struct {
		first, last *workspace.ChangeEntry
	}
	byPath := make(map[string]*change)
	var order []string
	for i := range entries {
		e := &entries[i]
		if e.Before.IsZero() || e.Operation == message.Rename || e.Operation == message.Chmod || !e.Claims.IsZero() {
			if c := byPath[e.Path]; c != nil {
				c.last = e
			}
			continue
		}
		if c := byPath[e.Path]; c != nil {
			c.last = e
			continue
		}
		byPath[e.Path] = &change{e, e}
		order = append(order, e.Path)
	}
	var lost []candidate
	known := make(written)
	for _, path := range order[:min(len(order), maxOverwrote)] {
		c := byPath[path]
		if c.last.After == c.first.Before {
			continue
		}
		x, err := s.lastWriter(ctx, w, rec, c.first, known)
		if err != nil {
			return nil, err
		}
		if x != nil {
			x.after = c.last.After
			lost = append(lost, *x)
		}
	}
	if len(lost) == 0 {
		return nil, nil
	}
	return s.nothingLeft(ctx, w, lost)
}

// candidate is a version of a file that a call replaced, and who wrote it.
type candidate struct {
	Overwritten
	before   object.ID // the version
	previous object.ID // what its writer found; zero: nothing, or not known
	baseline bool
	after    object.ID // what the call left; zero: nothing
}

// written is commits that were read, by number, so that one of many files is read once.
type written map[uint64]*writing

// writing is a commit with its entries by path.
type writing struct {
	*gitstore.Commit
	entries []workspace.ChangeEntry
	byPath  map[string]int
}

// at returns a commit, without entries if it is what the history begins with.
func (m written) at(ctx context.Context, w *workspace.Workspace, seq uint64) (*writing, error) {
	if c := m[seq]; c != nil {
		return c, nil
	}
	id, err := w.Store().CommitAt(ctx, seq)
	if err != nil {
		return nil, err
	}
	c := &writing{byPath: make(map[string]int)}
	if c.Commit, err = w.Store().ReadCommit(ctx, id); err != nil {
		return nil, err
	}
	if !c.begins(w) {
		if c.entries, err = w.EntriesAt(ctx, id); err != nil {
			return nil, err
		}
	}
	for i := range c.entries {
		for _, p := range []string{c.entries[i].Path, c.entries[i].NewPath} {
			if _, had := c.byPath[p]; !had {
				c.byPath[p] = i
			}
		}
	}
	m[seq] = c
	return c, nil
}

// begins reports whether the history begins with the commit.
func (c *writing) begins(w *workspace.Workspace) bool {
	return c.Message.Source == message.Baseline || c.Parent.IsZero() || w.Store().Boundary().Seq == c.Seq
}

// lastWriter finds who wrote the version that an entry replaced; nil where that
// was the call's own session.
func (s *Service) lastWriter(ctx context.Context, w *workspace.Workspace, rec *Record, e *workspace.ChangeEntry, known written) (*candidate, error) {
	seq, err := writtenAt(ctx, w.Store(), e.Path, e.Before, e.Seq-1)
	if err != nil {
		return nil, err
	}
	out := &candidate{before: e.Before, Overwritten: Overwritten{Path: e.Path}}
	c, err := known.at(ctx, w, seq)
	if err != nil {
		return nil, err
	}
	out.At, out.Source = c.When, string(c.Message.Source)
	if c.begins(w) {
		out.baseline, out.Source = true, string(message.Baseline)
		return out, nil
	}
	if i, ok := c.byPath[e.Path]; ok {
		x := &c.entries[i]
		if s.sameSession(x, rec) {
			return nil, nil
		}
		out.Task, out.Actor, out.previous = x.TaskID, x.Actor, x.Before
	}
	return out, nil
}

// sameSession reports whether a change is, or may be, of a call's own session.
func (s *Service) sameSession(e *workspace.ChangeEntry, rec *Record) bool {
	if e.TaskID != "" && e.TaskID == rec.Task || mayBe(e, rec.Task) {
		return true
	}
	if e.CallID == "" || rec.Session == "" {
		return false
	}
	other, ok, err := s.record(e.CallID)
	return err == nil && ok && other.Agent == rec.Agent && other.Session == rec.Session
}

// nearby is how many commits back a writer is looked for one by one.
const nearby = 256

// writtenAt finds the commit that gave a path the content that it has at seq: one
// by one at first, then by halving the history.
func writtenAt(ctx context.Context, st *gitstore.Store, path string, content object.ID, seq uint64) (uint64, error) {
	has := func(at uint64) (bool, error) {
		id, err := st.CommitAt(ctx, at)
		if err != nil {
			return false, err
		}
		e, ok, err := fileAt(ctx, st, id, path)
		return ok && e.ID == content, err
	}
	first := max(1, st.Boundary().Seq)
	hi := seq
	for ; hi > first && seq-hi < nearby; hi-- {
		if is, err := has(hi - 1); err != nil || !is {
			return hi, err
		}
	}
	lo, step := hi, uint64(1)
	for lo > first {
		lo -= min(step, lo-first)
		is, err := has(lo)
		if err != nil {
			return 0, err
		}
		if !is {
			break
		}
		hi, step = lo, step*2
	}
	if hi == first || lo == hi {
		return first, nil
	}
	for hi-lo > 1 { // lo has it not, hi has
		mid := lo + (hi-lo)/2
		is, err := has(mid)
		if err != nil {
			return 0, err
		}
		if is {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi, nil
}

// nothingLeft keeps the candidates of which nothing is left, and whose content no
// commit of the project's git has.
func (s *Service) nothingLeft(ctx context.Context, w *workspace.Workspace, list []candidate) ([]Overwritten, error) {
	asked := make([]project.Version, len(list))
	for i := range list {
		asked[i] = project.Version{Path: list[i].Path, Blob: list[i].before}
	}
	held := project.Holds(ctx, w.Root(), asked)
	var out []Overwritten
	for i := range list {
		if held[i] {
			continue
		}
		gone, err := isGone(ctx, w, &list[i])
		if err != nil {
			return nil, err
		}
		if gone {
			out = append(out, list[i].Overwritten)
		}
	}
	return out, nil
}

// isGone reports whether nothing of what a version's writer brought is in what the
// call left.
func isGone(ctx context.Context, w *workspace.Workspace, x *candidate) (bool, error) {
	if x.after.IsZero() {
		return true, nil
	}
	read := func(id object.ID) ([]byte, error) {
		if id.IsZero() {
			return nil, nil
		}
		return w.Store().ReadBlob(ctx, id, maxCompared)
	}
	was, err := read(x.before)
	if err != nil {
		return unread(err) == nil, unread(err)
	}
	now, err := read(x.after)
	if err != nil {
		return unread(err) == nil, unread(err)
	}
	previous, err := read(x.previous)
	if unread(err) != nil {
		return false, err
	}
	if x.baseline {
		repo, name := project.For(w.Root(), x.Path)
		previous = repo.Content(ctx, name, maxCompared)
	}
	if diff.Binary(was) || diff.Binary(now) {
		return true, nil
	}
	if bytes.Equal(previous, now) {
		return true, nil
	}
	left := make(map[string]bool)
	for l := range bytes.Lines(now) {
		left[string(bytes.TrimSpace(l))] = true
	}
	old := make(map[string]bool)
	for l := range bytes.Lines(previous) {
		old[string(bytes.TrimSpace(l))] = true
	}
	brought := 0
	for l := range bytes.Lines(was) {
		text := strings.TrimSpace(string(l))
		if text == "" || old[text] {
			continue
		}
		if brought++; left[text] {
			return false, nil
		}
	}
	return brought > 0, nil
}
