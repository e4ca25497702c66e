package server

import (
	"context"
	"log/slog"
	"time"

	"umbra/config"
	codeapi "umbra/httpapi/code"
	"umbra/internal/exitcode"
	"umbra/internal/sandbox/luau"
	"umbra/internal/script"
	"umbra/internal/sdk"
	"umbra/internal/state"
)

// openScripts makes what runs scripts, and the output directory, which is nil
// where nothing may be saved.
func openScripts(cfg config.Config, s *services, dir *state.Dir, log *slog.Logger, d *deps) (*script.Service, *script.Output, error) {
	opts := script.Options{Tasks: s.tasks, Log: log, Running: cfg.Scripts.Parallel, Waiting: cfg.Scripts.Queue, Meter: s.meters.scripts}
	if cfg.Output.Enabled && !cfg.Hosted {
		output, err := script.NewOutput(script.OutputOptions{
			Dir: cfg.Output.Dir, MaxBytes: int64(cfg.Output.MaxBytes), Workspaces: s.workspaces, Tasks: s.tasks, Log: log,
		})
		if err != nil {
			return nil, nil, err
		}
		opts.Output = output
	}
	if len(cfg.Scripts.APIs) > 0 {
		apis := make([]sdk.API, len(cfg.Scripts.APIs))
		for i, a := range cfg.Scripts.APIs {
			apis[i] = sdk.API{Name: a.Name, Spec: a.Spec, BaseURL: a.BaseURL, Headers: a.Headers}
		}
		calls, err := sdk.Load(sdk.Options{
			APIs: apis, MaxBytes: int64(cfg.Scripts.APIMaxBytes), MaxCalls: cfg.Scripts.MaxAPICalls, Timeout: 30 * time.Second,
		})
		if err != nil {
			return nil, nil, exitcode.Usage(err)
		}
		d.closers = append(d.closers, func(context.Context) error { calls.Close(); return nil })
		opts.SDK = calls
	}
	opts.Engine = luau.New(luau.Options{CacheDir: dir.Join("cache", "luau")})
	d.closers = append(d.closers, opts.Engine.Close)
	return script.New(opts), opts.Output, nil
}

// programOutput lets programs of the code workspace save as scripts do.
type programOutput struct{ output *script.Output }

// programOutputOf gives it for an output directory; nil for none.
func programOutputOf(o *script.Output) codeapi.Output {
	if o == nil {
		return nil
	}
	return programOutput{o}
}

// Begin implements codeapi.Output.
func (p programOutput) Begin(ctx context.Context, owner codeapi.Owner) (codeapi.Saver, error) {
	saver, err := p.output.Begin(ctx, script.Owner{By: owner.By, Task: owner.Task, Sees: owner.Sees, Goal: owner.Goal})
	if err != nil {
		return nil, err
	}
	return programSaver{saver}, nil
}

type programSaver struct{ *script.Saver }

// Files implements codeapi.Saver.
func (p programSaver) Files() []codeapi.SavedFile {
	files := p.Saver.Files()
	out := make([]codeapi.SavedFile, len(files))
	for i, f := range files {
		out[i] = codeapi.SavedFile{Name: f.Name, Path: f.Path, Bytes: f.Bytes, Commit: f.Commit}
	}
	return out
}
