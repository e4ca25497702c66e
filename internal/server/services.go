package server

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"

	"umbra/config"
	"umbra/gitstore"
	"umbra/internal/access"
	"umbra/internal/blame"
	"umbra/internal/calls"
	"umbra/internal/datadir"
	"umbra/internal/exec"
	"umbra/internal/exitcode"
	"umbra/internal/fork"
	"umbra/internal/history"
	"umbra/internal/person"
	"umbra/internal/policy"
	"umbra/internal/revert"
	"umbra/internal/review"
	"umbra/internal/room"
	"umbra/internal/script"
	"umbra/internal/session"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/toolset"
	"umbra/internal/toolset/mount"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// services are what the dialects build on.
type services struct {
	workspaces *workspaces.Manager
	records    workspaces.Records
	tasks      *task.Service
	calls      *calls.Service
	layers     *exec.Service
	forks      *fork.Service
	blame      *blame.Cache
	review     *review.Holder
	sessions   *session.Service
	toolsets   *toolset.Service
	history    *history.Cache
	watcher    workspace.Watcher
	meters     *meters
}

// openServices opens them; each is put onto d to be closed.
func openServices(cfg config.Config, dir *state.Dir, db *state.DB, log *slog.Logger, d *deps) (*services, error) {
	folders := openWatcher(cfg, dir, log, d)
	floor := room.New(dir.Path, int64(cfg.Limits.FreeBytes))
	rules, err := policyOf(cfg.Policy)
	if err != nil {
		return nil, exitcode.Usage(fmt.Errorf("policy.%w", err))
	}
	records, err := datadir.OpenRecords(db)
	if err != nil {
		return nil, err
	}
	opts := workspaces.Options{
		Policy:     rules,
		DataDir:    dir.Path,
		Records:    records,
		Log:        log,
		Limits:     workspace.Limits{CaptureBytes: int64(cfg.Limits.CaptureBytes), CacheBytes: int64(cfg.Limits.CacheBytes)},
		Roots:      canonical(cfg.Workspaces.Roots),
		OwnFolders: ownFolders(cfg.WorkspaceDir, cfg.Output.Dir),
		Watcher:    folders,
		WatchIdle:  cfg.Workspaces.WatchIdle,
		Meter:      d.meters.workspace,
		Store: func(o *gitstore.Options) {
			o.Room, o.MaxHistory, o.Person = floor.Take, int64(cfg.Limits.WorkspaceBytes), person.Name()
			o.MaxUnsealed = int64(cfg.Cluster.UnsealedBytes)
		},
	}
	if db.Shared() {
		adjust := opts.Store
		opts.Store = func(o *gitstore.Options) { adjust(o); marks(db, log, o) }
	}
	if d.node != nil {
		opts.Shared, opts.Server, opts.Physical = d.node, d.node.Name(), cfg.Cluster.Physical
		opts.Foreign = datadir.OfNode
		if opts.SeesSame, err = sameMachine(db, d.node.Name(), cfg.Cluster.Physical, log); err != nil {
			return nil, err
		}
		opts.CacheLimit = cacheLimit(int64(cfg.Cluster.CacheBytes), dir.Path)
		if err := d.node.SettleAdopted(context.Background(), records); err != nil {
			return nil, err
		}
	}
	manager, err := workspaces.NewManager(opts)
	if err != nil {
		return nil, err
	}
	d.workspaces = manager
	if d.node != nil {
		d.node.Attach(manager)
		d.node.PutAside(context.Background())
	}
	cache := history.NewCache()
	manager.SetKeeper(cache.Keep)
	d.closers = append(d.closers, manager.Close)

	callsDir := dir.Join("calls")
	if err := os.MkdirAll(callsDir, 0o700); err != nil {
		return nil, err
	}
	callFiles, err := vfs.OS(callsDir)
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func(context.Context) error { return callFiles.Close() })
	called, err := calls.New(calls.Options{Workspaces: manager, State: db, FS: callFiles, Log: log, TTL: cfg.Calls.TTL,
		RecordCommands: cfg.Calls.RecordCommands == config.RecordHash, Rejected: review.Others, TakeBack: revert.Against(cache)})
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func(context.Context) error { return called.Close() })
	tasksDir := dir.Join("tasks")
	if err := os.MkdirAll(tasksDir, 0o700); err != nil {
		return nil, err
	}
	files, err := vfs.OS(tasksDir)
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func(context.Context) error { return files.Close() })
	taskOpts := task.Options{Workspaces: manager, State: db, FS: files, Dir: tasksDir, Log: log, MaxFile: int64(cfg.Limits.UploadBytes), Room: floor.Take}
	if d.node != nil {
		taskOpts.Objects = d.node.Objects()
	}
	tasks, err := task.New(context.Background(), taskOpts)
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func(context.Context) error { tasks.Close(); return nil })
	called.Attach(tasks)
	layers, err := exec.New(exec.Options{Dir: dir.Join("layers"), Workspaces: manager, Calls: called, Log: log})
	if err != nil {
		return nil, err
	}
	layers.Resume(context.Background())
	lines := blame.NewCache()
	d.closers = append(d.closers, func(context.Context) error { layers.Close(); return nil })
	sessions, err := session.New(context.Background(), session.Options{
		State: db, Tasks: tasks, Workspaces: manager, Idle: cfg.Sessions.Idle, Log: log,
	})
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func(context.Context) error { return sessions.Close() })
	reader := &review.Reader{History: cache, Blame: lines}
	held := review.NewHolder(review.HolderOptions{Reader: reader, Workspaces: manager, State: db, Open: called.OpenOf,
		Always: cfg.Review.Hold, Log: log})
	d.closers = append(d.closers, func(context.Context) error { held.Close(); return nil })
	called.SetIdle(held.Idle)
	if err := held.Start(); err != nil {
		return nil, err
	}
	forks := fork.New(fork.Options{Workspaces: manager, Tasks: tasks, Layers: layers, Review: reader, State: db, Room: floor.Take, Log: log})
	d.closers = append(d.closers, func(context.Context) error { forks.Close(); return nil })
	return &services{workspaces: manager, records: records, tasks: tasks, calls: called, layers: layers, forks: forks, blame: lines, review: held, sessions: sessions, history: cache, watcher: folders, meters: d.meters}, nil
}

