package record

import (
	"context"
	"strconv"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/errs"
	"umbra/internal/workspace/op"
)

// fillCall fills in which call made the entries of a commit.
func fillCall(out []op.ChangeEntry, m *message.Message) {
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
func (r *Recorder) claimedEntries(ctx context.Context, c *gitstore.Commit, claimed string) ([]op.ChangeEntry, error) {
	id, err := object.ParseID(claimed)
	if err != nil {
		return nil, errs.New(errs.Internal, "", "the trailer %s of %s is damaged", message.KeyClaims, c.ID)
	}
	from, err := r.Disk.Store.ReadCommit(ctx, id)
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Gone) {
		return nil, nil // dropped with its part of the history
	}
	if err != nil {
		return nil, err
	}
	all, err := r.EntriesOf(ctx, from)
	if err != nil {
		return nil, err
	}
	m := c.Message
	mine := make(map[string]bool, len(m.Entries))
	for i := range m.Entries {
		mine[m.Entries[i].Path] = true
	}
	out := make([]op.ChangeEntry, 0, len(mine))
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
	fillCall(out, m)
	return out, nil
}
