package fork

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/internal/checkpoint"
	"umbra/internal/errs"
	"umbra/internal/merge"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

// Merge brings the changes of a workspace into another of the same family: its
// parent if none is named. They belong to a task of the target: the one of the
// request, or a new one that is complete afterwards, whose id is returned.
//
// The errors of merge.Do; Unprocessable "no_parent" where none is named and there
// is none; Conflict "task_other_workspace" and why the task takes no changes.
//
// hunks are ids of the source's tasks' hunks (package review): only those are merged.
// Conflict "hunk_changed" with "hunks" where one is not known.
func (s *Service) Merge(ctx context.Context, from *workspace.Workspace, into string, hunks []string, sees task.Sees, req merge.Request) (*merge.Result, string, error) {
	rec, _ := s.o.Workspaces.Record(from.ID())
	if into == "" {
		if rec.Fork == nil {
			return nil, "", errs.New(errs.Unprocessable, "no_parent", "The workspace is not a fork; name the workspace to merge into.").With("field", "into")
		}
		into = rec.Fork.Of
	}
	if into == from.ID() {
		return nil, "", errs.New(errs.Unprocessable, "unrelated", "A workspace is not merged into itself.").With("field", "into")
	}
	if _, ok := s.o.Tasks.Workspace(into, sees); !ok {
		return nil, "", errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.").With("field", "into")
	}
	w, err := s.o.Workspaces.Get(ctx, into)
	if err != nil {
		return nil, "", err
	}
	defer w.Release()
	if hunks != nil {
		if req.Picked, err = s.pick(ctx, from, hunks); err != nil {
			return nil, "", err
		}
	}
	return s.merge(ctx, from, w, sees, req)
}

// pick finds hunks in the tasks of a workspace.
func (s *Service) pick(ctx context.Context, w *workspace.Workspace, hunks []string) ([]merge.Picked, error) {
	if _, err := w.Sync(ctx, workspace.SyncOptions{Attribute: true}); err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, h := range hunks {
		ids[h] = true
	}
	tasks, err := s.o.Tasks.On(w.ID())
	if err != nil {
		return nil, err
	}
	out := []merge.Picked{}
	for _, t := range tasks {
		if len(ids) == 0 {
			break
		}
		found, err := s.o.Review.Pick(ctx, w, t, ids)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			out = append(out, merge.Picked{Path: p.Path, From: p.From, Was: merge.Content(p.Was), Want: merge.Content(p.Want), Commit: p.Commit, Hunks: p.Hunks})
		}
	}
	if len(ids) > 0 {
		return nil, errs.New(errs.Conflict, "hunk_changed", "Some hunks are no longer what they were; nothing was done.").With("hunks", slices.Sorted(maps.Keys(ids)))
	}
	return out, nil
}

// parent opens what a workspace is a fork of. NotFound where it was deleted, or the caller
// may not know of it.
func (s *Service) parent(ctx context.Context, rec workspaces.Record, sees task.Sees) (*workspace.Workspace, error) {
	if _, ok := s.o.Tasks.Workspace(rec.Fork.Of, sees); !ok {
		return nil, errs.New(errs.NotFound, "workspace_not_found", "The workspace that this one is a fork of does not exist.")
	}
	return s.o.Workspaces.Get(ctx, rec.Fork.Of)
}

// Rebase brings the parent's news into a fork. NotFound where the caller may not know of
// the parent.
func (s *Service) Rebase(ctx context.Context, fork *workspace.Workspace, sees task.Sees, req merge.Request) (*merge.Result, string, error) {
	rec, _ := s.o.Workspaces.Record(fork.ID())
	if rec.Fork == nil {
		return nil, "", errs.New(errs.Unprocessable, "no_parent", "The workspace is not a fork.")
	}
	parent, err := s.parent(ctx, rec, sees)
	if err != nil {
		return nil, "", err
	}
	defer parent.Release()
	return s.merge(ctx, parent, fork, sees, req)
}

