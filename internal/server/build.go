package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"

	"umbra/config"
	"umbra/httpapi"
	blameroutes "umbra/httpapi/blame"
	callroutes "umbra/httpapi/calls"
	execroutes "umbra/httpapi/exec"
	"umbra/httpapi/files"
	"umbra/httpapi/gitsmart"
	"umbra/httpapi/mcp"
	reviewroutes "umbra/httpapi/review"
	"umbra/httpapi/scripts"
	"umbra/httpapi/sessions"
	"umbra/httpapi/tasks"
	"umbra/httpapi/toolsets"
	"umbra/httpapi/ui"
	"umbra/httpapi/upkeep"
	workspaceroutes "umbra/httpapi/workspaces"
	"umbra/internal/access"
	"umbra/internal/buildinfo"
	"umbra/internal/datadir"
	execserve "umbra/internal/exec/serve"
	"umbra/internal/node"
	"umbra/internal/review"
	"umbra/internal/state"
	"umbra/internal/workspaces"
)

// deps is the wired server and what is to be closed after it.
type deps struct {
	Server     *httpapi.Server
	workspaces *workspaces.Manager
	tokens     *access.Book
	meters     *meters
	Owner      string                        // lets the owner's own verbs in
	node       *node.Node                    // nil without a cluster
	sayLeft    func(context.Context)         // to other nodes; set with node
	closers    []func(context.Context) error // the last made is closed first
}

// Resume opens the workspaces that were watched when the server stopped, and records what
// changed in them. A server that serves one verb does not: the verb opens what it needs, and
// verify records nothing.
func (d *deps) Resume() { d.workspaces.Resume() }

// Close closes everything, whatever fails; ctx bounds how long a clean state is
// worked for.
func (d *deps) Close(ctx context.Context) error {
	var all error
	for i := len(d.closers) - 1; i >= 0; i-- {
		all = errors.Join(all, d.closers[i](ctx))
	}
	return all
}

// Build puts the layers together, without a cluster.
func Build(cfg config.Config, dir *state.Dir, log *slog.Logger) (d *deps, err error) {
	return build(cfg, dir, nil, log)
}

// build is the one place where the layers are put together. n is nil without a
// cluster.
func build(cfg config.Config, dir *state.Dir, n *node.Node, log *slog.Logger) (d *deps, err error) {
	opened := &deps{node: n}
	d = opened
	if n == nil {
		if err := datadir.CheckSingle(dir.Path); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.Close(context.Background()))
		}
	}()
	db, err := openState(dir, n)
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func(context.Context) error { return db.Close() })
	answers, err := state.OpenAnswers(db, dir.Join("answers.log"))
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func(context.Context) error { return answers.Close() })

	opts := httpOptions(cfg, log)
	if opts.Tokens, err = openTokens(cfg, db, log); err != nil {
		return nil, err
	}
	d.tokens = opts.Tokens
	if db.Shared() {
		followTokens(d.tokens, d)
	}
	opts.Answers = answers
	if d.Owner, err = datadir.NewOwner(dir); err != nil {
		return nil, err
	}
	opts.Owner = sha256.Sum256([]byte(d.Owner))
	if d.meters, err = openMeters(cfg, &opts, log, d); err != nil {
		return nil, err
	}
	s, err := openServices(cfg, dir, db, log, d)
	if err != nil {
		return nil, err
	}
	runner, output, err := openScripts(cfg, s, dir, log, d)
	if err != nil {
		return nil, err
	}
	if err := s.openToolsets(cfg, db, runner, log); err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func(context.Context) error { s.toolsets.Close(); return nil })
	f := openForwarder(cfg, n, s.workspaces, s.records, log, d)
	spoken := mcp.Options{Toolsets: s.toolsets, Node: nameOf(n), Version: buildinfo.Version(), MaxBody: int64(cfg.Limits.WriteBytes)}
	if f != nil {
		opts.Cluster, d.sayLeft, spoken.AtOwner = f, f.SayLeft, f.Call
	}
	protocol := mcp.New(spoken)
	d.closers = append(d.closers, func(context.Context) error { protocol.Close(); return nil })
	programs, pool, err := openPrograms(cfg, s, programOutputOf(output), log, d)
	if err != nil {
		return nil, err
	}
	opts.Processes = pool.Active
	readiness := newReadiness(cfg, dir, s.workspaces)
	opts.Ready, opts.RefsBehind = readiness.ready, readiness.refsBehind
	metricsRoute, err := openMetrics(s, dir, n)
	if err != nil {
		return nil, err
	}
	pages, err := ui.New()
	if err != nil {
		return nil, err
	}
	d.Server, err = httpapi.New(opts, append(dialects(cfg, s),
		&upkeep.GC{Service: retentionOf(cfg, s, db, log, d)},
		pages,
		metricsRoute,
		backups(cfg, dir, backupSource{db, answers, s.workspaces}, n, log),
		purges(s.workspaces, answers, n, f, log),
		&upkeep.Tokens{Book: opts.Tokens, Needed: cfg.CheckReach() != nil},
		protocol,
		programs,
		scripts.New(runner),
		examiner(cfg, dir, s.workspaces, opts.Ready),
	)...)
	return d, err
}

