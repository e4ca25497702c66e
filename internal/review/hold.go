package review

import (
	"context"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"time"

	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// MaxHold is how long rejections wait at most.
const MaxHold = 10 * time.Minute

// Rejections that fail for a reason that may pass, such as a full disk, are tried again
// at these intervals, and are open again after giveUp.
const (
	retryAfter = time.Minute
	giveUp     = 24 * time.Hour
)

const heldBucket = "review-held"

// HolderOptions of a Holder. All but Always, Log, Now, After and Max are needed.
type HolderOptions struct {
	Reader     *Reader
	Workspaces *workspaces.Manager
	State      *state.DB
	// Open returns how many calls of a task are open.
	Open   func(task string) int
	Always bool // hold for every task
	Log    *slog.Logger
	Now    func() time.Time
	// After runs a function after a time, in a goroutine of its own, unless it is
	// stopped before (time.AfterFunc).
	After func(d time.Duration, f func()) (stop func() bool)
	Max   time.Duration // MaxHold
}

// Holder carries decisions out. Rejections of a task that asks for it wait until no
// call of the task is open: an agent that edits the same file would be confused. What
// waits is in the state database, so that it survives a restart. Its methods may be
// called from any goroutine.
type Holder struct {
	o HolderOptions

	// tasks are locked by their ids: while one is, what waits for it is neither added
	// to nor carried out.
	tasks [64]sync.Mutex

	mu     sync.Mutex
	timers map[string]timer // by task
	closed bool
	wait   sync.WaitGroup
	ctx    context.Context
	stop   context.CancelFunc
}

// timer carries out what waits for a task on a workspace.
type timer struct {
	workspace string
	stop      func() bool
}

// waiting is the rejections of one task that wait.
type waiting struct {
	Task      string  `json:"task"`
	Workspace string  `json:"workspace"`
	Batches   []batch `json:"batches"`
}

// batch is the rejections of one request.
type batch struct {
	IDs []string `json:"ids"`
	// Keep are parts of these hunks that were accepted later.
	Keep    []string  `json:"keep,omitempty"`
	Rest    bool      `json:"rest,omitempty"` // the rest of the task was rejected
	Subtask string    `json:"subtask,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Message string    `json:"message,omitempty"`
	Request string    `json:"request,omitempty"`
	Until   time.Time `json:"until"`
}

// NewHolder opens the holder. Start has to be called before the first request, Close
// at the end.
func NewHolder(o HolderOptions) *Holder {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	if o.Max == 0 {
		o.Max = MaxHold
	}
	h := &Holder{o: o, timers: make(map[string]timer)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// Start goes on with what waited when the server stopped.
//
// Where several servers share the records, each goes on with those of the workspaces
// that it owns.
func (h *Holder) Start() error {
	if h.o.State.Shared() {
		h.o.Workspaces.AddHooks(workspaces.Hooks{
			Entered: func(_ context.Context, w *workspace.Workspace) error { return errs.Wrap(h.takeUp(w.ID()), "") },
			Leaving: func(_ context.Context, id string) { h.forget(id) },
			Lost:    h.forget,
		})
		for _, r := range h.o.Workspaces.Physical() { // which no other server can have
			if err := h.takeUp(r.ID); err != nil {
				return err
			}
		}
		return nil
	}
	return h.takeUp("")
}

// takeUp goes on with what waits on a workspace; "" is all.
func (h *Holder) takeUp(workspaceID string) error {
	list, err := state.All[waiting](h.o.State, heldBucket)
	if err != nil {
		return err
	}
	for _, x := range list {
		if workspaceID == "" || x.Workspace == workspaceID {
			h.schedule(x.Task, x.Workspace, h.left(&x))
		}
	}
	return nil
}

// forget leaves what waits on a workspace to its next owner.
func (h *Holder) forget(workspaceID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for task, t := range h.timers {
		if t.workspace == workspaceID {
			t.stop()
			delete(h.timers, task)
		}
	}
}

// Close stops waiting; what waits does so again after the next start.
func (h *Holder) Close() {
	h.mu.Lock()
	h.closed = true
	for _, t := range h.timers {
		t.stop()
	}
	h.mu.Unlock()
	h.stop()
	h.wait.Wait()
}

// lock locks a task and returns what unlocks it.
func (h *Holder) lock(task string) func() {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(task))
	m := &h.tasks[sum.Sum32()%uint32(len(h.tasks))]
	m.Lock()
	return m.Unlock
}

// left is how long what waits has to wait: until the oldest batch has waited long
// enough, and not at all if no call is open.
func (h *Holder) left(x *waiting) time.Duration {
	if h.o.Open(x.Task) == 0 {
		return 0
	}
	first := slices.MinFunc(x.Batches, func(a, b batch) int { return a.Until.Compare(b.Until) })
	return max(0, first.Until.Sub(h.o.Now()))
}

// schedule carries out what waits for a task after a time.
func (h *Holder) schedule(task, workspaceID string, left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if t, waits := h.timers[task]; waits {
		t.stop()
	}
	h.timers[task] = timer{workspaceID, h.o.After(left, func() {
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return
		}
		h.wait.Add(1)
		h.mu.Unlock()
		defer h.wait.Done()
		h.carryOut(h.ctx, task)
	})}
}

// holds reports whether rejections of a task wait now.
func (h *Holder) holds(w *workspace.Workspace, task string) bool {
	if !h.o.Always {
		if t, ok := w.Store().Task(task); !ok || !message.Holds(t.Info.Extra) {
			return false
		}
	}
	return h.o.Open(task) > 0
}

// Decide is Reader.Decide, but for rejections that wait; held is how many. What waits
// already is decided on: accept_rest and reject_rest leave it, and to accept it ends the
// waiting.
func (h *Holder) Decide(ctx context.Context, w *workspace.Workspace, d Decision) (out *Decided, held int, err error) {
	if !d.DryRun {
		defer h.lock(d.Task)()
	}
	if d.held, err = h.Held(d.Task); err != nil {
		return nil, 0, err
	}
	if d.DryRun || len(d.Reject) == 0 && !d.RejectRest || !h.holds(w, d.Task) {
		switch out, err = h.o.Reader.Decide(ctx, w, d); {
		case err != nil:
		case !d.DryRun:
			err = h.accepted(d.Task, out.Accepted)
		case len(out.Rejected) > 0 && h.holds(w, d.Task):
			held = len(out.Rejected)
			out.Rejected, out.Files = nil, nil
		}
		return out, held, err
	}
	if d.May != nil {
		if err := d.May(); err != nil {
			return nil, 0, err
		}
	}
	try := d
	try.DryRun = true
	what, err := h.o.Reader.Decide(ctx, w, try)
	if err != nil {
		return nil, 0, err
	}
	if len(what.Rejected) == 0 { // nothing waits
		if out, err = h.o.Reader.Decide(ctx, w, d); err == nil {
			err = h.accepted(d.Task, out.Accepted)
		}
		return out, 0, err
	}
	b := batch{IDs: what.Rejected, Rest: d.RejectRest, Subtask: d.By.SubtaskID, Actor: d.By.Actor, Message: d.By.Message, Request: d.By.RequestID, Until: h.o.Now().Add(h.o.Max)}
	out = &Decided{}
	if len(what.Accepted) > 0 {
		now := d
		now.Accept, now.Reject, now.AcceptRest, now.RejectRest, now.Plan = what.Accepted, nil, false, false, ""
		if out, err = h.o.Reader.Decide(ctx, w, now); err != nil {
			return nil, 0, err
		}
		if err := h.accepted(d.Task, out.Accepted); err != nil {
			return nil, 0, err
		}
	}
	x, _, err := h.of(d.Task)
	if err != nil {
		return nil, 0, err
	}
	x.Workspace = w.ID()
	x.Batches = append(x.Batches, b)
	if err := h.o.State.Put(heldBucket, d.Task, x); err != nil {
		return nil, 0, err
	}
	h.schedule(d.Task, x.Workspace, h.left(&x))
	return out, len(b.IDs), nil
}

// of returns what waits for a task.
func (h *Holder) of(task string) (x waiting, found bool, err error) {
	x.Task = task
	found, err = h.o.State.Get(heldBucket, task, &x)
	return x, found, err
}

// put keeps what waits for a task; the caller holds its lock.
func (h *Holder) put(x *waiting) error {
	x.Batches = slices.DeleteFunc(x.Batches, func(b batch) bool { return len(b.IDs) == 0 })
	if len(x.Batches) == 0 {
		return h.o.State.Delete(heldBucket, x.Task)
	}
	return h.o.State.Put(heldBucket, x.Task, *x)
}

// accepted notes that hunks, or parts of hunks, were accepted, which is newer than that
// they were rejected. The caller holds the task's lock.
func (h *Holder) accepted(task string, ids []string) error {
	x, found, err := h.of(task)
	if err != nil || !found || len(ids) == 0 {
		return err
	}
	for i := range x.Batches {
		b := &x.Batches[i]
		b.IDs = slices.DeleteFunc(b.IDs, func(id string) bool { return slices.Contains(ids, id) })
		b.Keep = append(b.Keep, ids...)
	}
	return h.put(&x)
}

// Held returns the hunks of a task whose rejection waits.
func (h *Holder) Held(task string) (map[string]bool, error) {
	x, _, err := h.of(task)
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool)
	for _, b := range x.Batches {
		for _, id := range b.IDs {
			out[id] = true
		}
	}
	return out, nil
}

// Idle is called when the last open call of a task has ended. It returns when what
// waited is done.
func (h *Holder) Idle(ctx context.Context, task string) {
	if _, found, err := h.of(task); err != nil || !found {
		return
	}
	h.carryOut(context.WithoutCancel(ctx), task)
}

// carryOut does what waits for a task. A hunk that is no longer what was rejected is
// left: it is open again. A batch that fails for now waits longer.
func (h *Holder) carryOut(ctx context.Context, task string) {
	defer h.lock(task)()
	x, found, err := h.of(task)
	if err != nil || !found {
		return
	}
	w, err := h.o.Workspaces.Get(ctx, x.Workspace)
	if err == nil {
		defer w.Release()
	}
	again := false
	for i := range x.Batches {
		b := &x.Batches[i]
		failed := err
		if w != nil {
			_, failed = h.o.Reader.Decide(ctx, w, Decision{Task: task, Reject: b.IDs, rest: b.Rest, keep: b.Keep, loose: true,
				By: workspace.By{SubtaskID: b.Subtask, Actor: b.Actor, Message: b.Message, RequestID: b.Request}})
		}
		if ctx.Err() != nil {
			return // the next start goes on
		}
		if failed == nil || errs.Is(failed, errs.NotFound) || errs.Is(failed, errs.Gone) {
			b.IDs = nil
			continue
		}
		late := h.o.Now().Sub(b.Until) > giveUp
		h.o.Log.Warn("rejections that waited could not be carried out", "task", task, "error", failed, "again", !late)
		if late {
			b.IDs = nil
		}
		again = again || !late
	}
	if err := h.put(&x); err != nil {
		h.o.Log.Warn("rejections that were carried out are still listed", "task", task, "error", err)
	}
	if again {
		h.schedule(task, x.Workspace, retryAfter)
	}
}
