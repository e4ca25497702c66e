package calls

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

// Begin says which call begins.
type Begin struct {
	Agent, Session string
	Cwd            string // an absolute path of the host; or Workspace
	Workspace      string
	NoOpen         bool // a workspace that is not known is NotFound
	Task, Subtask  string
	Actor          string
	ID             string // empty: one is made
	Tool, Model    string
	Prompt, Goal   string
	Command        string // "" or the SHA-256 of the command, in hex
	Paths          []Path // relative to the root, or absolute
	OnlyPaths      bool
	Layer          bool
	Hosted         bool          `json:",omitempty"` // the server runs the call's command
	TTL            time.Duration // 0: the service's

	RequestID string                  `json:"-"`
	Allow     func(root string) error `json:"-"` // judges a folder before it is opened
	Sees      task.Sees               `json:"-"`
}

// Begun is the answer to a begin.
type Begun struct {
	Record
	Root   string // of the workspace; empty for a virtual one
	At     object.ID
	Others []Other
	More   int  // paths that Others has no room for
	Again  bool // the same request had begun the call already
}

// Bounds of a begin.
const (
	minTTL   = time.Minute
	maxTTL   = 24 * time.Hour
	maxPaths = 10_000
	maxText  = 256
)

func invalid(field, detail string, args ...any) error {
	return errs.New(errs.Invalid, "invalid_field", detail, args...).With("field", field)
}

// validText reports whether a text has 1 to 256 characters and no control
// characters.
func validText(s string) bool {
	n := 0
	for _, r := range s {
		if n++; r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\uFFFD' {
			return false
		}
	}
	return n >= 1 && n <= maxText
}

func (b *Begin) validate() error {
	if (b.Cwd == "") == (b.Workspace == "") {
		return invalid("cwd", "One of cwd and workspace_id is required.")
	}
	if b.Task == "" && (b.Agent == "" || b.Session == "") {
		return invalid("agent", "task_id is required, or agent and agent_session.")
	}
	if b.Cwd != "" && (!strings.HasPrefix(b.Cwd, "/") || strings.IndexByte(b.Cwd, 0) >= 0) {
		return invalid("cwd", "cwd must be an absolute path.")
	}
	for _, x := range []struct{ name, value string }{{"agent", b.Agent}, {"task_id", b.Task}, {"subtask_id", b.Subtask}, {"call_id", b.ID}} {
		if x.value != "" && !task.ValidID(x.value) {
			return invalid(x.name, "%s must be 1 to 128 letters, digits, \".\", \"_\" and \"-\", beginning with a letter or digit, without \"..\", and not ending in \".lock\".", x.name)
		}
	}
	for _, x := range []struct{ name, value string }{{"agent_session", b.Session}, {"tool", b.Tool}, {"model", b.Model}, {"prompt_id", b.Prompt}} {
		if x.value != "" && !validText(x.value) {
			return invalid(x.name, "%s must be 1 to %d characters, without control characters.", x.name, maxText)
		}
	}
	if b.Command != "" {
		if raw, err := hex.DecodeString(b.Command); err != nil || len(raw) != sha256.Size {
			return invalid("command_sha256", "command_sha256 must be 64 hex digits.")
		}
	}
	if len(b.Goal) > task.MaxGoal {
		return invalid("goal", "The goal is longer than 64 KiB.")
	}
	if b.TTL != 0 && (b.TTL < minTTL || b.TTL > maxTTL) {
		return invalid("ttl_s", "ttl_s must be between 60 and 86400.")
	}
	return validPaths(b.Paths)
}

func validPaths(list []Path) error {
	if len(list) > maxPaths {
		return invalid("paths", "paths has more than %d members.", maxPaths)
	}
	for _, p := range list {
		if p.Path == "" || strings.IndexByte(p.Path, 0) >= 0 {
			return invalid("paths", "A path must not be empty, nor have a NUL in it.")
		}
		if p.Sum != "" {
			if raw, err := hex.DecodeString(p.Sum); err != nil || len(raw) != sha256.Size {
				return invalid("paths", "sha256 must be 64 hex digits.")
			}
		}
	}
	return nil
}

// subtaskOf makes a legal subtask id of a prompt's id; "" where nothing is left
// of it.
func subtaskOf(prompt string) string {
	b := []byte(prompt)
	for i, c := range b {
		legal := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' && i > 0 && b[i-1] != '.'
		if !legal {
			b[i] = '-'
		}
	}
	s := string(b[:min(len(b), 128)])
	if s != "" && !task.ValidID(s) {
		s = "p" + s[min(1, len(s)):] // what it begins with must be a letter or digit
	}
	if stem, ok := strings.CutSuffix(s, ".lock"); ok {
		s = stem + "-lock"
	}
	if !task.ValidID(s) {
		return ""
	}
	return s
}

