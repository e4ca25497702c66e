package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

// OutputOptions of an Output. Dir, Workspaces and Tasks are needed.
type OutputOptions struct {
	Dir        string // host path; it need not be there
	MaxBytes   int64  // of all that one execution writes
	Workspaces *workspaces.Manager
	Tasks      *task.Service
	Log        *slog.Logger
}

// Output is the output directory. Its methods may be called concurrently.
type Output struct {
	o      OutputOptions
	making sync.Mutex // the folder becomes a workspace once
}

// NewOutput makes it; it touches no file.
func NewOutput(o OutputOptions) (*Output, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Output{o: o}, nil
}

// open opens the directory's workspace, and makes it at the first use. The
// caller releases it.
func (o *Output) open(ctx context.Context) (*workspace.Workspace, error) {
	o.making.Lock()
	defer o.making.Unlock()
	return o.o.Workspaces.OpenOwn(ctx, o.own(), true)
}

func (o *Output) own() workspaces.Own { return workspaces.Own{Dir: o.o.Dir, Name: "output"} }

// Owner says for whom an execution saves.
type Owner struct {
	By   workspace.By // without the task
	Task string       // of the request, "" for none: one is made by the first save
	Sees task.Sees
	Goal string // of a task that is made
}

// File is one file that an execution saved.
type File struct {
	Name   string    // canonical, from the output directory; any bytes
	Path   string    // absolute
	Bytes  int64     // as last saved
	Commit object.ID // of the last save that changed it; zero: none did
}

// Saver is what one execution saves. It is used by one goroutine at a time.
type Saver struct {
	output *Output
	owner  Owner
	used   int64
	files  []File
	at     map[string]int // place in files, by name
	task   string         // that the saves belong to
	own    bool           // the task was made for this execution
}

// Begin begins an execution. Its task, if one is named, must be one that may
// write now: NotFound "task_not_found", Conflict "task_ended", "task_paused".
func (o *Output) Begin(ctx context.Context, owner Owner) (*Saver, error) {
	if err := mayWrite(ctx, o.o.Tasks, owner.Task, owner.Sees); err != nil {
		return nil, err
	}
	return &Saver{output: o, owner: owner, at: map[string]int{}, task: owner.Task}, nil
}

func mayWrite(ctx context.Context, tasks *task.Service, id string, sees task.Sees) error {
	if id == "" {
		return nil
	}
	ref, err := tasks.Get(ctx, id, sees)
	if err != nil {
		return err
	}
	defer ref.Release()
	return tasks.MayWrite(ref)
}

// Refused is why a file was not saved, in words for the script.
type Refused struct {
	Message string
	Err     error // the cause, if there is one
}

// Error gives the words.
func (r *Refused) Error() string { return r.Message }

// Unwrap gives the cause.
func (r *Refused) Unwrap() error { return r.Err }

// checkName gives the canonical path of a name, or says why it is refused.
func checkName(name string) (wspath.Path, error) {
	refuse := func(why string) (wspath.Path, error) { return "", &Refused{Message: why} }
	switch {
	case name == "":
		return refuse("filename cannot be empty")
	case strings.IndexByte(name, 0) >= 0:
		return refuse("filename cannot contain null bytes")
	case strings.HasPrefix(name, "/"):
		return refuse("filename must be relative, got absolute path")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return refuse("filename cannot contain '..' path traversal")
		}
	}
	p, err := wspath.Parse(name)
	if err != nil {
		return "", refused(err)
	}
	return p, nil
}

// refused renders an error of a save; its detail is what a client may see.
func refused(err error) error {
	detail := "the file could not be saved"
	if e, ok := errors.AsType[*errs.Error](errs.Wrap(err, "")); ok && e.Detail != "" && e.Kind != errs.Internal {
		detail = "cannot save the file: " + e.Detail
	}
	return &Refused{Message: detail, Err: err}
}

// Save writes a file, as one commit, and gives its absolute path. Errors are
// *Refused; the execution may go on after one.
func (s *Saver) Save(ctx context.Context, name string, content []byte) (string, error) {
	p, err := checkName(name)
	if err != nil {
		return "", err
	}
	if size := int64(len(content)); size > s.output.o.MaxBytes-s.used {
		return "", &Refused{Message: fmt.Sprintf("output size limit exceeded (%d bytes)", s.output.o.MaxBytes)}
	}
	// Once begun a save comes to its end: the answer is true.
	path, commit, err := s.write(context.WithoutCancel(ctx), p, content)
	if err != nil {
		return "", refused(err)
	}
	s.used += int64(len(content))
	i, again := s.at[string(p)]
	if !again {
		i = len(s.files)
		s.at[string(p)] = i
		s.files = append(s.files, File{Name: string(p), Path: path})
	}
	s.files[i].Bytes = int64(len(content))
	if !commit.IsZero() {
		s.files[i].Commit = commit
	}
	return path, nil
}

func (s *Saver) write(ctx context.Context, p wspath.Path, content []byte) (string, object.ID, error) {
	w, err := s.output.open(ctx)
	if err != nil {
		return "", object.Zero, err
	}
	defer w.Release()
	ref, err := s.ref(ctx, w)
	if err != nil {
		return "", object.Zero, err
	}
	defer ref.Release()
	res, err := s.output.o.Tasks.Apply(ctx, ref, workspace.Request{By: s.owner.By,
		Ops: []workspace.Op{{Kind: workspace.OpWrite, Path: p, Data: content}}})
	if err != nil {
		return "", object.Zero, err
	}
	s.task = ref.Task.ID
	return s.output.o.Workspaces.CopyOwn(s.output.own(), w, p, content), res.Commit, nil
}

// ref gives the task that a save belongs to.
func (s *Saver) ref(ctx context.Context, w *workspace.Workspace) (*task.Ref, error) {
	tasks := s.output.o.Tasks
	switch {
	case s.own:
		return tasks.Get(ctx, s.task, nil)
	case s.owner.Task != "":
		return tasks.For(ctx, s.owner.Task, w, s.owner.Sees, s.owner.By)
	}
	metadata, err := json.Marshal(map[string]string{"made_by": "script"})
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	made, err := tasks.CreateOn(ctx, w, task.CreateOptions{Goal: s.owner.Goal, MadeBy: "script", Metadata: metadata,
		Actor: s.owner.By.Actor, RequestID: s.owner.By.RequestID})
	if err != nil {
		return nil, err
	}
	s.own, s.task = true, made.Task.ID
	return made.Ref, nil
}

// Files lists what was saved so far, in the order of first saves.
func (s *Saver) Files() []File { return s.files }

// Task is the task that the saves belong to: that of the request, its child on
// the output directory, or the one made for the execution; "" if there is none.
func (s *Saver) Task() string {
	if s.own && len(s.files) == 0 {
		return ""
	}
	return s.task
}

// End ends the execution: a task that was made for it is completed or failed.
func (s *Saver) End(ctx context.Context, ok bool) {
	if !s.own {
		return
	}
	ctx = context.WithoutCancel(ctx)
	status := task.Failed
	if ok {
		status = task.Completed
	}
	ref, err := s.output.o.Tasks.Get(ctx, s.task, nil)
	if err == nil {
		defer ref.Release()
		err = s.output.o.Tasks.Patch(ctx, ref, task.Patch{Status: &status}, s.owner.By.RequestID)
	}
	if err != nil {
		s.output.o.Log.Warn("a script's task could not be ended", "task", s.task, "error", err)
	}
}
