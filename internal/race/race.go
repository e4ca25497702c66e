// Package race runs one command in several forks of a workspace side by side, and
// judges what each made of it (contracts/forks.md). It works through the server's
// routes and keeps nothing itself.
package race

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"umbra/internal/client"
	"umbra/internal/term"
)

// Options of a race.
type Options struct {
	Client    *client.Client
	Workspace string
	N         int
	Command   []string // {n} in it is the attempt's number
	Judge     string   // a shell command; empty: the command's own exit status
	Timeout   time.Duration
	Session   string // of the agent, noted with each attempt's task
	Output    io.Writer
}

// Attempt is what became of one fork.
type Attempt struct {
	N         int      `json:"n"`
	Fork      string   `json:"fork"`
	Root      string   `json:"root"`
	Task      string   `json:"task_id"`
	ExitCode  int      `json:"exit_code"` // 128+n where signal n ended it, -1 where it did not start
	TimedOut  bool     `json:"timed_out"`
	Judge     *int     `json:"judge_exit_code"` // null where none ran
	Score     *float64 `json:"score"`           // the number on the judge's last line
	Passed    bool     `json:"passed"`
	Files     int      `json:"files"`
	Additions int      `json:"additions"`
	Deletions int      `json:"deletions"`
	Seconds   float64  `json:"seconds"`
}

// lines counts the changed lines.
func (a *Attempt) lines() int { return a.Additions + a.Deletions }

// Race is a race that has its forks.
type Race struct {
	o        Options
	Attempts []*Attempt
	out      sync.Mutex
}

// Begin makes the forks, each a directory with a task of its own.
func Begin(ctx context.Context, o Options) (*Race, error) {
	var made struct {
		Forks []struct {
			ID   string  `json:"id"`
			Root *string `json:"root"`
		} `json:"forks"`
	}
	body := map[string]any{"kind": "copy", "count": o.N, "name": "race-" + strconv.FormatInt(time.Now().UnixNano()/1e6, 36)}
	if _, err := o.Client.JSON(ctx, client.Request{Method: "POST", Path: client.Path("workspaces", o.Workspace, "forks"), Body: body}, &made); err != nil {
		return nil, err
	}
	r := &Race{o: o}
	for i, f := range made.Forks {
		a := &Attempt{N: i + 1, Fork: f.ID}
		if f.Root != nil {
			a.Root = *f.Root
		}
		r.Attempts = append(r.Attempts, a)
	}
	for _, a := range r.Attempts {
		goal := fmt.Sprintf("race %d of %d: %s", a.N, o.N, strings.Join(o.Command, " "))
		metadata := map[string]any{"race": a.N}
		if o.Session != "" {
			metadata["agent_session"] = o.Session
		}
		var t client.Task
		body := map[string]any{"goal": goal, "workspace": a.Fork, "metadata": metadata}
		if _, err := o.Client.JSON(ctx, client.Request{Method: "POST", Path: "/tasks", Body: body}, &t); err != nil {
			return nil, errors.Join(err, r.Drop(ctx))
		}
		a.Task = t.ID
	}
	return r, nil
}

// Run runs the command in all forks at once, then the judge in each. An error is
// ctx's, or the server's; what a command does wrong is its Attempt's.
func (r *Race) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	failed := make([]error, len(r.Attempts))
	for i, a := range r.Attempts {
		wg.Go(func() { failed[i] = r.attempt(ctx, a) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(failed...)
}

func (r *Race) attempt(ctx context.Context, a *Attempt) error {
	began := time.Now()
	argv := make([]string, len(r.o.Command))
	for i, arg := range r.o.Command {
		argv[i] = strings.ReplaceAll(arg, "{n}", strconv.Itoa(a.N))
	}
	limited := ctx
	if r.o.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, r.o.Timeout)
		defer cancel()
	}
	out := &prefixed{r: r, prefix: fmt.Sprintf("[%d] ", a.N)}
	a.ExitCode = r.command(limited, a, argv, out)
	out.flush()
	a.TimedOut = limited.Err() != nil && ctx.Err() == nil
	a.Seconds = math.Round(time.Since(began).Seconds()*1000) / 1000
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.Passed = a.ExitCode == 0
	if r.o.Judge != "" {
		var said bytes.Buffer
		code := r.command(ctx, a, []string{"sh", "-c", r.o.Judge}, &said)
		a.Judge, a.Passed, a.Score = &code, code == 0, score(said.String())
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var c struct {
		Summary struct{ Files, Additions, Deletions int }
	}
	if _, err := r.o.Client.JSON(ctx, client.Request{Path: client.Path("workspaces", a.Fork, "compare")}, &c); err != nil {
		return err
	}
	a.Files, a.Additions, a.Deletions = c.Summary.Files, c.Summary.Additions, c.Summary.Deletions
	exit := a.ExitCode
	if a.Judge != nil {
		exit = *a.Judge
	}
	judge := strings.ToValidUTF8(r.o.Judge[:min(len(r.o.Judge), maxJudge)], "")
	judged := map[string]any{"passed": a.Passed, "score": a.Score, "exit_code": exit, "seconds": a.Seconds, "command": judge}
	if _, err := r.o.Client.JSON(ctx, client.Request{Method: "PATCH", Path: client.Path("workspaces", a.Fork), Body: map[string]any{"judged": judged}}, nil); err != nil {
		return err
	}
	_, err := r.o.Client.JSON(ctx, client.Request{Method: "PATCH", Path: client.Path("tasks", a.Task), Body: map[string]any{"status": "completed"}}, nil)
	return err
}

// maxJudge is how many bytes of a judge's command the server records.
const maxJudge = 4096

// score reads the number on the last line of what the judge said.
func score(said string) *float64 {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	n, err := strconv.ParseFloat(strings.TrimSpace(lines[len(lines)-1]), 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return nil
	}
	return &n
}

// grace is how long a process group has after SIGTERM.
const grace = 2 * time.Second

// command runs a program in a fork's directory, with all that it starts in a process
// group that ends with ctx.
func (r *Race) command(ctx context.Context, a *Attempt, argv []string, out io.Writer) int {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = a.Root
	cmd.Env = append(os.Environ(), "UMBRA_FORK="+strconv.Itoa(a.N), "UMBRA_TASK="+a.Task, "UMBRA_WORKSPACE="+a.Fork)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = grace
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	err := cmd.Run()
	if cmd.Process != nil && ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what did not heed it
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return exit.ExitCode()
	}
	if err != nil && cmd.ProcessState != nil && cmd.ProcessState.Success() && ctx.Err() == nil {
		return 0 // something that it left running holds the output
	}
	if err != nil {
		fmt.Fprintf(out, "%v\n", err)
		return -1
	}
	return 0
}

