package toolset

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"umbra/internal/blame"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/textsearch"
	"umbra/internal/toolset/tool"
	"umbra/internal/workspaces"
)

// Options of a Service. State, Tasks, Workspaces and History are needed.
type Options struct {
	State      *state.DB
	Tasks      *task.Service
	Workspaces *workspaces.Manager
	History    *history.Cache
	Blame      *blame.Cache
	// Default is what the default toolset mounts; none: it is empty.
	Default []Spec
	// Extra are tools in addition to those of package tool.
	Extra []Extra
	// Wait is how long a call waits while its workspace moves between servers.
	Wait time.Duration
	Log  *slog.Logger
	Now  func() time.Time // of leases and idempotency keys
}

// Extra is a tool that is carried out elsewhere.
type Extra struct {
	Tool tool.Tool
	// Run carries a call out; the arguments fit the schema. failed says that
	// the text reports a failure.
	Run func(ctx context.Context, c Call, args tool.Args) (text string, failed bool, err error)
}

// DefaultID is the default toolset's id.
const DefaultID = "default"

// Service is all toolsets of a data directory, or of a cluster. Its methods may be
// called concurrently. A toolset is read by its key at each call; in memory is what
// was made of some records, to serve again as long as they are the same.
type Service struct {
	o       Options
	tools   []tool.Tool
	started time.Time

	making      sync.Mutex  // one toolset is made or changed at a time
	defaultMade atomic.Bool // since the start

	mu       sync.RWMutex
	ready    map[string]*live
	used     map[string]time.Time // last uses of leased toolsets that are not kept yet
	shortest time.Duration        // of the leases that were seen since the start
	watchers map[int]func(id string)
	watches  int
	heard    map[string]uint64 // toolset and task to the commit up to which the model heard of rejections

	searching  textsearch.Slots // searches in files at once
	clientUsed sync.Map         // toolset and client to the time.Time of its last call

	woken   chan struct{} // a lease was seen that is shorter than all before
	leasing sync.WaitGroup
	ending  context.Context
	end     context.CancelFunc
}

// New settles what a stop left half done, and begins to watch over leases. The caller
// calls Close.
func New(ctx context.Context, o Options) (*Service, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{o: o, tools: tool.All(), started: o.Now(), ready: map[string]*live{}, used: map[string]time.Time{}, shortest: maxLook, woken: make(chan struct{}, 1),
		searching: textsearch.NewSlots(), watchers: map[int]func(string){}}
	s.ending, s.end = context.WithCancel(context.WithoutCancel(ctx))
	for i := range o.Extra {
		s.tools = append(s.tools, o.Extra[i].Tool)
	}
	if _, err := s.check(o.Default, Who{}); err != nil {
		return nil, err
	}
	if err := records.Index(o.State); err != nil {
		return nil, err
	}
	if !o.State.Shared() {
		s.settleAll(ctx, 0)
	}
	s.leasing.Go(s.watchLeases)
	if o.State.Shared() {
		s.leasing.Go(s.followOthers)
	}
	return s, nil
}

// Toolset is one as callers see it.
type Toolset struct {
	ID      string
	TaskID  string // the one that was given, else the first mount's; empty without mounts
	Mounts  []Mount
	Tasks   map[string]string // by prefix
	Tools   []tool.Tool
	Map     string // the file system map
	Created time.Time
	Idle    time.Duration // unused for so long it goes; 0: it stays
}

// view returns the view of a toolset; false if a workspace of it is gone, or
// the caller may not see it.
func (s *Service) view(l *live, sees task.Sees) (Toolset, bool) {
	if !s.visible(l, sees) {
		return Toolset{}, false
	}
	t := Toolset{ID: l.rec.ID, TaskID: l.rec.Task, Mounts: slices.Clone(l.rec.Mounts), Tasks: make(map[string]string, len(l.rec.Mounts)),
		Tools: l.tools, Map: l.table.Map(), Created: l.rec.Created, Idle: l.rec.Idle}
	for i := range t.Mounts {
		m := &t.Mounts[i]
		if id := l.rec.taskOn(m.Workspace); id != "" || !l.rec.Lazy {
			t.Tasks[m.Prefix] = id
		}
		if t.TaskID == "" {
			t.TaskID = t.Tasks[m.Prefix]
		}
		if ws, ok := s.o.Workspaces.Record(m.Workspace); ok {
			m.Root = ws.Root // it may have been bound to another place
		}
	}
	return t, true
}

