package revert

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/workspace"
)

// Commit names one commit of the workspace.
type Commit struct {
	ID     string // abbreviated, for the revert's summary line
	Seq    uint64
	Source message.Source
}

// Call names what one call of an agent did.
type Call struct {
	ID   string
	From uint64 // number of the commit at which it began
	// Against chooses only what is against the owner's policy.
	Against bool
}

// picks gives what the call did, and what became any call's later: a shared
// change that another one has claimed is not this one's.
func (x *Call) picks() history.Picks {
	return history.Picks{
		From: x.From,
		Record: func(r *gitstore.Record) bool {
			return r.Source == message.Call || r.Source == message.Shared || r.Claims
		},
		Entry: func(e *workspace.ChangeEntry) bool { return x.made(e) || !e.Claims.IsZero() },
	}
}

// made reports whether an entry is the call's, or may be.
func (x *Call) made(e *workspace.ChangeEntry) bool {
	return e.CallID == x.ID || slices.Contains(e.Claimants, x.ID)
}

// own leaves what the call made, or may have made and no call has claimed.
func (x *Call) own(entries []*history.Entry) []*history.Entry {
	type change struct {
		commit object.ID
		path   string
	}
	claimed := make(map[change]bool)
	for _, e := range entries {
		if !e.Claims.IsZero() {
			claimed[change{e.Claims, e.Path}] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e *history.Entry) bool {
		return !x.made(e.ChangeEntry) || x.Against && len(e.Policy) == 0 || e.Shared() && claimed[change{e.Commit, e.Path}]
	})
}

// Where selects entries of a workspace. All conditions that are set must hold;
// at least one is. Reverts are selected only by their source.
type Where struct {
	Actor        string
	Agent        string // its tasks' metadata.agent, or the actor
	Source       message.Source
	Since, Until time.Time // inclusive, exclusive
	Paths        []string  // files, or directories with all in them, before or after the change
}

// loader reads the entries that a request is about, as they are now, and
// chooses those to undo.
type loader func(ctx context.Context) (*history.Task, selection, error)

func newLoader(w *workspace.Workspace, cache *history.Cache, req *Request) loader {
	var picks history.Picks
	switch sc := req.Scope; {
	case sc.Commit != nil:
		picks.Only = sc.Commit.Seq
	case sc.Where != nil:
		picks = sc.Where.picks(w.Store())
	case sc.Call != nil:
		picks = sc.Call.picks()
	default:
		return func(ctx context.Context) (*history.Task, selection, error) {
			t, err := cache.Task(ctx, w, req.Task)
			if err != nil {
				return nil, selection{}, err
			}
			sel, err := choose(ctx, w.Store(), t, req)
			return t, sel, err
		}
	}
	if err := notRevertible(req.Scope); err != nil {
		return func(context.Context) (*history.Task, selection, error) { return nil, selection{}, err }
	}
	picker := history.NewPicker(w, picks)
	return func(ctx context.Context) (*history.Task, selection, error) {
		t, chosen, err := picker.Task(ctx)
		if err != nil {
			return nil, selection{}, err
		}
		sel := selection{what: req.Scope.what()}
		where := req.Scope.Where
		if call := req.Scope.Call; call != nil {
			chosen = call.own(chosen)
		}
		for _, e := range chosen {
			if e.Undone || e.Source == message.Rollback || where != nil && e.IsRevert() != (where.Source == message.Revert) {
				continue
			}
			sel.entries = append(sel.entries, e)
		}
		if req.Scope.Call != nil || where != nil && where.Source == "" { // a source names its entries
			sel.leave(req)
		}
		return t, sel, nil
	}
}

// notRevertible refuses what a workspace began with, and what the server itself
// has taken back.
func notRevertible(sc Scope) error {
	source := message.Source("")
	if sc.Commit != nil {
		source = sc.Commit.Source
	} else if sc.Where != nil {
		source = sc.Where.Source
	}
	switch source {
	case message.Baseline:
		return errs.New(errs.Conflict, "not_revertible", "The baseline is the state that the workspace began with; it cannot be reverted.")
	case message.Rollback:
		return errs.New(errs.Conflict, "not_revertible", "A rollback takes back a change that the disk refused; it cannot be reverted.")
	}
	return nil
}

// what names the scope in the commit's summary line.
func (sc Scope) what() string {
	if sc.Commit != nil {
		return "commit " + sc.Commit.ID
	}
	if sc.Call != nil {
		return "call " + sc.Call.ID
	}
	x := sc.Where
	words := []string{"changes"}
	if x.Source != "" {
		words = append(words, "of source", string(x.Source))
	}
	if x.Actor != "" {
		words = append(words, "by", x.Actor)
	}
	if x.Agent != "" {
		words = append(words, "by agent", x.Agent)
	}
	if !x.Since.IsZero() {
		words = append(words, "since", x.Since.UTC().Format(time.RFC3339Nano))
	}
	if !x.Until.IsZero() {
		words = append(words, "until", x.Until.UTC().Format(time.RFC3339Nano))
	}
	for i, p := range x.Paths {
		switch i {
		case 0:
			words = append(words, "in")
		case 4:
			return strings.Join(append(words, "…"), " ")
		}
		words = append(words, message.QuotePath(p))
	}
	return strings.Join(words, " ")
}

// picks gives the condition in terms of history.
func (x *Where) picks(st *gitstore.Store) history.Picks {
	agents := make(map[string]bool) // by task
	return history.Picks{
		Record: func(r *gitstore.Record) bool {
			// A record's time is in whole seconds.
			return (x.Source == "" || r.Source == x.Source) &&
				(x.Since.IsZero() || r.WhenUnix >= x.Since.Unix()) && (x.Until.IsZero() || r.WhenUnix <= x.Until.Unix())
		},
		Entry: func(e *workspace.ChangeEntry) bool {
			switch {
			case x.Actor != "" && e.Actor != x.Actor,
				!x.Since.IsZero() && e.When.Before(x.Since),
				!x.Until.IsZero() && !e.When.Before(x.Until),
				len(x.Paths) > 0 && !slices.ContainsFunc(x.Paths, func(p string) bool { return touches(e, p) }):
				return false
			case x.Agent == "" || e.Actor == x.Agent:
				return true
			case e.TaskID == "":
				return false
			}
			is, known := agents[e.TaskID]
			if !known {
				t, ok := st.Task(e.TaskID)
				is = ok && agentOf(t.Info.Metadata) == x.Agent
				agents[e.TaskID] = is
			}
			return is
		},
	}
}

// touches reports whether an entry is about a path or something under it.
func touches(e *workspace.ChangeEntry, path string) bool {
	for _, name := range []string{e.Path, e.NewPath} {
		if name = trimSlash(name); name != "" && (name == path || under(name, path)) {
			return true
		}
	}
	return false
}

// agentOf is the agent that a task's metadata names, empty if it names none.
func agentOf(metadata json.RawMessage) string {
	var m struct {
		Agent string `json:"agent"`
	}
	if json.Unmarshal(metadata, &m) != nil {
		return ""
	}
	return m.Agent
}
