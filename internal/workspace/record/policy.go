package record

import (
	"context"
	"io"
	"slices"
	"strings"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/policy"
)

// Obeys refuses a change set that the policy forbids: errs.Forbidden
// "policy_refused". Violations that are only marked are returned as trailers; of a recorded
// change that is all. Of a revert the message alone is judged, since its content was there
// before; but a task that takes back what is not its own must be allowed to change these
// paths. m is what is known of the commit's message: source, task and the caller's text.
func (r *Recorder) Obeys(ctx context.Context, m *message.Message, entries []Entry, recorded bool) (named []message.Trailer, err error) {
	switch m.Source {
	case message.Rollback, message.Baseline, message.External:
		return nil, nil
	}
	if x := r.Policy.Message(m.Texts()); x != nil {
		if !recorded && !r.Policy.Only(x) {
			return nil, x.Err()
		}
		if len(entries) > 0 {
			named = append(named, message.PolicyTrailer(x.Rule, entries[0].Path))
		}
	}
	reverts := m.Source == message.Revert
	if reverts && m.TaskID == "" {
		return named, nil
	}
	var own policy.Task
	if t, known := r.Disk.Store.Task(m.TaskID); known {
		own = policy.TaskOf(t.Info.Extra)
	}
	if r.Policy.None(own) {
		return named, nil
	}
	for i := range entries {
		c := r.changeOf(ctx, &entries[i])
		if reverts {
			others := func(e message.EntryRef) bool { return e.Task != m.TaskID }
			if !slices.ContainsFunc(entries[i].Reverts, others) {
				continue
			}
			c = policy.Change{Path: c.Path, From: c.From, Dir: c.Dir}
		}
		found, err := r.Policy.Judge(own, c)
		if err != nil {
			return nil, err
		}
		for _, x := range found {
			if !recorded && !r.Policy.Only(x) {
				return nil, x.Err()
			}
			named = append(named, message.PolicyTrailer(x.Rule, entries[i].Path))
		}
	}
	return named, nil
}

// changeOf describes an entry as the policy judges it.
func (r *Recorder) changeOf(ctx context.Context, e *Entry) policy.Change {
	c := policy.Change{Path: strings.TrimSuffix(e.Path, "/"), From: strings.TrimSuffix(e.OldPath, "/"), Same: e.After.ID == e.Before.ID,
		Link: e.After.Mode == object.Symlink, Dir: strings.HasSuffix(e.Path, "/")}
	c.Made = c.Dir && e.Operation != message.Rmdir
	stored := func(id object.ID) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) {
			r, _, err := r.Disk.Store.OpenBlob(ctx, id)
			return r, err
		}
	}
	if e.Before.Mode != 0 {
		c.Before = stored(e.Before.ID)
	}
	switch {
	case e.After.Mode == 0:
	case e.Content != nil:
		c.Size, c.Content = e.Content.Blob.Size(), e.Content.Blob.Open
		if x := e.Content.Staged; x != nil {
			c.Content = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(x, 0, x.Size())), nil }
		}
	case e.blob != nil:
		c.Size, c.Content = e.blob.Size(), e.blob.Open
	default:
		c.Size, _ = r.Disk.Store.BlobSize(ctx, e.After.ID)
		c.Content = stored(e.After.ID)
	}
	return c
}
