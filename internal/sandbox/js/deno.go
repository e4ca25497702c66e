package js

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"umbra/internal/errs"
)

// Deno runs programs with a Deno found on the machine, under the same limits
// and permissions as the embedded engine: reads inside the code workspace, the
// given environment, and nothing else. It has no file.save: a program of Deno
// has no way to the server.
type Deno struct {
	o    Options
	path string
	dir  string // the code workspace
	pool *Pool  // whose places to run at it takes
}

// FindDeno looks for Deno on the machine. Runs take the pool's places, and the
// pool makes its checks.
func FindDeno(pool *Pool, dir string) (*Deno, error) {
	path, err := exec.LookPath("deno")
	if err != nil {
		return nil, errors.New("deno is not on this machine")
	}
	return &Deno{o: pool.o, path: path, dir: dir, pool: pool}, nil
}

// Check is the embedded compiler's.
func (d *Deno) Check(ctx context.Context, job Job) ([]Diagnostic, error) {
	return d.pool.Check(ctx, job)
}

// Run implements what Pool.Run does.
func (d *Deno) Run(ctx context.Context, job Job) (*Outcome, error) {
	return d.o.counted(func() (*Outcome, error) { return d.run(ctx, job) })
}

func (d *Deno) run(ctx context.Context, job Job) (*Outcome, error) {
	if err := d.pool.enter(ctx); err != nil {
		return nil, err
	}
	defer d.pool.leave()
	cache, err := os.MkdirTemp("", "umbra-deno-")
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	defer os.RemoveAll(cache)
	limited, cancel := context.WithTimeout(ctx, job.Timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, d.path, d.arguments(job)...)
	cmd.Dir = cache
	if info, err := os.Stat(d.dir); err == nil && info.IsDir() && !job.NoFiles {
		cmd.Dir = d.dir
	}
	cmd.Env = []string{"DENO_DIR=" + cache, "NO_COLOR=1", "DENO_NO_UPDATE_CHECK=1", "TZ=UTC"}
	for name, value := range job.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdin = strings.NewReader(job.Code)
	cmd.WaitDelay = time.Second
	isolate(cmd)
	var taken atomic.Int64
	stdout, stderr := &limitedOutput{taken: &taken, limit: d.o.Output, over: cancel}, &limitedOutput{taken: &taken, limit: d.o.Output, over: cancel}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	start := time.Now()
	err = cmd.Run()
	out := &Outcome{Took: time.Since(start), Stdout: stdout.data.Bytes(), Stderr: stderr.data.Bytes(), ExitCode: cmd.ProcessState.ExitCode()}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case taken.Load() > d.o.Output:
		out.ExitCode, out.Failure = 1, FailedOutput
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		out.Failure = FailedTime
	case err == nil:
	case cmd.ProcessState == nil:
		return nil, errs.Wrap(err, "")
	case strings.Contains(stderr.data.String(), "heap out of memory") || strings.Contains(stderr.data.String(), "Reached heap limit"):
		out.ExitCode, out.Failure = 1, FailedMemory
	default:
		if out.ExitCode < 0 {
			out.ExitCode = 1 // a signal
		}
		out.Failure = FailedExit
	}
	return out, nil
}

// arguments are those of deno run: the program comes on standard input.
func (d *Deno) arguments(job Job) []string {
	args := []string{"run", "--no-prompt", "--no-remote", "--no-npm", "--no-config", "--no-lock", "--quiet", "--ext=ts",
		fmt.Sprintf("--v8-flags=--max-old-space-size=%d", d.o.Memory>>20)}
	if !job.NoFiles {
		args = append(args, "--allow-read="+d.dir)
	}
	if len(job.Env) > 0 {
		args = append(args, "--allow-env="+strings.Join(slices.Sorted(maps.Keys(job.Env)), ","))
	}
	if file := filepath.Join(d.dir, importMapFile); !job.NoFiles && exists(file) {
		args = append(args, "--import-map="+file)
	}
	return append(append(args, "-"), job.Args...)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// limitedOutput ends the program once its outputs together pass the limit.
type limitedOutput struct {
	data  bytes.Buffer // no embedding: its ReadFrom would pass Write by
	taken *atomic.Int64
	limit int64
	over  context.CancelFunc
}

// Write takes what still fits.
func (l *limitedOutput) Write(p []byte) (int, error) {
	if l.taken.Add(int64(len(p))) > l.limit {
		l.over()
		return len(p), nil
	}
	return l.data.Write(p)
}
