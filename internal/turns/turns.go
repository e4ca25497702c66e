// Package turns groups the calls of a workspace to agents' turns, and says from
// history which of them are undone, and which undo can be redone. It reads GET
// /calls and the workspace's log, and keeps nothing itself: an undo is a revert
// whose subtask has the prefix UndoPrefix.
package turns

import (
	"cmp"
	"context"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"umbra/internal/client"
)

// UndoPrefix begins the subtask of each commit that an undo made. All commits of
// one undo have the same subtask.
const UndoPrefix = "umbra-undo-"

// NewUndo returns the subtask of an undo that begins now.
func NewUndo(now time.Time) string { return UndoPrefix + strconv.FormatInt(now.UnixNano(), 36) }

// Call is one of GET /calls.
type Call struct {
	ID        string     `json:"call_id"`
	Task      string     `json:"task_id"`
	Subtask   *string    `json:"subtask_id"`
	Workspace string     `json:"workspace_id"`
	Agent     *string    `json:"agent"`
	Session   *string    `json:"agent_session"`
	Prompt    *string    `json:"prompt_id"`
	Status    string     `json:"status"`
	From      uint64     `json:"from_seq"`
	Begun     time.Time  `json:"begun"`
	Ended     *time.Time `json:"ended"`
}

// Entry is an entry of the workspace's log, as far as turns need it.
type Entry struct {
	ID        *uint64   `json:"id"`
	Seq       uint64    `json:"seq"`
	Task      *string   `json:"task_id"`
	Subtask   *string   `json:"subtask_id"`
	Operation string    `json:"operation"`
	Path      string    `json:"path"`
	Encoding  string    `json:"path_encoding"`
	NewPath   *string   `json:"new_path"`
	Commit    string    `json:"commit"`
	Source    string    `json:"source"`
	Reverts   []*uint64 `json:"reverts"`
	Refs      []struct {
		Task *string `json:"task_id"`
		ID   uint64  `json:"id"`
	} `json:"reverts_entries"`
	Call      *string  `json:"call_id"`
	Certainty *string  `json:"certainty"`
	Claimants []string `json:"claimants"`
}

// ref names an entry: by its task and ID, or without a task by its Seq.
type ref struct {
	task string
	id   uint64
}

func (e *Entry) ref() ref {
	if e.Task == nil || e.ID == nil {
		return ref{id: e.Seq}
	}
	return ref{*e.Task, *e.ID}
}

