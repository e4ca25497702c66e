package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"umbra/config"
	"umbra/httpapi"
	"umbra/httpapi/gitsmart"
	"umbra/httpapi/mcp"
	"umbra/httpapi/scripts"
	"umbra/httpapi/sessions"
	"umbra/httpapi/tasks"
	"umbra/httpapi/toolsets"
	"umbra/httpapi/workspaces"
	"umbra/internal/state"
)

// deps is the wired server and what is to be closed after it.
type deps struct {
	server  *httpapi.Server
	owner   string                        // lets the owner's own verbs in
	closers []func(context.Context) error // the last made is closed first
}

// close closes everything, whatever fails; ctx bounds how long a clean state is
// worked for.
func (d *deps) close(ctx context.Context) error {
	var all error
	for i := len(d.closers) - 1; i >= 0; i-- {
		all = errors.Join(all, d.closers[i](ctx))
	}
	return all
}

// build is the one place where the layers are put together.
func build(cfg config.Config, dir *state.Dir, log *slog.Logger) (d *deps, err error) {
	opened := &deps{}
	d = opened
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close(context.Background()))
		}
	}()
	db, err := state.Open(dir.Join("state.db"))
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func(context.Context) error { return db.Close() })
	answers, err := state.OpenAnswers(db, dir.Join("answers.log"))
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func(context.Context) error { return answers.Close() })

	opts, err := httpOptions(cfg, log)
	if err != nil {
		return nil, err
	}
	opts.Answers = answers
	if d.owner, err = newOwner(dir); err != nil {
		return nil, err
	}
	opts.Owner = sha256.Sum256([]byte(d.owner))
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
	protocol := mcp.New(mcp.Options{Toolsets: s.toolsets, Version: programVersion(), MaxBody: int64(cfg.Limits.WriteBytes)})
	d.closers = append(d.closers, func(context.Context) error { protocol.Close(); return nil })
	programs, pool, err := openPrograms(cfg, s, programOutputOf(output), log, d)
	if err != nil {
		return nil, err
	}
	opts.Processes = pool.Active
	d.server, err = httpapi.New(opts, append(dialects(cfg, s), protocol, programs, scripts.New(runner))...)
	return d, err
}

// dialects lists the HTTP surfaces beside the frame's own.
func dialects(cfg config.Config, s *services) []httpapi.Dialect {
	return []httpapi.Dialect{
		tasks.New(s.tasks, s.history, tasks.Limits{Write: int64(cfg.Limits.UploadBytes), Batch: int64(cfg.Limits.WriteBytes)}),
		sessions.New(s.sessions, s.tasks, s.workspaces, sessions.Limits{Write: int64(cfg.Limits.WriteBytes), Upload: int64(cfg.Limits.UploadBytes)}),
		workspaces.New(s.workspaces, s.tasks),
		gitsmart.New(s.workspaces, s.tasks),
		toolsets.New(s.toolsets, int64(cfg.Limits.WriteBytes)),
	}
}

// httpOptions translates the settings for the HTTP side.
func httpOptions(cfg config.Config, log *slog.Logger) (httpapi.Options, error) {
	tokens, err := tokensOf(cfg.Auth.Tokens)
	return httpapi.Options{
		Version:     programVersion(),
		Log:         log,
		Hosts:       cfg.HTTP.Hosts,
		Origins:     cfg.HTTP.Origins,
		SameUser:    cfg.Auth.Peer == config.PeerSameUser,
		Tokens:      tokens,
		Roots:       canonical(cfg.Workspaces.Roots),
		Hosted:      cfg.Hosted,
		MaxJSON:     int64(cfg.Limits.JSONBytes),
		PerMinute:   cfg.Limits.Rate.Global,
		PerIPMinute: cfg.Limits.Rate.PerIP,
	}, err
}

func tokensOf(list []config.Token) ([]httpapi.Token, error) {
	var tokens []httpapi.Token
	for _, t := range list {
		token := httpapi.Token{Name: t.Name, Roots: canonical(t.Roots), Expires: t.Expires}
		if n, err := hex.Decode(token.SHA256[:], []byte(strings.ToLower(t.SHA256))); err != nil || n != len(token.SHA256) {
			return nil, fmt.Errorf("token %s: sha256 is malformed", t.Name)
		}
		if t.Scope == config.ScopeWrite {
			token.Scope = httpapi.ScopeWrite
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}

// canonical resolves links in folders, as the workspaces' own roots are; what
// is not there (yet) stays as it is written.
func canonical(folders []string) []string {
	list := make([]string, len(folders))
	for i, f := range folders {
		list[i] = filepath.Clean(f)
		if real, err := filepath.EvalSymlinks(f); err == nil {
			list[i] = real
		}
	}
	return list
}
