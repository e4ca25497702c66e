package workspace

import (
	"context"
	"io"
	"strings"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/policy"
)

// obeys refuses a change set that the policy forbids: errs.Forbidden
// "policy_refused". What is only to be named is returned as trailers; of a recorded
// change that is all. What takes a change back is not judged: it was there before.
func (w *Workspace) obeys(ctx context.Context, source message.Source, taskID string, entries []netEntry, recorded bool) (named []message.Trailer, err error) {
	switch source {
	case message.Revert, message.Rollback, message.Baseline, message.External:
		return nil, nil
	}
	var own policy.Task
	if t, known := w.store.Task(taskID); known {
		own = policy.TaskOf(t.Info.Extra)
	}
	if w.policy.None(own) {
		return nil, nil
	}
	for i := range entries {
		found, err := w.policy.Judge(own, w.changeOf(ctx, &entries[i]))
		if err != nil {
			return nil, err
		}
		for _, x := range found {
			if !recorded && !w.policy.Only(x) {
				return nil, x.Err()
			}
			named = append(named, message.PolicyTrailer(x.Rule, entries[i].Path))
		}
	}
	return named, nil
}

// changeOf describes an entry as the policy judges it.
func (w *Workspace) changeOf(ctx context.Context, e *netEntry) policy.Change {
	c := policy.Change{Path: strings.TrimSuffix(e.Path, "/"), From: strings.TrimSuffix(e.OldPath, "/"), Same: e.after.ID == e.before.ID}
	stored := func(id object.ID) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) {
			r, _, err := w.store.OpenBlob(ctx, id)
			return r, err
		}
	}
	if e.before.Mode != 0 {
		c.Before = stored(e.before.ID)
	}
	switch {
	case e.after.Mode == 0:
	case e.content != nil:
		c.Size, c.Content = e.content.blob.Size(), e.content.blob.Open
		if x := e.content.staged; x != nil {
			c.Content = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(x, 0, x.Size())), nil }
		}
	case e.blob != nil:
		c.Size, c.Content = e.blob.Size(), e.blob.Open
	default:
		c.Size, _ = w.store.BlobSize(ctx, e.after.ID)
		c.Content = stored(e.after.ID)
	}
	return c
}

// Policy returns the owner's rules for the workspace; nil for none.
func (w *Workspace) Policy() *policy.Rules { return w.policy }
