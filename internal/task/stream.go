package task

import (
	"context"
	"io"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// EventKind is the kind of an event.
type EventKind string

// The kinds (contracts/tasks.md, Events).
const (
	EventChange EventKind = "change"
	EventRevert EventKind = "revert"
	EventTask   EventKind = "task"
	EventLagged EventKind = "lagged"
)

// Event is one event of a stream.
type Event struct {
	Kind EventKind
	// Of a change or revert:
	Commit  *gitstore.Commit
	Entries []workspace.ChangeEntry
	// Of a task: what it is since this change of its record.
	Task *View
	// Of lagged: the last event's number; the stream can be resumed after it.
	After uint64
}

// Stream gives a workspace's events, or those of one task, by number. It
// holds nothing but its place: what happened is read from history, so that a
// place of any age resumes, and a slow reader costs no memory.
//
// A Stream is for one goroutine.
type Stream struct {
	svc  *Service
	w    *workspace.Workspace
	task string
	sub  *subscriber

	cursor uint64            // every commit up to here was sent, or is not of this stream
	queue  []gitstore.Record // read ahead, of (cursor, ahead]
	ahead  uint64
	live   bool // was up to date once
	ended  bool
}

// FromNow begins a stream at the present.
const FromNow = -1

// TaskStream opens the stream of a task after a number, or FromNow. It takes
// over the task's workspace: Close frees both.
func (s *Service) TaskStream(r *Ref, after int64) *Stream {
	st := s.stream(r.Workspace, r.Task.ID, after)
	// Read after subscribing: an end in between is not lost.
	t, ok := r.Store().Task(r.Task.ID)
	switch {
	case !ok && r.Dropped:
		s.hub.prime(st.sub, note{task: r.Task, seq: r.Store().Tip().Seq})
	case !ok || extra(t.Info, extraDeleted) != "":
		s.hub.prime(st.sub, note{gone: true})
	case Status(t.Info.Status).Ended():
		s.hub.prime(st.sub, note{task: t, seq: r.Store().Tip().Seq})
	}
	return st
}

// WorkspaceStream opens the stream of a workspace, and takes it over.
func (s *Service) WorkspaceStream(w *workspace.Workspace, after int64) *Stream {
	return s.stream(w, "", after)
}

func (s *Service) stream(w *workspace.Workspace, task string, after int64) *Stream {
	st := &Stream{svc: s, w: w, task: task, sub: s.hub.subscribe(w.ID(), task)}
	if after < 0 {
		st.cursor, st.live = w.Settled(), true
	} else {
		// A number that is not there yet is taken for the present: the history
		// may be another one than the client remembers.
		st.cursor = min(uint64(after), w.Store().Tip().Seq)
	}
	st.ahead = st.cursor
	return st
}

// Close frees the stream and its workspace.
func (st *Stream) Close() {
	st.svc.hub.unsubscribe(st.w.ID(), st.sub)
	st.w.Release()
}

// Next blocks for the next event. io.EOF ends the stream: the task has ended
// or is gone, the stream has lagged, or the server stops.
func (st *Stream) Next(ctx context.Context) (*Event, error) {
	for !st.ended {
		n, noted, lost, closed := st.svc.hub.peek(st.sub)
		if closed {
			break
		}
		settled := st.w.Settled()
		dropped := st.ahead < settled && st.ahead < st.w.Store().Boundary().Seq
		if lost || dropped || st.live && settled > st.cursor+st.svc.o.StreamLag {
			st.ended = true
			return &Event{Kind: EventLagged, After: st.cursor}, nil
		}
		if noted && !n.gone {
			// What was committed before the task's record changed comes first,
			// and what came after it, after it.
			settled = min(settled, max(n.seq, st.cursor))
		}
		if ev, err := st.commit(ctx, settled); ev != nil || err != nil {
			return ev, err
		}
		switch {
		case noted && n.gone:
			st.ended = true
		case noted && st.cursor >= n.seq:
			v, err := st.svc.noted(ctx, st.w, n.task)
			if err != nil {
				return nil, err
			}
			st.svc.hub.take(st.sub)
			st.ended = st.task != "" && v.Status.Ended()
			return &Event{Kind: EventTask, Task: v}, nil
		default:
			if !noted {
				st.live = true
			}
			if err := st.wait(ctx, settled, noted); err != nil {
				return nil, err
			}
		}
	}
	return nil, io.EOF
}

// commit gives the next commit up to a number, nil if there is none.
func (st *Stream) commit(ctx context.Context, upTo uint64) (*Event, error) {
	const chunk = 1024
	for len(st.queue) == 0 && st.ahead < upTo {
		to := min(upTo, st.ahead+chunk)
		err := st.w.Store().Records(ctx, st.ahead+1, to, func(r gitstore.Record) error {
			if st.task == "" || r.Task == st.task || r.Source == message.Shared {
				st.queue = append(st.queue, r)
			}
			return nil
		})
		if err != nil {
			st.queue = nil
			return nil, err
		}
		st.ahead = to
		if len(st.queue) == 0 {
			st.cursor = to
		}
	}
	if len(st.queue) == 0 {
		return nil, nil
	}
	rec := st.queue[0]
	c, err := st.w.Store().ReadCommit(ctx, rec.Commit)
	if errs.CodeOf(err) == "history_rewritten" && err != nil {
		st.queue, st.ahead = nil, st.cursor // read ahead before a purge
		return st.commit(ctx, upTo)
	}
	if err != nil {
		return nil, err
	}
	entries, err := st.w.EntriesOf(ctx, c)
	if err != nil {
		return nil, err
	}
	st.queue = st.queue[1:]
	st.cursor = rec.Seq
	if len(st.queue) == 0 {
		st.cursor = st.ahead
	}
	if st.task != "" && c.Message.TaskID != st.task && !claimedBy(c.Message, st.task) {
		return st.commit(ctx, upTo)
	}
	ev := &Event{Kind: EventChange, Commit: c, Entries: entries}
	if c.Message.Source == message.Revert {
		ev.Kind = EventRevert
	}
	return ev, nil
}

// claimedBy reports whether a shared change may be a task's.
func claimedBy(m *message.Message, task string) bool {
	return slices.ContainsFunc(m.Trailers(message.KeyClaimantTask), func(v string) bool {
		id, _, _ := strings.Cut(v, " ")
		return id == task
	})
}

// wait blocks until more is settled than a number, or a note came.
func (st *Stream) wait(ctx context.Context, settled uint64, noted bool) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := 0
	if noted {
		seen = 1
	}
	st.svc.hub.listen(st.sub, seen, cancel)
	defer st.svc.hub.listen(st.sub, 0, nil)
	_, err := st.w.WaitSettled(waiting, settled)
	switch {
	case ctx.Err() != nil:
		return errs.Wrap(ctx.Err(), "")
	case waiting.Err() != nil, err == nil:
		return nil
	case errs.Is(err, errs.NotFound), errs.Is(err, errs.Unavailable):
		// The workspace was forgotten, or the server stops.
		return io.EOF
	}
	return err
}
