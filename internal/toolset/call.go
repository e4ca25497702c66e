package toolset

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
	"umbra/internal/witness"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Call is one call of a tool.
type Call struct {
	Name string
	Args json.RawMessage

	TaskID    string // empty: the mount's own
	SubtaskID string
	Actor     string
	// Client is who calls by MCP; the zero value elsewhere.
	Client    Client
	RequestID string
	// Key is the idempotency key as it is in history, empty without one.
	Key string
	// Begin, if not nil, is called before something runs that must not run twice; its
	// error ends the call.
	Begin func() error
	// ReadOnly: the caller may not change anything.
	ReadOnly bool
	Sees     task.Sees
	// Progress, if set, is called with how far a long call is; total 0 is unknown.
	Progress func(done, total int64, what string)
}

// Answer is what a model gets.
type Answer struct {
	Text   string
	Failed bool
	// Commit is the change that a call made, if it made one; Replayed: it was
	// made by the same request before.
	Commit   object.ID
	Replayed bool
	// Unsettled: a server of a cluster was not available; the same call may succeed later.
	Unsettled bool
}

// Call carries a tool's call out. Whatever a model may get wrong is an Answer.
// Errors: NotFound "toolset_not_found"; Canceled; of Call.TaskID NotFound
// "task_not_found" and Conflict "task_other_workspace"; Forbidden where a
// read-only caller calls a tool that changes something; Unavailable "owner_moving" where
// another server has the workspace, to which the request can go (witness.Forwardable), and
// nothing was done.
func (s *Service) Call(ctx context.Context, id string, c Call) (Answer, error) {
	l, err := s.find(id, c.Sees)
	if err != nil {
		return Answer{}, err
	}
	if l.rec.Lazy {
		s.useClient(l, c.Client.key())
	}
	r, text, again, err := s.settled(ctx, l, c)
	defer r.release()
	if ws, goes := witness.IsForwardable(ctx); goes && ws != "" && again {
		return Answer{}, err
	}
	switch {
	case err == nil:
		return Answer{Text: text + r.rejected(), Commit: r.commit, Replayed: r.replayed}, nil
	case ctx.Err() != nil:
		return Answer{}, errs.Wrap(context.Cause(ctx), "")
	}
	if m, ok := errors.AsType[mount.Message](err); ok {
		return Answer{Text: "Error: " + string(m) + r.rejected(), Failed: true, Commit: r.commit}, nil
	}
	if text, ok := errors.AsType[failure](err); ok {
		return Answer{Text: string(text) + r.rejected(), Failed: true, Commit: r.commit}, nil
	}
	if f, ok := errors.AsType[*refusal](err); ok {
		return Answer{}, f.err
	}
	return Answer{Text: "Error: " + s.sentence(err, c.Name), Failed: true, Commit: r.commit, Unsettled: errs.Is(err, errs.Unavailable)}, nil
}

// movingPause is the time between two attempts of a call whose workspace is moving.
const movingPause = 20 * time.Millisecond

// settled carries a call out, again for Options.Wait where its workspace is moving to
// another server and nothing was done, unless the request can go to that one. again says
// that it failed so. The caller releases the run.
func (s *Service) settled(ctx context.Context, l *live, c Call) (r *run, text string, again bool, err error) {
	begun := false
	ws, goes := witness.IsForwardable(ctx)
	if begin := c.Begin; begin != nil {
		c.Begin = func() error {
			begun = true
			return begin()
		}
	}
	for until := s.o.Now().Add(s.o.Wait); ; {
		r = &run{s: s, l: l, ctx: ctx, c: c}
		text, err = r.tool()
		again = errs.CodeOf(err) == "owner_moving" && !begun && r.commit.IsZero()
		if !again || goes && ws != "" || !s.o.Now().Before(until) {
			return r, text, again, err
		}
		select {
		case <-ctx.Done():
			return r, text, again, err
		case <-time.After(movingPause):
		}
		r.release()
	}
}

// refusal is an error of the caller's, not of the model's.
type refusal struct{ err error }

func (f *refusal) Error() string { return f.err.Error() }

