package review

import (
	"context"
	"log/slog"
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

const heldBucket = "review-held"

// HolderOptions of a Holder. All but Always, Log, Now and Max are needed.
type HolderOptions struct {
	Reader     *Reader
	Workspaces *workspaces.Manager
	State      *state.DB
	// Open returns how many calls of a task are open.
	Open   func(task string) int
	Always bool // hold for every task
	Log    *slog.Logger
	Now    func() time.Time
	Max    time.Duration // MaxHold
}

// Holder carries decisions out. Rejections of a task that wants it so wait until no
// call of the task is open: an agent that edits the same file would be confused. What
// waits is in the state database, so that it survives a restart. Its methods may be
// called from any goroutine.
type Holder struct {
	o HolderOptions

	run sync.Mutex // one batch at a time

	mu     sync.Mutex
	timers map[string]*time.Timer // by task
	closed bool
	wait   sync.WaitGroup
	ctx    context.Context
	stop   context.CancelFunc
}

// waiting is the rejections of one task that wait.
type waiting struct {
	Task      string  `json:"task"`
	Workspace string  `json:"workspace"`
	Batches   []batch `json:"batches"`
}

// batch is the rejections of one request.
type batch struct {
	IDs     []string  `json:"ids"`
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
	if o.Max == 0 {
		o.Max = MaxHold
	}
	h := &Holder{o: o, timers: make(map[string]*time.Timer)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// Start goes on with what waited when the server stopped.
func (h *Holder) Start() error {
	list, err := state.All[waiting](h.o.State, heldBucket)
	if err != nil {
		return err
	}
	for _, x := range list {
		h.schedule(x.Task, x.until())
	}
	return nil
}

// Close stops waiting; what waits does so again after the next start.
func (h *Holder) Close() {
	h.mu.Lock()
	h.closed = true
	for _, t := range h.timers {
		t.Stop()
	}
	h.mu.Unlock()
	h.stop()
	h.wait.Wait()
}

// until is when the oldest batch has waited long enough.
func (x *waiting) until() (at time.Time) {
	for i, b := range x.Batches {
		if i == 0 || b.Until.Before(at) {
			at = b.Until
		}
	}
	return at
}

// schedule carries out what waits at a time, or now if no call is open.
func (h *Holder) schedule(task string, at time.Time) {
	left := max(0, at.Sub(h.o.Now()))
	if h.o.Open(task) == 0 {
		left = 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if t := h.timers[task]; t != nil {
		t.Stop()
	}
	h.timers[task] = time.AfterFunc(left, func() {
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return
		}
		h.wait.Add(1)
		h.mu.Unlock()
		defer h.wait.Done()
		h.carryOut(h.ctx, task)
	})
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

// Decide is Reader.Decide, but for rejections that wait; held is how many.
func (h *Holder) Decide(ctx context.Context, w *workspace.Workspace, d Decision) (out *Decided, held int, err error) {
	if d.DryRun || len(d.Reject) == 0 && !d.RejectRest || !h.holds(w, d.Task) {
		out, err = h.o.Reader.Decide(ctx, w, d)
		return out, 0, err
	}
	if d.May != nil {
		if err := d.May(); err != nil {
			return nil, 0, err
		}
	}
	try := d
	try.DryRun = true
	what, err := h.o.Reader.Decide(ctx, w, try)
	if err != nil || len(what.Rejected) == 0 {
		return what, 0, err
	}
	b := batch{IDs: what.Rejected, Subtask: d.By.SubtaskID, Actor: d.By.Actor, Message: d.By.Message, Request: d.By.RequestID, Until: h.o.Now().Add(h.o.Max)}
	out = &Decided{Accepted: what.Accepted}
	if len(what.Accepted) > 0 {
		now := d
		now.Accept, now.Reject, now.AcceptRest, now.RejectRest, now.Plan = what.Accepted, nil, false, false, ""
		if out, err = h.o.Reader.Decide(ctx, w, now); err != nil {
			return nil, 0, err
		}
	}
	if err := h.put(d.Task, w.ID(), b); err != nil {
		return nil, 0, err
	}
	return out, len(b.IDs), nil
}

func (h *Holder) put(task, workspace string, b batch) error {
	h.run.Lock()
	defer h.run.Unlock()
	x := waiting{Task: task, Workspace: workspace}
	if _, err := h.o.State.Get(heldBucket, task, &x); err != nil {
		return err
	}
	x.Batches = append(x.Batches, b)
	if err := h.o.State.Put(heldBucket, task, x); err != nil {
		return err
	}
	h.schedule(task, x.until())
	return nil
}

// Held returns the hunks of a task whose rejection waits.
func (h *Holder) Held(task string) (map[string]bool, error) {
	var x waiting
	if _, err := h.o.State.Get(heldBucket, task, &x); err != nil {
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
	var x waiting
	if found, err := h.o.State.Get(heldBucket, task, &x); err != nil || !found {
		return
	}
	h.carryOut(context.WithoutCancel(ctx), task)
}

// carryOut does what waits for a task. A hunk that is no longer what was rejected is
// left: it is open again.
func (h *Holder) carryOut(ctx context.Context, task string) {
	h.run.Lock()
	defer h.run.Unlock()
	var x waiting
	if found, err := h.o.State.Get(heldBucket, task, &x); err != nil || !found {
		return
	}
	err := h.reject(ctx, &x)
	switch {
	case ctx.Err() != nil:
		return // the next start goes on
	case err != nil && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Gone):
		h.o.Log.Warn("rejections that waited could not be carried out", "task", task, "error", err)
	}
	if err := h.o.State.Delete(heldBucket, task); err != nil {
		h.o.Log.Warn("rejections that were carried out are still listed", "task", task, "error", err)
	}
}

func (h *Holder) reject(ctx context.Context, x *waiting) error {
	w, err := h.o.Workspaces.Get(ctx, x.Workspace)
	if err != nil {
		return err
	}
	defer w.Release()
	for _, b := range x.Batches {
		d := Decision{Task: x.Task, Reject: b.IDs, loose: true,
			By: workspace.By{SubtaskID: b.Subtask, Actor: b.Actor, Message: b.Message, RequestID: b.Request}}
		if _, err := h.o.Reader.Decide(ctx, w, d); err != nil {
			return err
		}
	}
	return nil
}
