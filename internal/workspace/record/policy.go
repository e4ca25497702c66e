package record

import (
	"context"
	"io"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/policy"
	"umbra/internal/wspath"
)

// Obeys refuses a change set that the policy forbids: errs.Forbidden
// "policy_refused". Violations that are only marked are returned as trailers; of a recorded
// change that is all. Of a revert the message alone is judged, since its content was there
// before; but a task that takes back what is not its own must be allowed to change these
// paths. m is what is known of the commit's message: source, task and the caller's text.
// found are files that the disk has otherwise than history, which is to have them before the
// change set: of a file that is ignored, a change brings all of its content.
func (r *Recorder) Obeys(ctx context.Context, m *message.Message, entries []Entry, found []External, recorded bool) (named []message.Trailer, err error) {
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
	has := capturedOf(found)
	for i := range entries {
		c, err := r.changeOf(ctx, &entries[i], has)
		if err != nil {
			return nil, err
		}
		if reverts {
			others := func(e message.EntryRef) bool { return e.Task != m.TaskID }
			if !slices.ContainsFunc(entries[i].Reverts, others) {
				continue
			}
			c = policy.Change{Path: c.Path, From: c.From, Dir: c.Dir}
		}
		list, err := r.Policy.Judge(own, c)
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			if !recorded && !r.Policy.Only(x) {
				return nil, x.Err()
			}
			named = append(named, message.PolicyTrailer(x.Rule, entries[i].Path))
		}
	}
	return named, nil
}

// captured is what a change set finds on disk that history does not have yet.
type captured struct {
	blobs map[object.ID]*gitstore.Blob
	fresh map[wspath.Path]bool // files that history has never had
}

func capturedOf(found []External) captured {
	has := captured{make(map[object.ID]*gitstore.Blob), make(map[wspath.Path]bool)}
	for i := range found {
		x := &found[i]
		if x.HasBlob {
			has.blobs[x.Blob.ID()] = &x.Blob
		}
		if x.Old.Mode == 0 {
			has.fresh[x.Path] = true
		}
	}
	return has
}

// changeOf describes an entry as the policy judges it.
func (r *Recorder) changeOf(ctx context.Context, e *Entry, has captured) (policy.Change, error) {
	c := policy.Change{Path: strings.TrimSuffix(e.Path, "/"), From: strings.TrimSuffix(e.OldPath, "/"), Same: e.After.ID == e.Before.ID,
		Link: e.After.Mode == object.Symlink, Dir: strings.HasSuffix(e.Path, "/")}
	c.Made = c.Dir && e.Operation != message.Rmdir
	stored := func(id object.ID) func() (io.ReadCloser, error) {
		if b := has.blobs[id]; b != nil {
			return b.Open
		}
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
		if b := has.blobs[e.After.ID]; b != nil {
			c.Size = b.Size()
		} else {
			c.Size, _ = r.Disk.Store.BlobSize(ctx, e.After.ID)
		}
		c.Content = stored(e.After.ID)
	}
	if c.Content != nil && has.fresh[e.Before.Path] {
		ignored, err := r.ignored(e.Before.Path)
		if err != nil {
			return c, err
		}
		if ignored {
			c.Before, c.Same = nil, false
		}
	}
	return c, nil
}

// ignored reports whether a file is kept out of history by rules.
func (r *Recorder) ignored(path wspath.Path) (bool, error) {
	rules, _, err := r.Disk.Rules()
	if err != nil {
		return false, err
	}
	v, err := rules.Lookup(path, false)
	return v.Ignored(), err
}