// Best gives the attempt that passed with the highest score, or without scores the
// smallest difference; nil where none passed.
func (r *Race) Best() *Attempt {
	var passed []*Attempt
	for _, a := range r.Attempts {
		if a.Passed {
			passed = append(passed, a)
		}
	}
	if len(passed) == 0 {
		return nil
	}
	return slices.MinFunc(passed, func(a, b *Attempt) int {
		switch {
		case a.Score != nil && b.Score != nil && *a.Score != *b.Score:
			if *a.Score > *b.Score {
				return -1
			}
			return 1
		case (a.Score != nil) != (b.Score != nil):
			if a.Score != nil {
				return -1
			}
			return 1
		}
		if d := a.lines() - b.lines(); d != 0 {
			return d
		}
		return a.N - b.N
	})
}

// Merge merges an attempt into the workspace, and gives the server's answer.
func (r *Race) Merge(ctx context.Context, a *Attempt) ([]byte, error) {
	return r.o.Client.JSON(ctx, client.Request{Method: "POST", Path: client.Path("workspaces", a.Fork, "merge"), Body: map[string]any{}}, nil)
}

// dropLimit bounds the deletion of one fork.
const dropLimit = time.Minute

// Drop deletes all forks with what they changed, also after ctx has ended.
func (r *Race) Drop(ctx context.Context) error {
	var failed error
	for _, a := range r.Attempts {
		failed = errors.Join(failed, r.drop(ctx, a))
	}
	return failed
}

func (r *Race) drop(ctx context.Context, a *Attempt) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropLimit)
	defer cancel()
	if a.Task != "" {
		_, _ = r.o.Client.JSON(ctx, client.Request{Method: "PATCH", Path: client.Path("tasks", a.Task), Body: map[string]any{"status": "cancelled"}}, nil) // it may be complete
	}
	_, err := r.o.Client.JSON(ctx, client.Request{Method: "DELETE", Path: client.Path("workspaces", a.Fork), Query: map[string][]string{"force": {"true"}}}, nil)
	return err
}

// prefixed writes whole lines, each with the attempt's number.
type prefixed struct {
	r      *Race
	prefix string
	rest   []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		i := bytes.IndexByte(p.rest, '\n')
		if i < 0 && len(p.rest) < 64<<10 {
			return len(b), nil
		}
		if i < 0 {
			i = len(p.rest) - 1
		}
		p.line(p.rest[:i+1])
		p.rest = p.rest[i+1:]
	}
}

func (p *prefixed) line(text []byte) {
	if p.r.o.Output == nil {
		return
	}
	p.r.out.Lock()
	defer p.r.out.Unlock()
	fmt.Fprintf(p.r.o.Output, "%s%s", p.prefix, text)
}

func (p *prefixed) flush() {
	if len(p.rest) > 0 {
		p.line(append(p.rest, '\n'))
		p.rest = nil
	}
}

// Table writes the outcome of each fork.
func Table(o *term.Output, list []*Attempt, best *Attempt) {
	rows := [][]string{{"N", "FORK", "EXIT", "JUDGE", "SCORE", "FILES", "LINES", "TIME", ""}}
	for _, a := range list {
		exit, judge, points, mark := strconv.Itoa(a.ExitCode), "-", "-", ""
		if a.TimedOut {
			exit = "timeout"
		}
		if a.Judge != nil {
			judge = strconv.Itoa(*a.Judge)
		}
		if a.Score != nil {
			points = strconv.FormatFloat(*a.Score, 'g', -1, 64)
		}
		if a == best {
			mark = "best"
		}
		rows = append(rows, []string{strconv.Itoa(a.N), a.Fork, exit, judge, points, strconv.Itoa(a.Files), fmt.Sprintf("+%d -%d", a.Additions, a.Deletions),
			(time.Duration(a.Seconds * float64(time.Second))).Round(10 * time.Millisecond).String(), mark})
	}
	o.Table(rows)
}