// cacheLimit returns how many bytes of workspaces a node keeps on its disk: what is set,
// or half of what is free at the first call and of what is kept then.
func cacheLimit(set int64, dir string) func(cached int64) int64 {
	var first sync.Once
	return func(cached int64) int64 {
		first.Do(func() {
			if set > 0 {
				return
			}
			free, _, err := room.Free(dir)
			if set = (free + cached) / 2; err != nil {
				set = math.MaxInt64
			}
		})
		return set
	}
}

// policyOf reads the rules of the settings.
func policyOf(c config.Policy) (*policy.Book, error) {
	s := policy.Settings{Protected: c.Protected, MaxFileBytes: int64(c.MaxFileBytes), Secrets: policy.Level(c.Secrets), After: policy.After(c.After)}
	for _, p := range c.Places {
		x := policy.Place{Workspace: p.Workspace, Settings: policy.Settings{Protected: p.Protected, MaxFileBytes: int64(p.MaxFileBytes), Secrets: policy.Level(p.Secrets), After: policy.After(p.After)}}
		if p.Root != "" {
			x.Root = access.Canonical(p.Root)
		}
		s.Places = append(s.Places, x)
	}
	return policy.New(s)
}

// openToolsets opens the toolsets, once what their tools run on is there.
func (s *services) openToolsets(cfg config.Config, db *state.DB, runner *script.Service, log *slog.Logger) error {
	var extra []toolset.Extra
	if cfg.MCP.ExecuteScript {
		extra = append(extra, scriptTool(runner))
	}
	var err error
	s.toolsets, err = toolset.New(context.Background(), toolset.Options{
		State: db, Tasks: s.tasks, Workspaces: s.workspaces, History: s.history, Blame: s.blame, Default: defaultMounts(cfg.MCP.Mounts), Extra: extra, Wait: cfg.Cluster.Wait, Log: log,
	})
	return err
}

// ownMount is the default toolset of 'umbra serve DIR' where the settings name
// none: the directory, at its real path.
func ownMount(dir string, log *slog.Logger) []config.MCPMount {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil // opening it says why
	}
	prefix, err := mount.ParsePrefix(filepath.ToSlash(root))
	if err != nil {
		log.Warn("/mcp has no tools: the directory's path cannot be a mount's prefix", "reason", err)
		return nil
	}
	return []config.MCPMount{{Prefix: prefix, Scope: string(mount.ReadWrite), Root: root}}
}

// defaultMounts translates the settings for the default toolset.
func defaultMounts(list []config.MCPMount) []toolset.Spec {
	out := make([]toolset.Spec, len(list))
	for i, m := range list {
		out[i] = toolset.Spec{Prefix: m.Prefix, Scope: m.Scope, Type: "physical", Root: m.Root, Namespace: m.Namespace}
		if len(m.Namespace) > 0 {
			out[i].Type = "virtual"
		}
	}
	return out
}