// run is one call on its way.
type run struct {
	s   *Service
	l   *live
	ctx context.Context
	c   Call

	opened   map[string]*workspace.Workspace
	changes  map[string]bool   // workspaces that the call changes, or tries to
	made     map[string]string // of a lazy toolset: the client's tasks, by workspace
	commit   object.ID
	replayed bool
}

func (r *run) release() {
	for _, w := range r.opened {
		w.Release()
	}
}

func (r *run) tool() (string, error) {
	t := tool.Find(r.l.tools, r.c.Name)
	if t == nil {
		return "", mount.Message("Tool '" + mount.Show(r.c.Name) + "' is not available")
	}
	args, err := t.Parse(r.c.Args)
	if err != nil {
		return "", err
	}
	if r.c.ReadOnly && !t.Hints.ReadOnly && !args.Bool("dry_run") {
		return "", &refusal{errs.New(errs.Forbidden, "forbidden", "The token may only read.")}
	}
	switch t.Name {
	case tool.ReadFile:
		return r.readFile(args)
	case tool.ListDirectory:
		return r.listDirectory(args)
	case tool.WriteFile:
		return r.writeFile(args)
	case tool.EditFile:
		return r.editFile(args)
	case tool.StatFile:
		return r.statFile(args)
	case tool.SearchFiles:
		return r.searchFiles(args)
	case tool.GrepFiles:
		return r.grepFiles(args)
	case tool.MoveFile:
		return r.moveFile(args)
	case tool.DeleteFile:
		return r.deleteFile(args)
	case tool.TaskChanges:
		return r.taskChanges()
	case tool.TaskDiff:
		return r.taskDiff(args)
	case tool.RevertChanges:
		return r.revertChanges(args)
	case tool.ExplainLine:
		return r.explainLine(args)
	}
	return r.extra(t.Name, args)
}

// extra carries out a tool of another package.
func (r *run) extra(name string, args tool.Args) (string, error) {
	i := slices.IndexFunc(r.s.o.Extra, func(e Extra) bool { return e.Tool.Name == name })
	if i < 0 {
		return "", errs.New(errs.Internal, "internal_error", "tool %s is not carried out", name)
	}
	text, failed, err := r.s.o.Extra[i].Run(r.ctx, r.c, args)
	if err == nil && failed {
		err = failure(text)
	}
	return text, err
}

// failure is the whole text of a tool that failed in its own words.
type failure string

func (f failure) Error() string { return string(f) }

// place is where a call's path leads.
type place struct {
	mount.Target
	rel wspath.Path
}

// clean gives the logical path that a model's path represents: one of the host,
// in a mounted directory, is the path below its mount. Errors are Messages.
func (r *run) clean(p string) (string, error) {
	clean, err := mount.Clean(p)
	if err != nil {
		return "", err
	}
	if i, _, ok := r.l.table.Lookup(clean); ok && r.l.rec.Mounts[i].Prefix != "/" || r.l.table.HasBelow(clean) && clean != "/" {
		return clean, nil
	}
	best, at := "", ""
	for i := range r.l.rec.Mounts {
		m := &r.l.rec.Mounts[i]
		if m.Kind != mount.Physical {
			continue
		}
		ws, ok := r.s.o.Workspaces.Record(m.Workspace)
		if !ok || ws.Root == "/" || len(ws.Root) <= len(best) || !mount.Within(clean, ws.Root) {
			continue
		}
		best, at = ws.Root, mount.Join(m.Prefix, strings.TrimPrefix(clean[len(ws.Root):], "/"))
	}
	if best == "" {
		return clean, nil
	}
	return at, nil
}

// resolve finds where a path leads; the operation is allowed there.
func (r *run) resolve(p string, op mount.Op) (place, error) {
	clean, err := r.clean(p)
	if err != nil {
		return place{}, err
	}
	to, err := r.l.table.Resolve(clean, op)
	if err != nil {
		return place{}, err
	}
	rel, err := wspath.Parse(to.Rel, wspath.AllowRoot)
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return place{}, mount.Refused(to.Path, lower(e.Detail))
	}
	return place{to, rel}, err
}

