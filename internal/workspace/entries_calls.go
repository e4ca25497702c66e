package workspace

import (
	"context"
	"strconv"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/errs"
)

// tellCall fills in which call made the entries of a commit.
func tellCall(out []ChangeEntry, m *message.Message) {
	if len(m.Extra) == 0 {
		return
	}
	call, all := m.Trailer(message.KeyCall), claims.Certainty(m.Trailer(message.KeyCertainty))
	if call == "" && all == "" {
		return
	}
	tool, model, prompt := m.Trailer(message.KeyTool), m.Trailer(message.KeyModel), m.Trailer(message.KeyPrompt)
	claimants, tasks := m.Trailers(message.KeyClaimant), m.Trailers(message.KeyClaimantTask)
	for i := range out {
		e := &out[i]
		e.CallID, e.Tool, e.Model, e.Prompt, e.Certainty = call, tool, model, prompt, all
		e.Claimants, e.ClaimantTasks = claimants, tasks
	}
	for _, v := range m.Trailers(message.KeyCertaintyOf) {
		place, certainty, _ := strings.Cut(v, " ")
		if n, err := strconv.Atoi(place); err == nil && n >= 1 && n <= len(out) {
			out[n-1].Certainty = claims.Certainty(certainty)
		}
	}
}

// claimedEntries gives the entries of a commit that makes entries of a shared
// one its task's: what those changed, by the paths that the commit lists.
func (w *Workspace) claimedEntries(ctx context.Context, c *gitstore.Commit, claimed string) ([]ChangeEntry, error) {
	id, err := object.ParseID(claimed)
	if err != nil {
		return nil, errs.New(errs.Internal, "", "the trailer %s of %s is damaged", message.KeyClaims, c.ID)
	}
	from, err := w.store.ReadCommit(ctx, id)
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Gone) {
		return nil, nil // dropped with its part of the history
	}
	if err != nil {
		return nil, err
	}
	all, err := w.EntriesOf(ctx, from)
	if err != nil {
		return nil, err
	}
	m := c.Message
	mine := make(map[string]bool, len(m.Entries))
	for i := range m.Entries {
		mine[m.Entries[i].Path] = true
	}
	out := make([]ChangeEntry, 0, len(mine))
	for _, e := range all {
		if !mine[e.Path] && !mine[e.NewPath] {
			continue
		}
		e.Claims, e.ClaimsSeq = e.Commit, e.Seq
		e.Seq, e.When, e.Commit = c.Seq, c.When, c.ID
		e.TaskID, e.SubtaskID, e.Actor, e.Source, e.Message = m.TaskID, m.SubtaskID, m.Actor, m.Source, m.Subject
		if m.Change > 0 {
			e.ID = m.Change + uint64(len(out))
		}
		out = append(out, e)
	}
	tellCall(out, m)
	return out, nil
}

// Note records what a message says by a commit that changes no file. check, if not
// nil, is asked by the committer just before; its error fails it.
func (w *Workspace) Note(ctx context.Context, m message.Message, check func() error) (object.ID, error) {
	if err := w.enter(); err != nil {
		return object.Zero, err
	}
	defer w.leave()
	d := gitstore.Draft{Message: m, AllowEmpty: true}
	if check != nil {
		d.Check = func(gitstore.Snapshot) error { return check() }
	}
	c, err := w.store.Commit(ctx, d)
	if err != nil {
		return object.Zero, err
	}
	w.progress.settle(c.Seq)
	return c.Commit, nil
}

// Claim records that entries of a shared commit are one call's: by an empty
// commit of its owner that names the commit. It changes no file.
func (w *Workspace) Claim(ctx context.Context, shared *gitstore.Commit, entries []ChangeEntry, o *Owner) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	m := o.Message
	m.Extra = append(m.Extra[:len(m.Extra):len(m.Extra)],
		message.Trailer{Key: message.KeyCertainty, Value: string(claims.Declared)}, message.Trailer{Key: message.KeyClaims, Value: shared.ID.String()})
	for i := range entries {
		e := message.Entry{Operation: entries[i].Operation, Path: entries[i].Path, AfterHash: entries[i].AfterHash}
		if entries[i].NewPath != "" {
			e.Path, e.OldPath = entries[i].NewPath, entries[i].Path
		}
		m.Entries = append(m.Entries, e)
	}
	c, err := w.store.Commit(ctx, gitstore.Draft{Message: m, Entries: len(entries), AllowEmpty: true})
	if err != nil {
		return err
	}
	w.progress.settle(c.Seq)
	if o.Recorded != nil {
		o.Recorded(c.Seq)
	}
	return nil
}
