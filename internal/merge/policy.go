package merge

import (
	"bytes"
	"io"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/policy"
	"umbra/internal/workspace"
)

// obeys refuses what the policy of the target forbids in any of the commits, before the
// first is made: errs.Forbidden "policy_refused".
func (m *merger) obeys() error {
	if !m.into.Judged(m.req.By.TaskID) {
		return nil
	}
	if m.req.As == Squash {
		r, err := m.squash()
		if err != nil || len(r.Ops) == 0 {
			return err
		}
		r.DryRun, r.Check = true, nil
		if _, err = m.into.Apply(m.ctx, r); errs.CodeOf(err) == "policy_refused" {
			return err
		}
		return nil
	}
	var own policy.Task
	if t, known := m.into.Store().Task(m.req.By.TaskID); known {
		own = policy.TaskOf(t.Info.Extra)
	}
	rules := m.into.Policy()
	for _, s := range m.steps {
		if len(s.todo) > 0 {
			if x := rules.Message(s.commit.Message.Subject); x != nil && !rules.Only(x) {
				return x.Err()
			}
		}
		for _, o := range s.all() {
			c, ok, err := m.judged(o)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			list, err := rules.Judge(own, c)
			if err != nil {
				return err
			}
			for _, x := range list {
				if !rules.Only(x) {
					return x.Err()
				}
			}
		}
	}
	return nil
}

// judged describes an outcome as the policy judges it; false where what it replaces is
// in no history yet, so that its commit has to say.
func (m *merger) judged(o outcome) (c policy.Change, ok bool, err error) {
	stored := func(id object.ID) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) {
			r, _, err := m.ownerOf(id).Store().OpenBlob(m.ctx, id)
			return r, err
		}
	}
	c = policy.Change{Path: o.path, From: o.from, Link: o.want.Mode == object.Symlink, Same: o.was.ID == o.want.ID}
	if o.was.Mode != 0 {
		if !m.has(o.was.ID) {
			return c, false, nil
		}
		c.Before = stored(o.was.ID)
	}
	switch {
	case o.want.Mode == 0:
	case o.data != nil:
		c.Size = int64(len(o.data))
		c.Content = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(o.data)), nil }
	default:
		c.Content = stored(o.want.ID)
		c.Size, err = m.ownerOf(o.want.ID).Store().BlobSize(m.ctx, o.want.ID)
	}
	return c, true, err
}

func (m *merger) has(id object.ID) bool {
	for _, w := range []*workspace.Workspace{m.into, m.from} {
		if w.Store().HasBlob(id) {
			return true
		}
	}
	return false
}