func (s *Service) merge(ctx context.Context, from, into *workspace.Workspace, sees task.Sees, req merge.Request) (*merge.Result, string, error) {
	for _, w := range []*workspace.Workspace{from, into} {
		if _, err := w.Sync(ctx, workspace.SyncOptions{Attribute: true}); err != nil {
			return nil, "", err
		}
	}
	// A fork may refer to what its parent has since; stock git finds it there.
	if err := from.Store().Publish(ctx); err != nil {
		return nil, "", err
	}
	a, b := s.side(from), s.side(into)
	if req.By.TaskID != "" {
		ref, err := s.o.Tasks.Get(ctx, req.By.TaskID, sees)
		if err != nil {
			return nil, "", err
		}
		defer ref.Release()
		if ref.ID() != into.ID() {
			return nil, "", errs.New(errs.Conflict, "task_other_workspace", "The task is on another workspace.").With("task_id", req.By.TaskID)
		}
		if !req.DryRun {
			if err := s.o.Tasks.MayWrite(ref); err != nil {
				return nil, "", err
			}
			req.May = func() error { return s.o.Tasks.MayWrite(ref) }
		}
		req.Begin = s.begin(into, req)
		res, err := merge.Do(ctx, a, b, req)
		return res, req.By.TaskID, err
	}
	look := req
	look.DryRun = true
	res, err := merge.Do(ctx, a, b, look)
	if err != nil || req.DryRun || res.Empty() {
		return res, "", err
	}
	refused := res.Unplanned(req)
	if len(res.Files) == 0 && req.Plan == "" && !refused {
		req.Plan = res.Plan
	}
	if refused || len(res.Conflicts) > 0 && req.OnConflict != merge.Skip || req.Plan != "" && req.Plan != res.Plan || len(res.Files) == 0 {
		res, err = merge.Do(ctx, a, b, req) // which is refused, or changes no file, and needs no task
		return res, "", err
	}
	made, ended, err := s.mergeTask(ctx, from, into, req)
	if err != nil {
		return nil, "", err
	}
	defer made.Release()
	req.By.TaskID = made.Task.ID
	res, err = merge.Do(ctx, a, b, req)
	status := task.Completed
	if err != nil {
		status = task.Failed
	}
	if perr := s.o.Tasks.Patch(context.WithoutCancel(ctx), made.Ref, task.Patch{Status: &status}, req.By.RequestID); perr != nil && err == nil {
		err = perr
	}
	if derr := ended(); derr != nil && err == nil {
		err = derr
	}
	return res, made.Task.ID, err
}

// mergeTask makes the task that a merge belongs to. Until ended is called a start takes
// the merge back and ends the task, unless that has ended.
func (s *Service) mergeTask(ctx context.Context, from, into *workspace.Workspace, req merge.Request) (made *task.Made, ended func() error, err error) {
	for n := 1; ; n++ {
		id := "merge-" + from.ID()
		if n > 1 {
			id += "-" + strconv.Itoa(n)
		}
		if _, taken := into.Store().Task(id); taken && n <= 10_000 {
			continue
		}
		if ended, err = s.beginOwn(into, id, req.By.Actor); err != nil {
			return nil, nil, err
		}
		made, err = s.o.Tasks.CreateOn(ctx, into, task.CreateOptions{ID: id, Goal: "Merge of " + from.ID(), Actor: req.By.Actor, RequestID: req.By.RequestID})
		if err == nil {
			return made, ended, nil
		}
		if derr := ended(); derr != nil || errs.CodeOf(err) != "task_exists" || n > 10_000 {
			return nil, nil, errors.Join(err, derr)
		}
	}
}

// side lists a workspace and what it is a fork of, each with the newest commit that the
// workspace shares with it.
func (s *Service) side(w *workspace.Workspace) merge.Side {
	id, least := w.ID(), uint64(math.MaxUint64)
	out := merge.Side{W: w, Lineage: []merge.Ancestor{{ID: id, Seq: least}}}
	for {
		rec, ok := s.o.Workspaces.Record(id)
		if !ok || rec.Fork == nil {
			return out
		}
		id, least = rec.Fork.Of, min(least, rec.Fork.Seq)
		out.Lineage = append(out.Lineage, merge.Ancestor{ID: id, Seq: least})
		out.Shares = append(out.Shares, rec.Fork.Shares...)
	}
}