// lower makes a sentence a clause.
func lower(sentence string) string {
	sentence = strings.TrimSuffix(sentence, ".")
	if sentence == "" {
		return sentence
	}
	return strings.ToLower(sentence[:1]) + sentence[1:]
}

// workspace opens a mount's workspace; it is released with the call.
func (r *run) workspace(i int) (*workspace.Workspace, error) {
	id := r.l.rec.Mounts[i].Workspace
	if w := r.opened[id]; w != nil {
		return w, nil
	}
	w, err := r.s.o.Workspaces.Get(r.ctx, id)
	if err != nil {
		return nil, err
	}
	if r.opened == nil {
		r.opened = make(map[string]*workspace.Workspace)
	}
	r.opened[id] = w
	return w, nil
}

// taskOf gives the task that changes of a mount belong to.
func (r *run) taskOf(i int) (string, error) {
	ws := r.l.rec.Mounts[i].Workspace
	if r.changes == nil {
		r.changes = make(map[string]bool)
	}
	r.changes[ws] = true
	if r.c.TaskID == "" {
		if id := r.ownTask(ws); !r.l.rec.Lazy || id != "" && !r.s.ended(id, ws) {
			return id, nil
		}
		id, err := r.s.makeClientTask(r.ctx, r.l.rec.ID, i, r.c)
		if err == nil {
			if r.made == nil {
				r.made = make(map[string]string)
			}
			r.made[ws] = id
		}
		return id, err
	}
	err := r.s.o.Tasks.Writable(r.c.TaskID, ws)
	if code := errs.CodeOf(err); err != nil && (code == "task_not_found" || code == "task_other_workspace") {
		return "", &refusal{err}
	}
	return r.c.TaskID, nil
}

// apply changes files of a mount.
func (r *run) apply(i int, op workspace.Op) (*workspace.Result, error) {
	id, err := r.taskOf(i)
	if err != nil {
		return nil, err
	}
	ref, err := r.s.o.Tasks.Get(r.ctx, id, nil)
	if err != nil {
		return nil, err
	}
	defer ref.Release()
	res, err := r.s.o.Tasks.Apply(r.ctx, ref, workspace.Request{By: r.by(), Ops: []workspace.Op{op}})
	if err != nil {
		return nil, err
	}
	if !res.Commit.IsZero() {
		r.commit = res.Commit
	}
	r.replayed = r.replayed || res.Replayed
	return res, nil
}

func (r *run) by() workspace.By {
	return workspace.By{SubtaskID: r.c.SubtaskID, Actor: r.c.Actor, Source: message.API, RequestID: r.c.RequestID, IdempotencyKey: r.c.Key}
}

// sentence is the text for an error of the layers below. It follows from the error's
// kind, and never has a host path or the text of a Go error.
func (s *Service) sentence(err error, name string) string {
	e, ok := errors.AsType[*errs.Error](errs.Wrap(err, ""))
	if !ok || e.Kind == errs.Internal || e.Detail == "" {
		s.o.Log.Error("a tool's call failed", "tool", name, "error", err)
		return "Something went wrong inside the server."
	}
	return e.Detail
}

// explain puts what the write service or a look at a path refused into the
// model's words; other errors pass.
func explain(err error, path string) error {
	p := mount.Show(path)
	say := func(text string) error { return mount.Message(text) }
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		return err
	}
	switch e.Code {
	case "file_not_found", "not_found":
		return say("File not found: " + p)
	case "is_a_directory":
		return say(p + " is a directory")
	case "not_a_directory":
		return say("A part of " + p + " is a file, not a directory")
	case "special_file":
		return say(p + " is not a regular file")
	case "directory_not_empty":
		return say(p + " is a directory that is not empty; set recursive to delete it with all that is in it")
	case "target_exists":
		return say(p + " exists already")
	case "is_root":
		return mount.Refused(path, "it is a mounted workspace itself")
	case "file_too_large":
		return say(p + " is too large")
	case "not_recordable":
		return say(p + " holds files that cannot be kept in history; nothing was deleted")
	}
	if e.Kind == errs.BadPath || e.Code == "link_leads_out" {
		return mount.Refused(path, lower(e.Detail))
	}
	return err
}