// declared gives paths as they are in the workspace; those outside of it are left
// out.
func declared(w *workspace.Workspace, list []Path) []Path {
	out := make([]Path, 0, len(list))
	seen := make(map[string]int)
	add := func(p wspath.Path, sum string) {
		if p.IsRoot() {
			return
		}
		if i, ok := seen[string(p)]; ok {
			if sum != "" {
				out[i].Sum = sum
			}
			return
		}
		seen[string(p)] = len(out)
		out = append(out, Path{string(p), sum})
	}
	for _, d := range list {
		sum := d.Sum
		if sum != "" {
			sum = "sha256:" + strings.ToLower(sum)
		}
		for _, p := range w.Within(d.Path) {
			add(p, sum)
		}
	}
	return out
}

// Begin records what is on disk, and begins a call. Earlier changes are not the
// call's, no matter who made them.
//
// Invalid "invalid_field"; NotFound "workspace_not_found", "task_not_found";
// Conflict "call_exists", and why the task takes no changes; Unavailable
// "too_many_calls"; and the errors of opening a workspace.
func (s *Service) Begin(ctx context.Context, b Begin) (*Begun, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	if b.ID == "" {
		b.ID = newID()
	} else {
		defer s.busy.Lock("call " + b.ID)()
		old, err := s.again(ctx, &b)
		if old != nil || err != nil {
			return old, err
		}
	}
	if err := s.room(nil); err != nil {
		return nil, err
	}
	if b.Task != "" { // before a workspace is opened for it
		if err := s.tasks.Visible(b.Task, b.Sees); err != nil {
			return nil, err
		}
		if err := s.tasks.Writable(b.Task, ""); errs.Is(err, errs.NotFound) {
			return nil, err
		}
	}
	w, err := s.workspaceOf(ctx, &b)
	if err != nil {
		return nil, err
	}
	defer w.Release()
	rec := Record{ID: b.ID, Hash: b.hash(), Workspace: w.ID(), Task: b.Task, Subtask: b.Subtask,
		By: By{Agent: b.Agent, Session: b.Session, Actor: b.Actor, Tool: b.Tool, Model: b.Model, Prompt: b.Prompt}, OnlyPaths: b.OnlyPaths, Layer: b.Layer, Hosted: b.Hosted, Status: Open, TTL: b.TTL, Paths: declared(w, b.Paths)}
	if rec.Subtask == "" {
		rec.Subtask = subtaskOf(b.Prompt)
	}
	if rec.TTL == 0 {
		rec.TTL = s.o.TTL
	}
	if rec.Actor == "" {
		rec.Actor = b.Agent
	}
	if s.o.RecordCommands {
		rec.Command = strings.ToLower(b.Command)
	}
	if b.Session != "" && b.Agent != "" {
		known, err := s.keep.session(sessionKey(w.ID(), b.Agent, b.Session))
		if err != nil {
			return nil, err
		}
		rec.Since = known.Through
	}
	if err := s.taskOf(ctx, w, &b, &rec); err != nil {
		return nil, err
	}
	if err := s.enter(ctx, w, &rec); err != nil {
		return nil, err
	}
	out := &Begun{Record: rec, Root: w.Root()}
	return out, s.fillBegun(ctx, w, out)
}

// again returns the call that the same request began, nil if there is none.
// Conflict "call_exists" where another request did.
func (s *Service) again(ctx context.Context, b *Begin) (*Begun, error) {
	r, ok, err := s.record(b.ID)
	if err != nil || !ok {
		return nil, err
	}
	ws, known := s.o.Workspaces.Record(r.Workspace)
	if r.Hash != b.hash() || !known || b.Sees != nil && !b.Sees(ws.Place()) {
		return nil, errs.New(errs.Conflict, "call_exists", "The call_id is taken by another call; it must be new.").With("call_id", b.ID)
	}
	w, err := s.o.Workspaces.Get(ctx, r.Workspace)
	if err != nil {
		return nil, err
	}
	defer w.Release()
	out := &Begun{Record: r, Root: w.Root(), Again: true}
	return out, s.fillBegun(ctx, w, out)
}

// hash identifies the request.
func (b *Begin) hash() string {
	text, _ := json.Marshal(b) // no field of it can fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// record returns a call as it is now.
func (s *Service) record(id string) (Record, bool, error) {
	s.mu.Lock()
	l := s.open[id]
	s.mu.Unlock()
	if l != nil {
		return l.snapshot(), true, nil
	}
	return s.keep.get(id)
}

func newID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "call-" + hex.EncodeToString(b[:])
}

