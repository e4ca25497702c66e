package plan

import (
	"context"
	"maps"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// Message makes a request's commit message.
func (p *Plan) Message(ctx context.Context, entries []record.Entry) (message.Message, error) {
	r := p.req
	m := message.Message{Subject: r.Subject(), TaskID: r.By.TaskID, SubtaskID: r.By.SubtaskID, Actor: r.By.Actor, Source: r.By.Source,
		RequestID: r.By.RequestID, IdempotencyKey: r.By.IdempotencyKey, Reverts: r.Reverts,
		RevertsEntries: slices.Concat(r.RevertsEntries, p.net.unsaid(entries)),
		RevertWhat:     r.RevertWhat, Author: r.Author, Description: r.Description, Extra: r.Extra}
	if m.Source == "" {
		m.Source = message.API
	}
	if len(r.Ops) == 1 && len(entries) > 1 {
		o, did := &r.Ops[0], &p.Ops[0]
		slash := ""
		if coversFolder(entries, did.Path) || coversFolder(entries, did.To) {
			slash = "/"
		}
		switch o.Kind {
		case op.OpDelete:
			m.Whole = &message.Whole{Operation: message.Delete, Path: string(did.Path) + slash}
		case op.OpRename:
			m.Whole = &message.Whole{Operation: message.Rename, Path: string(did.To) + slash, OldPath: string(did.Path) + slash}
		case op.OpCopy:
			m.Whole = &message.Whole{Operation: message.Create, Path: string(did.To) + slash}
		}
	}
	if p.filled || p.net.filledFolder() { // else the entries have it
		m.Extra = slices.Concat(m.Extra, op.FolderTrailers(p.folders))
	}
	m.Extra = slices.Concat(m.Extra, filledTrailers(p.View.filled, entries), p.Named)
	if len(p.Steps) > 0 {
		m.Extra = append(m.Extra, remadeTrailers(p.removed, entries)...)
	}
	var err error
	m.Entries, err = p.rec.MessageEntries(ctx, entries)
	return m, err
}

// coversFolder reports whether entries are of files in a folder: one file that
// takes another's place has two entries as well.
func coversFolder(entries []record.Entry, dir wspath.Path) bool {
	in := func(name string) bool { return dir != "" && wspath.Path(name).IsUnder(dir) }
	return slices.ContainsFunc(entries, func(e record.Entry) bool { return in(e.Path) || in(e.OldPath) })
}

// remadeTrailers names the removed directories of which a file that was there before
// is there afterwards.
func remadeTrailers(removed []removal, entries []record.Entry) []message.Trailer {
	var out []message.Trailer
	for _, r := range removed {
		if dir := r.node.origin; r.node.Kind == op.KindDir && dir != "" && slices.ContainsFunc(entries, func(e record.Entry) bool {
			return e.OldPath == "" && e.Before.Mode != 0 && e.After.Mode != 0 && e.After.Path.IsUnder(dir)
		}) {
			out = append(out, message.Trailer{Key: op.KeyRemade, Value: string(dir)})
		}
	}
	return out
}

// filledTrailers names the directories, by where they were before, that were empty and
// are not. filled has these names by where they are now.
func filledTrailers(filled map[wspath.Path]wspath.Path, entries []record.Entry) []message.Trailer {
	var out []message.Trailer
	for _, dir := range slices.Sorted(maps.Keys(filled)) {
		if filled[dir] != "" && slices.ContainsFunc(entries, func(e record.Entry) bool {
			at, empty := strings.CutSuffix(e.Path, "/")
			return e.After.Mode != 0 && e.After.Path.IsUnder(dir) || empty && e.Operation != message.Rmdir && wspath.Path(at).IsUnder(dir)
		}) {
			out = append(out, message.Trailer{Key: op.KeyFilled, Value: string(filled[dir])})
		}
	}
	return out
}

// Done makes the answer.
func (p *Plan) Done(c gitstore.Committed, entries []record.Entry) *op.Result {
	res := &op.Result{Commit: c.Commit, Seq: c.Seq, When: c.When, Ops: p.Ops, Unrecorded: p.unrecorded}
	src := p.req.By.Source
	if src == "" {
		src = message.API
	}
	text, against := message.CleanText(p.req.Subject()), (&message.Message{Extra: p.Named}).Policy()
	for i, e := range record.OrderEntries(entries) {
		ce := record.ChangeOf(e)
		ce.Seq, ce.When, ce.Commit, ce.Policy = c.Seq, c.When, c.Commit, against[e.Path]
		ce.TaskID, ce.SubtaskID, ce.Actor, ce.Source, ce.Message = p.req.By.TaskID, p.req.By.SubtaskID, p.req.By.Actor, src, text
		if c.Change > 0 {
			ce.ID = c.Change + uint64(i)
		}
		res.Entries = append(res.Entries, ce)
	}
	return res
}

// Preview is the answer of a dry run.
func (p *Plan) Preview() *op.Result {
	res := &op.Result{Ops: p.Ops, Unrecorded: p.unrecorded}
	for _, e := range record.OrderEntries(p.Entries()) {
		res.Entries = append(res.Entries, record.ChangeOf(e))
	}
	return res
}