// undoes lists the entries that e undoes.
func (e *Entry) undoes() []ref {
	var list []ref
	if len(e.Refs) > 0 {
		for _, r := range e.Refs {
			list = append(list, ref{deref(r.Task), r.ID})
		}
		return list
	}
	for _, id := range e.Reverts {
		if id != nil {
			list = append(list, ref{deref(e.Task), *id})
		}
	}
	return list
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// File is a file that a turn changed.
type File struct {
	Path      string `json:"path"`
	Encoding  string `json:"path_encoding,omitempty"`
	Operation string `json:"operation"` // of the turn's last change to it
	Certainty string `json:"certainty"`
}

// Turn is what one agent did for one prompt; of a sub-agent, all that it did.
type Turn struct {
	Agent     *string    `json:"agent"`
	Session   *string    `json:"agent_session"`
	Task      string     `json:"task_id"`
	Subtask   *string    `json:"subtask_id"`
	Prompt    *string    `json:"prompt_id"`
	Began     time.Time  `json:"began"`
	Ended     *time.Time `json:"ended"` // nil while a call is open
	Files     []File     `json:"files"`
	Certainty *string    `json:"certainty"` // the weakest of its files'; nil without files
	Undone    bool       `json:"undone"`
	Calls     []string   `json:"calls"` // newest first

	// Whole reports that all of the turn's calls are read.
	Whole bool `json:"-"`

	effect map[string]bool // calls with changes that are in effect
}

// InEffect lists the turn's calls with changes that are not undone, newest first.
func (t *Turn) InEffect() []string {
	return slices.DeleteFunc(slices.Clone(t.Calls), func(id string) bool { return !t.effect[id] })
}

// Undo is one undo that is in effect.
type Undo struct {
	Name    string   `json:"undo"`    // its subtask
	Commits []string `json:"commits"` // in effect, newest first

	tasks []string // of the commits; "" where one belongs to none
}

// Owners lists the tasks of Commits, "" where one belongs to none. A redo that belongs
// to the task of the undo is shown by the task.
func (u *Undo) Owners() []string { return u.tasks }

// add notes the commit of an entry.
func (u *Undo) add(e *Entry) {
	if !slices.Contains(u.Commits, e.Commit) {
		u.Commits, u.tasks = append(u.Commits, e.Commit), append(u.tasks, deref(e.Task))
	}
}

// weakest orders certainties.
var weakest = []string{"shared", "window", "declared", "exact"}

// History is the turns and undos of a workspace.
type History struct {
	Turns []*Turn // newest first
	Undos []Undo  // newest first; what was redone is left out
}

// page is how many calls are read at once.
const page = 200

// Loader reads the history of a workspace from its newest call back, as far as it is
// asked to.
type Loader struct {
	ctx       context.Context
	client    *client.Client
	workspace string
	after     string // where the next page of calls begins
	done      bool   // all calls have been read
	calls     []Call
	older     []Call       // of turns in calls, read before their page
	whole     map[key]bool // turns of which all calls are read
	entries   []Entry
	oldest    uint64 // number of the commit before the oldest call
	log       string // where the next page of the log begins
	logged    bool   // the log has been read to its end
}

// key distinguishes turns.
type key struct{ task, subtask, session string }

func (c *Call) key() key { return key{c.Task, deref(c.Subtask), deref(c.Session)} }

// NewLoader returns a Loader that has read nothing.
func NewLoader(ctx context.Context, c *client.Client, workspace string) *Loader {
	return &Loader{ctx: ctx, client: c, workspace: workspace, whole: map[key]bool{}, oldest: math.MaxUint64}
}

// Turns returns the history back to the newest n turns, which are whole, and some more
// that may lack calls; with 0 all of it. more reports that there are older turns.
func (l *Loader) Turns(n int) (h *History, more bool, err error) {
	seen := map[key]bool{}
	for _, c := range l.calls {
		seen[c.key()] = true
	}
	for !l.done && (n == 0 || len(seen) <= n) {
		list, next, err := l.page(url.Values{"workspace_id": {l.workspace}}, l.after)
		if err != nil {
			return nil, false, err
		}
		l.after, l.done = next, next == ""
		for _, c := range list {
			seen[c.key()] = true
			l.oldest = min(l.oldest, c.From)
		}
		l.calls = append(l.calls, list...)
	}
	if !l.done {
		if err := l.complete(n); err != nil {
			return nil, false, err
		}
	}
	if err := l.readLog(); err != nil {
		return nil, false, err
	}
	// A call that was read for its turn may be on a page that was read later.
	read := make(map[string]bool, len(l.calls))
	for _, c := range l.calls {
		read[c.ID] = true
	}
	h = build(slices.Concat(l.calls, slices.DeleteFunc(slices.Clone(l.older), func(c Call) bool { return read[c.ID] })), l.entries)
	for _, t := range h.Turns {
		t.Whole = l.done || l.whole[key{t.Task, deref(t.Subtask), deref(t.Session)}]
	}
	return h, !l.done || n > 0 && len(h.Turns) > n, nil
}

// complete reads the calls of the newest n turns that are older than those of the pages
// that were read.
func (l *Loader) complete(n int) error {
	var newest []key
	read := map[string]bool{}
	for _, c := range l.calls {
		if k := c.key(); len(newest) < n && !slices.Contains(newest, k) {
			newest = append(newest, k)
		}
		read[c.ID] = true
	}
	for _, k := range newest {
		if l.whole[k] {
			continue
		}
		q := url.Values{"workspace_id": {l.workspace}, "task_id": {k.task}}
		if k.subtask != "" {
			q.Set("subtask_id", k.subtask)
		}
		for after := ""; ; {
			list, next, err := l.page(q, after)
			if err != nil {
				return err
			}
			for _, c := range list {
				if c.key() == k && !read[c.ID] {
					l.older = append(l.older, c)
					l.oldest = min(l.oldest, c.From)
				}
			}
			if after = next; after == "" {
				break
			}
		}
		l.whole[k] = true
	}
	return nil
}

// page reads some calls.
func (l *Loader) page(q url.Values, after string) (list []Call, next string, err error) {
	var answer struct {
		Calls []Call `json:"calls"`
		Next  string `json:"next"`
	}
	q.Set("limit", strconv.Itoa(page))
	if err := l.get("/calls", q, after, &answer); err != nil {
		return nil, "", err
	}
	return answer.Calls, answer.Next, nil
}

// readLog reads the log back to the oldest call that was read.
func (l *Loader) readLog() error {
	for !l.logged && len(l.calls) > 0 && (len(l.entries) == 0 || l.entries[len(l.entries)-1].Seq > l.oldest) {
		var answer struct {
			Entries []Entry `json:"entries"`
			Next    string  `json:"next"`
		}
		if err := l.get(client.Path("workspaces", l.workspace, "log"), url.Values{"limit": {"1000"}}, l.log, &answer); err != nil {
			return err
		}
		l.entries = append(l.entries, answer.Entries...)
		l.log, l.logged = answer.Next, answer.Next == ""
	}
	return nil
}

func (l *Loader) get(path string, q url.Values, after string, answer any) error {
	if after != "" {
		q.Set("after", after)
	}
	_, err := l.client.JSON(l.ctx, client.Request{Path: path, Query: q}, answer)
	return err
}

// Load reads the history of a workspace back to its newest n turns, or with 0 all of
// it, and reports whether there is more.
func Load(ctx context.Context, c *client.Client, workspace string, n int) (h *History, more bool, err error) {
	h, more, err = NewLoader(ctx, c, workspace).Turns(n)
	if err == nil && n > 0 && len(h.Turns) > n {
		h.Turns = h.Turns[:n]
	}
	return h, more, err
}

// apart is how many entries of other undos may be between two of one undo.
const apart = 1000

// LastUndo returns the newest undo of a workspace that is in effect; nil if there is
// none. It reads the workspace's reverts back to that undo.
func LastUndo(ctx context.Context, c *client.Client, workspace string) (*Undo, error) {
	undone := map[ref]bool{}
	var found *Undo
	others := 0
	for item, err := range client.Pages[Entry](ctx, c, client.Path("workspaces", workspace, "log"), "entries", url.Values{"source": {"revert"}}, 1000) {
		if err != nil {
			return nil, err
		}
		e := &item.Value
		if undone[e.ref()] {
			continue
		}
		for _, r := range e.undoes() {
			undone[r] = true
		}
		name := deref(e.Subtask)
		if !strings.HasPrefix(name, UndoPrefix) {
			continue
		}
		if found == nil {
			found = &Undo{Name: name}
		}
		if name == found.Name {
			found.add(e)
			others = 0
		} else if others++; others == apart {
			break
		}
	}
	return found, nil
}

// build makes the history of calls and log entries, both newest first. Their times
// decide nothing: the clock may have been set.
func build(calls []Call, entries []Entry) *History {
	h := &History{}
	byCall := map[string]*Turn{}
	turns := map[key]*Turn{}
	for _, c := range calls {
		k := c.key()
		t := turns[k]
		if t == nil {
			t = &Turn{Agent: c.Agent, Session: c.Session, Task: c.Task, Subtask: c.Subtask, Prompt: c.Prompt, Began: c.Begun, Ended: c.Ended,
				Files: []File{}, effect: map[string]bool{}}
			turns[k] = t
			h.Turns = append(h.Turns, t)
		}
		t.Calls = append(t.Calls, c.ID)
		if c.Begun.Before(t.Began) {
			t.Began = c.Begun
		}
		if c.Ended == nil || t.Ended == nil {
			t.Ended = nil
		} else if c.Ended.After(*t.Ended) {
			t.Ended = c.Ended
		}
		byCall[c.ID] = t
	}
	undone := map[ref]bool{}
	undos := map[string]int{}
	// The entries of each turn that are in effect, and all, its own and shared ones.
	type counts struct{ own, ownAll, shared int }
	count := map[*Turn]counts{}
	for i := range entries {
		e := &entries[i]
		inEffect := !undone[e.ref()]
		if inEffect {
			for _, r := range e.undoes() {
				undone[r] = true
			}
		}
		if name := deref(e.Subtask); e.Source == "revert" && strings.HasPrefix(name, UndoPrefix) && inEffect {
			n, ok := undos[name]
			if !ok {
				n = len(h.Undos)
				undos[name] = n
				h.Undos = append(h.Undos, Undo{Name: name})
			}
			h.Undos[n].add(e)
		}
		ids := e.Claimants
		if e.Call != nil {
			ids = []string{*e.Call}
		}
		for n, id := range ids {
			t := byCall[id]
			if t == nil || slices.ContainsFunc(ids[:n], func(had string) bool { return byCall[had] == t }) {
				continue
			}
			t.add(e)
			k := count[t]
			if e.Call != nil {
				k.ownAll++
			}
			if inEffect {
				t.effect[id] = true
				if e.Call != nil {
					k.own++
				} else {
					k.shared++
				}
			}
			count[t] = k
		}
	}
	for _, t := range h.Turns {
		// What is shared is left by an undo that does not ask for it.
		k := count[t]
		t.Undone = len(t.Files) > 0 && k.own == 0 && (k.ownAll > 0 || k.shared == 0)
		slices.SortFunc(t.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	}
	return h
}

// add notes an entry; entries come newest first.
func (t *Turn) add(e *Entry) {
	certainty := deref(e.Certainty)
	if e.Call == nil {
		certainty = "shared"
	}
	if t.Certainty == nil || slices.Index(weakest, certainty) < slices.Index(weakest, *t.Certainty) {
		t.Certainty = &certainty
	}
	path := e.Path
	if e.NewPath != nil && *e.NewPath != "" {
		path = *e.NewPath
	}
	for i := range t.Files {
		if f := &t.Files[i]; f.Path == path && f.Encoding == e.Encoding {
			if slices.Index(weakest, certainty) < slices.Index(weakest, f.Certainty) {
				f.Certainty = certainty
			}
			return
		}
	}
	t.Files = append(t.Files, File{Path: path, Encoding: e.Encoding, Operation: e.Operation, Certainty: certainty})
}

// Filter selects turns; empty fields select all.
type Filter struct {
	Agent, Session string
}

// Candidates lists the turns that an undo may take back, newest first, as far as the
// turns are whole.
func (h *History) Candidates(f Filter) []*Turn {
	var out []*Turn
	for _, t := range h.Turns {
		if !t.Whole {
			break
		}
		if len(t.effect) > 0 && !t.Undone && (f.Agent == "" || deref(t.Agent) == f.Agent) && (f.Session == "" || deref(t.Session) == f.Session) {
			out = append(out, t)
		}
	}
	return out
}

// Routes lists the revert routes that take back a turn, to be called in order.
func (t *Turn) Routes() []string {
	if t.Subtask != nil && *t.Subtask != "" {
		return []string{client.Path("tasks", t.Task, "subtasks", *t.Subtask, "revert")}
	}
	var out []string
	for _, id := range t.InEffect() {
		out = append(out, client.Path("calls", id, "revert"))
	}
	return out
}

// UndoneAt returns when an undo of this name was made.
func UndoneAt(name string) (time.Time, bool) {
	digits, ok := strings.CutPrefix(name, UndoPrefix)
	n, err := strconv.ParseInt(digits, 36, 64)
	return time.Unix(0, n), ok && err == nil
}
