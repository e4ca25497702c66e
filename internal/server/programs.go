package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"umbra/config"
	codeapi "umbra/httpapi/code"
	"umbra/internal/code"
	"umbra/internal/errs"
	"umbra/internal/lint"
	"umbra/internal/sandbox/js"
)

// openPrograms makes the code dialect with what runs and checks programs; it is
// put onto d to be closed. output may be nil: programs have no file then.
func openPrograms(cfg config.Config, s *services, output codeapi.Output, log *slog.Logger, d *deps) (*codeapi.Dialect, *js.Pool, error) {
	programs, err := code.New(code.Options{Dir: cfg.WorkspaceDir, Workspaces: s.workspaces, Tasks: s.tasks, Log: log})
	if err != nil {
		return nil, nil, err
	}
	if err := js.CheckWalls(cfg.Sandbox.Require, log); err != nil {
		return nil, nil, err
	}
	pool := js.NewPool(js.Options{
		Files: workspaceFiles{programs}, Parallel: cfg.Execute.Parallel, Queue: cfg.Execute.Queue, Warm: cfg.Execute.Warm,
		Memory: int64(cfg.Execute.MemoryBytes), Log: log, Meter: s.meters.programs, RequireWalls: cfg.Sandbox.Require,
	})
	d.closers = append(d.closers, func(context.Context) error { pool.Close(); return nil })
	var engine codeapi.Engine = pool
	if cfg.Execute.Engine == config.EngineDeno {
		if engine, err = js.FindDeno(pool, programs.Dir()); err != nil {
			return nil, nil, fmt.Errorf("execute.engine: %w", err)
		}
		output = nil // a program of Deno has no way to it
	}
	var linter lint.Linter = lint.Embedded{Checker: pool}
	if cfg.Lint.Engine != config.EngineEmbedded {
		if linter, err = lint.Find(cfg.Lint.Engine); err != nil {
			return nil, nil, fmt.Errorf("lint.engine: %w", err)
		}
	}
	return codeapi.New(codeapi.Options{
		Programs: programs, Engine: engine, Linter: linter, Output: output, Log: log, PerCode: cfg.Limits.Rate.PerCodeID,
	}), pool, nil
}

// workspaceFiles is the code workspace as programs see it: its own path and
// "/workspace" are its root.
type workspaceFiles struct{ programs *code.Service }

// ReadFile implements js.Files.
func (w workspaceFiles) ReadFile(ctx context.Context, name string) ([]byte, error) {
	for _, root := range []string{"/workspace", w.programs.Dir()} {
		if rest, ok := strings.CutPrefix(name, root+"/"); ok {
			name = rest
			break
		}
	}
	if strings.HasPrefix(name, "/") {
		return nil, errs.New(errs.BadPath, "bad_path", "The path is absolute; it must be relative to the workspace.")
	}
	return w.programs.ReadFile(ctx, name)
}

// ownFolders gives the server's own folders in the form in which they are
// compared: absolute, with the links resolved of what is there already.
func ownFolders(folders ...string) []string {
	out := make([]string, len(folders))
	for i, f := range folders {
		out[i] = settledPath(f)
	}
	return out
}

// settledPath resolves the links of what is there already on the way to a folder.
func settledPath(folder string) string {
	at, err := filepath.Abs(folder)
	if err != nil {
		return filepath.Clean(folder)
	}
	rest := ""
	for dir := at; ; {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		} else if !os.IsNotExist(err) || filepath.Dir(dir) == dir {
			return at
		}
		rest = filepath.Join(filepath.Base(dir), rest)
		dir = filepath.Dir(dir)
	}
}