// openState opens the records: the cluster's, or those of the data directory.
func openState(dir *state.Dir, n *node.Node) (*state.DB, error) {
	if n != nil {
		return state.New(n.Records()), nil
	}
	return state.Open(dir.Join("state.db"))
}

// dialects lists the HTTP surfaces besides the frame's own.
func dialects(cfg config.Config, s *services) []httpapi.Dialect {
	return []httpapi.Dialect{
		tasks.New(s.tasks, s.history, tasks.Limits{Write: int64(cfg.Limits.UploadBytes), Batch: int64(cfg.Limits.WriteBytes)}),
		files.New(s.tasks, s.history, int64(cfg.Limits.WriteBytes)),
		sessions.New(s.sessions, s.tasks, s.workspaces, sessions.Limits{Write: int64(cfg.Limits.WriteBytes), Upload: int64(cfg.Limits.UploadBytes)}),
		workspaceroutes.New(s.workspaces, s.tasks, s.forks, s.history),
		blameroutes.New(s.workspaces, s.blame, s.tasks, s.history),
		reviewroutes.New(s.tasks, &review.Reader{History: s.history, Blame: s.blame}, s.review, s.workspaces),
		callDialect(cfg, s),
		commandDialect(cfg, s),
		gitsmart.New(s.workspaces, s.tasks),
		toolsets.New(s.toolsets, int64(cfg.Limits.WriteBytes)),
	}
}

// httpOptions translates the settings for the HTTP side.
func httpOptions(cfg config.Config, log *slog.Logger) httpapi.Options {
	return httpapi.Options{
		Version:        buildinfo.Version(),
		Log:            log,
		Hosts:          cfg.HTTP.Hosts,
		Origins:        cfg.HTTP.Origins,
		SameUser:       cfg.Auth.Peer == config.PeerSameUser,
		Roots:          canonical(cfg.Workspaces.Roots),
		Own:            ownFolders(cfg.WorkspaceDir, cfg.Output.Dir),
		Hosted:         cfg.Hosted,
		MaxJSON:        int64(cfg.Limits.JSONBytes),
		MaxBodies:      int64(cfg.Limits.BodiesBytes),
		MaxConnections: cfg.Limits.Connections,
		MaxStreams:     cfg.Limits.Streams,
		PerMinute:      cfg.Limits.Rate.Global,
		PerIPMinute:    cfg.Limits.Rate.PerIP,
	}
}

// canonical gives the form in which folders are compared.
func canonical(folders []string) []string {
	list := make([]string, len(folders))
	for i, f := range folders {
		list[i] = access.Canonical(f)
	}
	return list
}

func commandDialect(cfg config.Config, s *services) *execroutes.Dialect {
	return execroutes.New(s.layers, execserve.New(execserve.Options{Enabled: cfg.Exec.Enabled, Concurrency: cfg.Exec.Concurrency, OutputBytes: int64(cfg.Exec.OutputBytes),
		Timeout: cfg.Exec.Timeout, Server: cfg.Listen, Layers: s.layers, Calls: s.calls, Tasks: s.tasks}), s.tasks)
}

func callDialect(cfg config.Config, s *services) *callroutes.Dialect {
	d := callroutes.New(s.calls, s.tasks, s.workspaces, s.history)
	d.NoContext = cfg.Hooks.Context == config.ContextOff
	return d
}
