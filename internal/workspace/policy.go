package workspace

import (
	"context"
	"strings"

	"umbra/gitstore/message"
	"umbra/internal/policy"
)

// rulesFor gives the rules for a request; ok is false where nothing is refused. What
// takes a change back is not judged: it was there before.
func (w *Workspace) rulesFor(req *Request) (own policy.Task, ok bool) {
	switch req.By.Source {
	case message.Revert, message.Rollback, message.Baseline, message.External:
		return own, false
	}
	if t, known := w.store.Task(req.By.TaskID); known {
		own = policy.TaskOf(t.Info.Extra)
	}
	return own, !w.policy.None(own)
}

// obeys refuses a change set that the policy forbids: errs.Forbidden
// "policy_refused".
func (w *Workspace) obeys(req *Request, entries []netEntry) error {
	own, ok := w.rulesFor(req)
	if !ok {
		return nil
	}
	for i := range entries {
		e := &entries[i]
		var size int64
		switch {
		case e.after.Mode == 0:
		case e.content != nil:
			size = e.content.blob.Size()
		}
		if size == 0 && !e.after.ID.IsZero() && e.Operation != message.Mkdir {
			size, _ = w.store.BlobSize(context.Background(), e.after.ID) // one that is new has its content
		}
		if err := w.entryObeys(own, e.Path, e.OldPath, size); err != nil {
			return err
		}
	}
	return nil
}

// previewObeys is obeys for a preview.
func (w *Workspace) previewObeys(req *Request, entries []ChangeEntry) error {
	own, ok := w.rulesFor(req)
	if !ok {
		return nil
	}
	for i := range entries {
		if err := w.entryObeys(own, entries[i].Path, entries[i].NewPath, 0); err != nil {
			return err
		}
	}
	return nil
}

func (w *Workspace) entryObeys(own policy.Task, path, to string, size int64) error {
	for _, name := range []string{path, to} {
		if name == "" {
			continue
		}
		if x := w.policy.Judge(own, strings.TrimSuffix(name, "/"), size); x != nil {
			return x.Err()
		}
	}
	return nil
}

// Refused says why a task may not change a path of the workspace, nil if it may.
func (w *Workspace) Refused(taskID, path string, size int64) *policy.Refusal {
	var own policy.Task
	if t, known := w.store.Task(taskID); known {
		own = policy.TaskOf(t.Info.Extra)
	}
	return w.policy.Judge(own, path, size)
}