func (s *Service) visible(l *live, sees task.Sees) bool {
	if l == nil || l.rec.Hidden {
		return false
	}
	for i := range l.rec.Mounts {
		ws, ok := s.o.Workspaces.Record(l.rec.Mounts[i].Workspace)
		if !ok || sees != nil && !sees(ws.Root) {
			return false
		}
	}
	return true
}

// find gives a toolset that the caller sees. NotFound "toolset_not_found".
func (s *Service) find(id string, sees task.Sees) (*live, error) {
	l, err := s.lookup(id)
	if err != nil {
		return nil, err
	}
	if !s.visible(l, sees) {
		return nil, notFound()
	}
	s.use(l)
	return l, nil
}

// Get gives a toolset. NotFound "toolset_not_found" if there is none that the
// caller sees.
func (s *Service) Get(id string, sees task.Sees) (Toolset, error) {
	l, err := s.find(id, sees)
	if err != nil {
		return Toolset{}, err
	}
	t, ok := s.view(l, sees)
	if !ok {
		return Toolset{}, notFound()
	}
	return t, nil
}

// DirectoryAt is workspaces.Manager's.
func (s *Service) DirectoryAt(path string) (id, server string, err error) {
	return s.o.Workspaces.DirectoryAt(path)
}

// Where returns the workspace whose server is to carry out a toolset's calls: of several
// the first with a directory, which stays where it is, else the first; "" if there is none.
func (s *Service) Where(id string) (workspaceID string) {
	workspaceID, _ = s.Place(id, "", nil)
	return workspaceID
}

func (s *Service) whereOf(l *live) (workspaceID string) {
	for i := range l.rec.Mounts {
		ws := l.rec.Mounts[i].Workspace
		if r, ok := s.o.Workspaces.Record(ws); ok && r.Server != "" {
			return ws
		}
		workspaceID = cmp.Or(workspaceID, ws)
	}
	return workspaceID
}

// Place is Where for one call: the workspace that the call's path is in decides, if it has
// one. extra says that the tool is of another package, and no workspace's.
func (s *Service) Place(id, name string, args json.RawMessage) (workspaceID string, extra bool) {
	extra = slices.ContainsFunc(s.o.Extra, func(e Extra) bool { return e.Tool.Name == name })
	l, err := s.find(id, nil)
	if err != nil {
		return "", extra
	}
	var at struct{ Path, From string }
	_ = json.Unmarshal(args, &at) // the call itself reports what is wrong with them
	if path := cmp.Or(at.Path, at.From); path != "" && !extra {
		r := &run{s: s, l: l}
		if clean, err := r.clean(path); err == nil {
			if i, _, ok := l.table.Lookup(clean); ok {
				return l.rec.Mounts[i].Workspace, false
			}
		}
	}
	return s.whereOf(l), extra
}

// Visible gives nil if the caller may know of a toolset, or if there is none.
func (s *Service) Visible(id string, sees task.Sees) error {
	l, err := s.lookup(id)
	if err != nil {
		return err
	}
	if l != nil && !s.visible(l, sees) {
		return notFound()
	}
	return nil
}

// List gives the toolsets that the caller sees, the oldest first.
func (s *Service) List(sees task.Sees) ([]Toolset, error) {
	all, err := state.All[Record](s.o.State, bucket)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	slices.SortFunc(all, func(a, b Record) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	out := make([]Toolset, 0, len(all))
	for _, r := range all {
		if t, ok := s.view(s.liveOf(r, nil), sees); ok {
			out = append(out, t)
		}
	}
	return out, nil
}

// Watch calls fn after each change of a toolset's mounts, and when one is gone.
// fn must not block. stop ends it.
func (s *Service) Watch(fn func(id string)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches++
	n := s.watches
	s.watchers[n] = fn
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, n)
	}
}

func (s *Service) changed(id string) {
	s.mu.RLock()
	list := make([]func(string), 0, len(s.watchers))
	for _, fn := range s.watchers {
		list = append(list, fn)
	}
	s.mu.RUnlock()
	for _, fn := range list {
		fn(id)
	}
}
