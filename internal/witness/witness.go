// Package witness carries in a request's context which commits its answer
// reflects, for the header Umbra-Seq of a cluster. A commit is noted where it is
// made, and the tip of a workspace where a request gets it: nothing is looked up
// afterwards, when others may have gone on.
//
// Without a Note in the context every call is a no-op.
package witness

import (
	"context"
	"sync"
)

// Note is what one request has seen. It is safe for concurrent use.
type Note struct {
	mu   sync.Mutex
	seen []seen // one a workspace; nearly always one
}

type seen struct {
	workspace   string
	store       any    // identifies the workspace where its id is not known
	read, wrote uint64 // newest commit: that a read saw at least; that the request made
}

type key struct{}

// Into returns a context with a new Note.
func Into(ctx context.Context) (context.Context, *Note) {
	n := &Note{}
	return context.WithValue(ctx, key{}, n), n
}

// In returns ctx with the Note of another context, if that has one: a part of its request
// has a context of its own.
func In(ctx, of context.Context) context.Context {
	if n, ok := of.Value(key{}).(*Note); ok {
		return context.WithValue(ctx, key{}, n)
	}
	return ctx
}

// Opened notes that the request got a workspace, whose newest commit was tip then.
// Committed names it by the same store.
func Opened(ctx context.Context, workspace string, store any, tip uint64) {
	if n, ok := ctx.Value(key{}).(*Note); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		s := n.of(store)
		// The first tip is what all later reads reflect at least.
		if s.workspace == "" {
			s.workspace, s.read = workspace, tip
		}
	}
}

// Committed notes a commit that the request made, or that it is answered with.
func Committed(ctx context.Context, store any, seq uint64) {
	if n, ok := ctx.Value(key{}).(*Note); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		s := n.of(store)
		s.wrote = max(s.wrote, seq)
	}
}

// of returns the entry of a store; the caller holds mu.
func (n *Note) of(store any) *seen {
	for i := range n.seen {
		if n.seen[i].store == store {
			return &n.seen[i]
		}
	}
	n.seen = append(n.seen, seen{store: store})
	return &n.seen[len(n.seen)-1]
}

// Of returns the newest commit of a workspace that the answer reflects: the
// request's own where it made one (wrote), else the tip when it got the workspace.
// ok is false where it got none. An empty name means the only workspace there is.
func (n *Note) Of(workspace string) (name string, seq uint64, wrote, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found *seen
	for i := range n.seen {
		s := &n.seen[i]
		if s.workspace == "" || workspace != "" && s.workspace != workspace {
			continue
		}
		if found != nil && found.workspace != s.workspace {
			return "", 0, false, false
		}
		found = s // the newest, where it was opened twice
	}
	if found == nil {
		return "", 0, false, false
	}
	if found.wrote > 0 {
		return found.workspace, found.wrote, true, true
	}
	return found.workspace, found.read, false, true
}

// Opened reports whether the request got a workspace.
func (n *Note) Opened() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.seen) > 0
}

// Wrote reports whether the request made a commit anywhere.
func (n *Note) Wrote() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.seen {
		if n.seen[i].wrote > 0 {
			return true
		}
	}
	return false
}
