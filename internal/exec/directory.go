package exec

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/calls"
	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// Directory is what a command made of a directory that held the files of a commit.
type Directory struct {
	Call    *calls.Record
	Base    gitstore.Snapshot  // what the directory held
	Root    string             // the directory
	Changed map[string]Version // what differs from Base; the zero Version: deleted

	DryRun    bool // with it, Applied.Patch is set and nothing is changed
	RequestID string
}

// Bring brings what a command made of a directory onto its workspace, as Apply does
// with a layer. It does not end the call.
func (s *Service) Bring(ctx context.Context, w *workspace.Workspace, d Directory) (*Applied, error) {
	l := Layer{ID: d.Call.ID, Workspace: d.Call.Workspace, Task: d.Call.Task, From: d.Call.From}
	out := &Applied{Layer: l}
	var last error
	for range maxRounds {
		n := &planner{ctx: ctx, w: w, upper: d.Root, base: d.Base, tip: w.Store().Snapshot(), touched: d.Changed}
		if err := n.decide(); err != nil {
			return nil, err
		}
		out.Conflicts = n.p.conflicts
		if d.DryRun {
			if err := n.diffs(n.p.ops); err != nil {
				return nil, err
			}
			if err := out.format(n.p.patches); err != nil {
				return nil, err
			}
		} else if err := keep(w, &l, n, out); err != nil {
			return nil, err
		}
		if len(n.p.ops) == 0 {
			return out, nil
		}
		err := s.record(ctx, w, n, d.Call, workspace.Request{By: workspace.By{RequestID: d.RequestID}, DryRun: d.DryRun}, out)
		if fasterWriter(err) {
			last = err
			continue
		}
		return out, err
	}
	return nil, last
}

// record makes the commit of a plan.
func (s *Service) record(ctx context.Context, w *workspace.Workspace, n *planner, rec *calls.Record, req workspace.Request, out *Applied) error {
	m := rec.Message()
	req.By.TaskID, req.By.SubtaskID, req.By.Actor, req.By.Source = m.TaskID, m.SubtaskID, m.Actor, message.Call
	req.Ops, req.Extra, req.AllowRepoShape = n.p.ops, m.Extra, true
	req.Check = func() error { return s.o.Calls.Writable(rec) }
	res, err := w.Apply(ctx, req)
	if err != nil {
		return err
	}
	out.Commit, out.Entries = res.Commit, res.Entries
	if !res.Commit.IsZero() { // with what the commit says of the call
		out.Entries, err = w.EntriesAt(ctx, res.Commit)
	}
	return err
}

// fasterWriter reports whether a plan failed because a file was changed since.
func fasterWriter(err error) bool {
	return errs.Is(err, errs.Precondition) || errs.Is(err, errs.NotFound) && errs.CodeOf(err) == "file_not_found"
}