// IDOf returns the ID of a call that is named by a text.
func IDOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "call-" + hex.EncodeToString(sum[:12])
}

func sessionKey(ws, agent, id string) string { return ws + "\x00" + agent + "\x00" + id }

// room makes a call one that is open, nil: none. Unavailable "too_many_calls" where as
// many are open as may be.
func (s *Service) room(l *live) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.open); n >= s.o.MaxOpen {
		return errs.New(errs.Unavailable, "too_many_calls", "%d calls are open; end some of them first.", n)
	}
	if l != nil {
		s.open[l.rec.ID] = l
	}
	return nil
}

// enter syncs the disk and makes the call one that is open.
func (s *Service) enter(ctx context.Context, w *workspace.Workspace, rec *Record) error {
	var failed error
	err := w.RecordThen(ctx, func() {
		now := s.o.Now()
		rec.touch(now)
		rec.Begun, rec.Order, rec.From = rec.Touched, s.next(now), w.Store().Tip().Seq
		seen := sightingAt(now)
		l := &live{rec: *rec, deadline: now.Add(rec.TTL)}
		if failed = s.room(l); failed != nil {
			return
		}
		if failed = s.keep.put(line{Call: rec}, line{Seen: w.ID(), At: &seen}); failed != nil {
			s.mu.Lock()
			delete(s.open, rec.ID)
			s.mu.Unlock()
			return
		}
		b := s.book(w.ID())
		b.enter(l)
		b.note(seen)
	})
	if err == nil {
		err = errs.Wrap(failed, "")
	}
	if err == nil {
		s.schedule()
	}
	return err
}

// Layer records what is on disk, and has the changes of an open call come out of a
// layer from then on. prepare makes the layer; it is called with the call, the
// workspace's root and the number of the last commit, and its error ends the attempt.
//
// NotFound "call_not_found"; Conflict "call_ended", "call_exists" if the call has a
// layer, "no_layer" on a virtual workspace.
func (s *Service) Layer(ctx context.Context, id string, sees task.Sees, prepare func(r Record, root string, from uint64) error) (*Begun, error) {
	if _, err := s.Get(id, sees); err != nil {
		return nil, err
	}
	defer s.busy.Lock("call " + id)()
	s.mu.Lock()
	l := s.open[id]
	s.mu.Unlock()
	if l == nil {
		return nil, errs.New(errs.Conflict, "call_ended", "The call has ended.").With("call_id", id)
	}
	rec := l.snapshot()
	if rec.Layer {
		return nil, errs.New(errs.Conflict, "call_exists", "The call has a layer already.").With("call_id", id)
	}
	w, err := s.o.Workspaces.Get(ctx, rec.Workspace)
	if err != nil {
		return nil, err
	}
	defer w.Release()
	if w.Root() == "" {
		return nil, errs.New(errs.Conflict, "no_layer", "A virtual workspace has no directory for a layer.")
	}
	var failed error
	err = w.RecordThen(ctx, func() {
		if failed = prepare(rec, w.Root(), w.Store().Tip().Seq); failed != nil {
			return
		}
		s.book(rec.Workspace).Layer(id, true)
		l.mu.Lock()
		l.rec.Layer = true
		l.mu.Unlock()
		rec = l.snapshot()
		failed = s.keep.put(line{Call: &rec})
	})
	if err == nil {
		err = errs.Wrap(failed, "")
	}
	return &Begun{Record: rec, Root: w.Root()}, err
}

// Unlayer ends what Layer began: the call's changes are found on disk again. It does
// nothing to a call that has ended.
func (s *Service) Unlayer(ctx context.Context, id string) error {
	defer s.busy.Lock("call " + id)()
	s.mu.Lock()
	l := s.open[id]
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	rec := l.snapshot()
	w, err := s.o.Workspaces.Get(ctx, rec.Workspace)
	if err != nil {
		return err
	}
	defer w.Release()
	var failed error
	err = w.RecordThen(ctx, func() {
		s.book(rec.Workspace).Layer(id, false)
		l.mu.Lock()
		l.rec.Layer = false
		l.mu.Unlock()
		rec = l.snapshot()
		failed = s.keep.put(line{Call: &rec})
	})
	if err == nil {
		err = errs.Wrap(failed, "")
	}
	return err
}

// fillBegun fills in what a begin returns in addition to the call.
func (s *Service) fillBegun(ctx context.Context, w *workspace.Workspace, out *Begun) error {
	var err error
	if out.From > 0 {
		if out.At, err = w.Store().CommitAt(ctx, out.From); err != nil && !errs.Is(err, errs.Gone) {
			return err
		}
	}
	out.Others, out.More, err = s.others(ctx, w, &out.Record)
	return err
}

