package task

import (
	"sync"

	"umbra/gitstore"
)

// note notifies streams that a task's record changed.
type note struct {
	task gitstore.Task
	// seq is the workspace's tip after the change: commits up to it were made
	// before it, and their events are sent before it.
	seq  uint64
	gone bool // the task, or its workspace, is no more
}

// maxNotes is how many changes of records a stream may leave unread.
const maxNotes = 1024

// hub passes notes on to the streams that are open. Commits need none of it:
// streams read those from history.
type hub struct {
	mu     sync.Mutex
	subs   map[string]map[*subscriber]struct{} // by workspace
	closed bool
}

// subscriber is one stream's end of the hub. Its fields are guarded by hub.mu.
type subscriber struct {
	task   string // empty: all of the workspace
	notes  []note
	lost   bool   // more than maxNotes
	closed bool   // the server stops
	wake   func() // called, if set, when something comes
}

func (h *hub) subscribe(workspace, task string) *subscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	sub := &subscriber{task: task, closed: h.closed}
	if h.subs == nil {
		h.subs = map[string]map[*subscriber]struct{}{}
	}
	if h.subs[workspace] == nil {
		h.subs[workspace] = map[*subscriber]struct{}{}
	}
	h.subs[workspace][sub] = struct{}{}
	return sub
}

func (h *hub) unsubscribe(workspace string, sub *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs[workspace], sub)
	if len(h.subs[workspace]) == 0 {
		delete(h.subs, workspace)
	}
}

// prime gives a stream its first note, unless it got one meanwhile.
func (h *hub) prime(sub *subscriber, n note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(sub.notes) == 0 {
		sub.notes = append(sub.notes, n)
	}
}

func (h *hub) notify(workspace, task string, n note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs[workspace] {
		if sub.task != "" && sub.task != task {
			continue
		}
		// To one who watches the workspace, a task that is gone is no news.
		if n.gone && sub.task == "" {
			continue
		}
		if len(sub.notes) == maxNotes {
			sub.lost = true
		} else {
			sub.notes = append(sub.notes, n)
		}
		sub.poke()
	}
}

// poke wakes a stream that waits; mu is held.
func (sub *subscriber) poke() {
	if sub.wake != nil {
		sub.wake()
	}
}

// peek gives the oldest note that is not taken yet.
func (h *hub) peek(sub *subscriber) (n note, ok, lost, closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(sub.notes) > 0 {
		n, ok = sub.notes[0], true
	}
	return n, ok, sub.lost, sub.closed
}

func (h *hub) take(sub *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sub.notes = sub.notes[1:]
}

// listen sets what is to be called when something comes; at once if something
// is there beyond the seen notes. Nil stops it.
func (h *hub) listen(sub *subscriber, seen int, wake func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sub.wake = wake
	if wake != nil && (len(sub.notes) > seen || sub.lost || sub.closed) {
		wake()
	}
}

// end ends the streams of a workspace that are open now.
func (h *hub) end(workspace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs[workspace] {
		sub.closed = true
		sub.poke()
	}
}

// close ends all streams, now and later.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, subs := range h.subs {
		for sub := range subs {
			sub.closed = true
			sub.poke()
		}
	}
}