// Comparison is how the files of a workspace differ from those of another, or of a
// moment.
type Comparison struct {
	Files                []Compared
	Additions, Deletions int
	Diff                 []byte
}

// Compared is one file of a comparison.
type Compared struct {
	Path                 string
	Operation            string // "create", "modify", "delete"
	Additions, Deletions int
	Binary               bool
}

// Comparing says what to compare a workspace with, and how.
type Comparing struct {
	With string
	Path wspath.Path
	Diff diff.Options
	Text bool
}

// maxCompared bounds one version of a file, and the whole text, in bytes.
const maxCompared = 256 << 20

// Compare compares a workspace with another one, or with a checkpoint, commit or
// time of its own history; with its parent if nothing is named.
//
// Path limits it to a file or directory. Without text only the counts are made.
func (s *Service) Compare(ctx context.Context, w *workspace.Workspace, q Comparing, sees task.Sees) (*Comparison, error) {
	with := q.With
	if with == "" {
		rec, _ := s.o.Workspaces.Record(w.ID())
		if rec.Fork == nil {
			return nil, errs.New(errs.Invalid, "invalid_parameter", "with is required: another workspace, a checkpoint, a commit or a time.").With("field", "with")
		}
		parent, err := s.parent(ctx, rec, sees)
		if err != nil {
			return nil, err
		}
		parent.Release()
		with = rec.Fork.Of
	}
	if _, err := w.Sync(ctx, workspace.SyncOptions{Attribute: true}); err != nil {
		return nil, err
	}
	other, then := w, gitstore.Snapshot{}
	if _, known := s.o.Tasks.Workspace(with, sees); known {
		var err error
		if other, err = s.o.Workspaces.Get(ctx, with); err != nil {
			return nil, err
		}
		defer other.Release()
		if _, err := other.Sync(ctx, workspace.SyncOptions{Attribute: true}); err != nil {
			return nil, err
		}
		then = other.Store().Snapshot()
	} else {
		c, err := checkpoint.Resolve(ctx, w, with)
		if err != nil {
			return nil, err
		}
		if then, err = w.Store().SnapshotOf(ctx, c.ID); err != nil {
			return nil, err
		}
	}
	out := &Comparison{}
	var text diff.Series
	err := gitstore.Diff(ctx, then, w.Store().Snapshot(), q.Path, func(d gitstore.TreeChange) error {
		old, err := side(ctx, other, d.Path, d.Old)
		if err != nil {
			return err
		}
		now, err := side(ctx, w, d.Path, d.New)
		if err != nil {
			return err
		}
		p, err := diff.Format(old, now, q.Diff)
		if err != nil {
			return err
		}
		if q.Text {
			if text.Len()+len(p.Text) > maxCompared {
				return errs.New(errs.TooLarge, "diff_too_large", "The diff is larger than %d bytes.", int64(maxCompared))
			}
			text.Add(p)
		}
		f := Compared{Path: string(d.Path), Operation: "modify", Additions: p.Additions, Deletions: p.Deletions, Binary: p.Binary}
		switch {
		case d.Old.Mode == 0:
			f.Operation = "create"
		case d.New.Mode == 0:
			f.Operation = "delete"
		}
		out.Files = append(out.Files, f)
		out.Additions += p.Additions
		out.Deletions += p.Deletions
		return nil
	})
	out.Diff = text.Bytes()
	return out, err
}

// side reads one version of a file for a diff.
func side(ctx context.Context, w *workspace.Workspace, path wspath.Path, e gitstore.Entry) (diff.File, error) {
	f := diff.File{Path: string(path), Mode: e.Mode, ID: e.ID}
	if e.Mode == 0 {
		return f, nil
	}
	var err error
	f.Data, err = w.Store().ReadBlob(ctx, e.ID, maxCompared)
	if errs.Is(err, errs.TooLarge) {
		err = errs.New(errs.TooLarge, "diff_too_large", "A version of a file is larger than %d bytes.", int64(maxCompared))
	}
	return f, err
}