// workspaceOf finds or opens the workspace of a begin. The caller releases it.
func (s *Service) workspaceOf(ctx context.Context, b *Begin) (*workspace.Workspace, error) {
	unknown := errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
	if b.Workspace != "" {
		rec, ok, err := s.o.Workspaces.Lookup(b.Workspace)
		if err != nil {
			return nil, err
		}
		if !ok || b.Sees != nil && !b.Sees(rec.Place()) {
			return nil, unknown
		}
		return s.o.Workspaces.Get(ctx, rec.ID)
	}
	rec, top, ok := s.o.Workspaces.Around(b.Cwd, b.Sees)
	switch {
	case ok:
		return s.o.Workspaces.Get(ctx, rec.ID)
	case b.NoOpen:
		return nil, unknown
	case b.Task != "": // it is on another workspace, if it exists: nothing is opened
		return nil, s.tasks.Writable(b.Task, "")
	}
	w, _, err := s.o.Workspaces.Open(ctx, top, workspaces.OpenOptions{Allow: b.Allow})
	return w, err
}

// taskOf finds or makes the task of a begin.
func (s *Service) taskOf(ctx context.Context, w *workspace.Workspace, b *Begin, rec *Record) error {
	if b.Task != "" {
		return s.tasks.Writable(b.Task, w.ID())
	}
	key := sessionKey(w.ID(), b.Agent, b.Session)
	defer s.busy.Lock("session " + key)()
	known, err := s.keep.session(key)
	if err != nil {
		return err
	}
	if known.Task != "" {
		switch err := s.tasks.Writable(known.Task, w.ID()); {
		case err == nil:
			rec.Task = known.Task
			return nil
		case errs.CodeOf(err) != "task_ended" && !errs.Is(err, errs.NotFound):
			return err
		}
	}
	first := taskID(b.Agent, b.Session)
	if !s.tasks.FreeFor(first, w.ID()) {
		sum := sha256.Sum256([]byte(w.ID()))
		first += "-w" + hex.EncodeToString(sum[:3])
	}
	continues := ""
	for n := 1; ; n++ {
		id := first
		if n > 1 {
			id = fmt.Sprintf("%s-%d", first, n)
		}
		err := s.tasks.Writable(id, w.ID())
		if errs.Is(err, errs.NotFound) && s.tasks.Unused(id) {
			rec.Task = id
			if err = s.makeTask(ctx, w, b, rec, continues, key, known); errs.CodeOf(err) != "task_exists" {
				return err
			}
			err = s.tasks.Writable(id, w.ID()) // another client has just made it
		}
		switch {
		case id != known.Task && !madeFor(w, id, b): // another client's, which took the ID first
		case err == nil:
			rec.Task = id
			return nil
		case errs.CodeOf(err) != "task_ended" && !errs.Is(err, errs.NotFound):
			return err
		default:
			continues = id
		}
	}
}

// madeFor reports whether a task was made for the session of a begin.
func madeFor(w *workspace.Workspace, id string, b *Begin) bool {
	t, ok := w.Store().Task(id)
	var meta struct {
		Agent   string `json:"agent"`
		Session string `json:"agent_session"`
	}
	return ok && json.Unmarshal(t.Info.Metadata, &meta) == nil && meta.Agent == b.Agent && meta.Session == b.Session
}

func (s *Service) makeTask(ctx context.Context, w *workspace.Workspace, b *Begin, rec *Record, continues, key string, known session) error {
	meta := map[string]string{"agent": b.Agent, "agent_session": b.Session}
	if b.Model != "" {
		meta["model"] = b.Model
	}
	if continues != "" {
		meta["continues"] = continues
	}
	raw, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	goal := b.Goal
	if strings.TrimSpace(goal) == "" {
		goal = b.Agent + " session"
	}
	made, err := s.tasks.CreateOn(ctx, w, task.CreateOptions{Goal: goal, ID: rec.Task, Metadata: raw, Actor: rec.Actor, RequestID: b.RequestID})
	if err != nil {
		return err
	}
	made.Release()
	known.Task = rec.Task
	return s.keep.put(line{Key: key, Session: &known})
}

// taskID names the task of an agent's session.
func taskID(agent, id string) string {
	sum := sha256.Sum256([]byte(id))
	const room = 128 - len("-") - 12 - len("-w123456") - len("-1234567")
	return agent[:min(len(agent), room)] + "-" + hex.EncodeToString(sum[:6])
}
