package toolset

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/toolset/mount"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// Client is who calls by MCP. Two clients never share a task of a lazy toolset.
type Client struct {
	Name    string // as it names itself (clientInfo), shortened to what an actor may be
	Session string // the session's id; empty in revisions without sessions
	Token   string // the name of the caller's token; empty without tokens
}

// key is the name of the client in a record: its session, where it has one.
func (c Client) key() string {
	if c.Session != "" {
		c.Name = ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", c.Name, c.Session, c.Token))
	return hex.EncodeToString(sum[:12])
}

// Served is a client of a lazy toolset that has changed something.
type Served struct {
	Name  string            `json:"name,omitempty"`
	Tasks map[string]string `json:"tasks"` // by workspace
	Made  time.Time         `json:"made"`  // when its newest task was made
	// Used is when the client called last, as far as other servers know.
	Used time.Time `json:"used,omitzero"`
}

// clientIdle is how long after a client's last call its tasks are completed.
const clientIdle = 24 * time.Hour

// mounts reports whether a workspace is mounted.
func (r *Record) mounts(ws string) bool {
	return slices.ContainsFunc(r.Mounts, func(m Mount) bool { return m.Workspace == ws })
}

// taskOn gives the task that the toolset has on a workspace; of a lazy one that
// of the client which came last. Empty: none.
func (r *Record) taskOn(ws string) string {
	if id := r.Tasks[ws]; id != "" {
		return id
	}
	id, made := "", time.Time{}
	for _, c := range r.Clients {
		if t := c.Tasks[ws]; t != "" && (id == "" || c.Made.After(made) || c.Made.Equal(made) && t > id) {
			id, made = t, c.Made
		}
	}
	return id
}

// without gives clients that have no task on a workspace any more.
func without(clients map[string]Served, ws string) map[string]Served {
	out := make(map[string]Served, len(clients))
	for key, c := range clients {
		c.Tasks = maps.Clone(c.Tasks)
		if delete(c.Tasks, ws); len(c.Tasks) > 0 {
			out[key] = c
		}
	}
	return out
}

// openMounts opens what the mounts lead to, with a baseline where it was no
// workspace yet, and makes no task.
func (s *Service) openMounts(ctx context.Context, r *Record) error {
	for i := range r.Mounts {
		m := &r.Mounts[i]
		if m.Workspace != "" {
			continue
		}
		var w *workspace.Workspace
		var err error
		if m.Kind == mount.Virtual {
			w, err = s.o.Workspaces.OpenVirtual(ctx, m.Namespace)
		} else {
			w, _, err = s.o.Workspaces.Open(ctx, m.Root, workspaces.OpenOptions{})
		}
		if err != nil {
			return withField(err, fmt.Sprintf("mounts[%d].store", i))
		}
		m.Workspace = w.ID()
		w.Release()
	}
	return nil
}

// ownTask gives the caller's task on a workspace; empty where a lazy toolset has
// made none for it yet, or what it made has ended.
func (r *run) ownTask(ws string) string {
	if !r.l.rec.Lazy {
		return r.l.rec.Tasks[ws]
	}
	if id := r.made[ws]; id != "" {
		return id
	}
	return r.l.rec.Clients[r.c.Client.key()].Tasks[ws]
}

// ended reports whether a client has ended or deleted a task; a client that goes
// on then gets another one.
func (s *Service) ended(id, ws string) bool {
	code := errs.CodeOf(s.o.Tasks.Writable(id, ws))
	return code == "task_ended" || code == "task_not_found"
}

// makeClientTask makes a client's task on a mount's workspace, unless another
// call of the client has. The record names the task before it is made, so that
// none is left that is never completed.
func (s *Service) makeClientTask(ctx context.Context, id string, i int, c Call) (string, error) {
	s.making.Lock()
	defer s.making.Unlock()
	l, err := s.find(id, c.Sees)
	if err != nil {
		return "", err
	}
	r := l.rec
	if i >= len(r.Mounts) {
		return "", errs.New(errs.Conflict, "toolset_changed", "The mounts were changed meanwhile.")
	}
	m := r.Mounts[i]
	key := c.Client.key()
	if has := r.Clients[key].Tasks[m.Workspace]; has != "" && !s.ended(has, m.Workspace) {
		return has, nil
	}
	root := m.Root
	if ws, ok := s.o.Workspaces.Record(m.Workspace); ok {
		root = ws.Root // it may have been bound to another place
	}
	name := cmp.Or(c.Client.Name, "an MCP client")
	var made string
	if _, err := s.update(r.ID, func(r *Record) error {
		made = r.plan(1, s.o.Now())[0]
		return nil
	}); err != nil {
		return "", err
	}
	ref, err := s.o.Tasks.Create(ctx, task.CreateOptions{ID: made, Goal: name + " in " + m.Prefix, MadeBy: "toolset " + r.ID, Metadata: metadata(r.ID),
		Actor: c.Actor, RequestID: c.RequestID, Sees: c.Sees, Root: root, Virtual: m.Kind == mount.Virtual, Namespace: m.Namespace})
	if err != nil {
		if serr := s.settle(context.WithoutCancel(ctx), r.ID, []string{made}, false, c.RequestID); serr != nil {
			s.o.Log.Warn("a client's task that was not made could not be settled", "toolset", r.ID, "error", serr)
		}
		return "", err
	}
	ref.Release()
	now := s.o.Now().UTC()
	_, err = s.update(r.ID, func(r *Record) error {
		served := Served{Name: c.Client.Name, Tasks: map[string]string{}, Made: now, Used: now}
		maps.Copy(served.Tasks, r.Clients[key].Tasks)
		served.Tasks[m.Workspace] = made
		if r.Clients == nil {
			r.Clients = map[string]Served{}
		}
		r.Clients[key] = served
		r.tighten([]string{made})
		return nil
	})
	return made, err
}

// endClient completes the tasks of a client that has left.
func (s *Service) endClient(ctx context.Context, id, key, requestID string) error {
	s.making.Lock()
	defer s.making.Unlock()
	l, err := s.lookup(id)
	if err != nil || l == nil || len(l.rec.Clients[key].Tasks) == 0 {
		return err
	}
	var tasks []string
	if _, err := s.update(id, func(r *Record) error {
		tasks = nil
		for _, t := range r.Clients[key].Tasks {
			tasks = append(tasks, t)
		}
		delete(r.Clients, key)
		r.loosen(s.o.Now(), tasks...)
		return nil
	}); err != nil {
		return err
	}
	s.clientUsed.Delete(id + "/" + key)
	return s.settle(ctx, id, tasks, false, requestID)
}

// endClients completes the tasks of the clients that have not called for
// clientIdle.
func (s *Service) endClients(ctx context.Context) {
	ids, err := records.IDs(s.o.State, serving, 0, 0, "")
	if err != nil {
		s.o.Log.Warn("the clients of toolsets could not be read", "error", err)
	}
	for _, id := range ids {
		l, err := s.lookup(id)
		if err != nil || l == nil || ctx.Err() != nil {
			continue
		}
		for key, c := range l.rec.Clients {
			if !s.rests(id, key, c) {
				continue
			}
			if err := s.endClient(ctx, id, key, ""); err != nil {
				s.o.Log.Warn("the tasks of a client that has left could not be completed", "toolset", id, "error", err)
			}
		}
	}
}

// useClient notes that a client of a lazy toolset has called; its record says so to
// other servers within clientsEvery.
func (s *Service) useClient(l *live, key string) {
	now := s.o.Now()
	id := l.rec.ID
	s.clientUsed.Store(id+"/"+key, now)
	c, served := l.rec.Clients[key]
	if !served || !s.o.State.Shared() || now.Sub(c.Used) < clientsEvery {
		return
	}
	if _, err := s.update(id, func(r *Record) error {
		if c, served := r.Clients[key]; served {
			c.Used = now.UTC()
			r.Clients[key] = c
		}
		return nil
	}); err != nil {
		s.o.Log.Warn("the last call of a client is not kept", "toolset", id, "error", err)
	}
}

// rests reports whether a client has not called for clientIdle. A start begins
// the time again, as it does for leases.
func (s *Service) rests(id, key string, c Served) bool {
	now := s.o.Now()
	used, known := s.clientUsed.LoadOrStore(id+"/"+key, now)
	return known && now.Sub(used.(time.Time)) >= clientIdle && now.Sub(c.Used) >= clientIdle
}
