package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	execrun "umbra/internal/exec/run"
	"umbra/internal/exitcode"
	"umbra/internal/race"
	"umbra/internal/render"
	"umbra/internal/term"
)

type forkList struct {
	Forks []render.Fork `json:"forks"`
}

func (v *verb) printForks(ctx context.Context, r client.Request) error {
	var list forkList
	raw, err := v.Client.JSON(ctx, r, &list)
	if err != nil {
		return err
	}
	return v.Answer(raw, func(o *term.Output) { render.Forks(o, list.Forks) })
}

// forkable is the workspace of this directory. A git project that is none yet becomes one.
func (v *verb) forkable(ctx context.Context) (cli.Place, error) {
	w, err := v.HereWorkspace(ctx)
	if !errors.Is(err, cli.ErrNoWorkspace) {
		return w, err
	}
	here, derr := cli.WorkingDir()
	if derr != nil {
		return w, derr
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		if _, serr := os.Lstat(filepath.Join(dir, ".git")); serr == nil {
			here = dir
			break
		}
		if dir == filepath.Dir(dir) {
			return w, err
		}
	}
	var made client.Task
	if _, err := v.Client.JSON(ctx, client.Request{Method: "POST", Path: "/tasks", Body: map[string]any{"goal": "Forks of this project", "workspace": here}}, &made); err != nil {
		return w, err
	}
	if _, err := v.Client.JSON(ctx, client.Request{Method: "PATCH", Path: client.Path("tasks", made.ID), Body: map[string]any{"status": "completed"}}, nil); err != nil {
		return w, err
	}
	fmt.Fprintf(v.Stderr, "umbra: %s is a workspace now\n", term.Name(here))
	return v.HereWorkspace(ctx)
}

func forkCommand() *cobra.Command {
	v := &verb{}
	var name, kind, at, ignored, expires string
	var count int
	cmd := &cobra.Command{
		Use:   "fork [DIR]",
		Short: "Make a fork of the workspace: a copy that can be merged back",
		Long: `Make a fork of the workspace of this directory, or of the git project around it: a
workspace that begins as this one is and shares its history. A layer shows the
workspace's files, with its own changes over them, to what umbra in runs, and at DIR if
the server runs as root; a copy is a directory of its own, DIR or one next to the
workspace's; a virtual fork exists only in git.`,
		Example: `  umbra fork
  umbra fork ../attempt --ignored none
  umbra fork --kind virtual --count 3 --name attempt`,
		Args: cli.Args(0, 1),
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "the fork's name `NAME`; default: that of DIR")
	f.StringVar(&kind, "kind", "", "layer, copy or virtual (`KIND`)")
	f.StringVar(&at, "at", "", "begin at the checkpoint, commit or time `AT`")
	f.StringVar(&ignored, "ignored", "", "what of the ignored files it has: share, copy or none (`HOW`)")
	f.StringVar(&expires, "expires-in", "", "remove it by itself after `TIME`, such as 36h")
	f.IntVar(&count, "count", 0, "how many (`N`)")
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		w, err := v.forkable(ctx)
		if err != nil {
			return err
		}
		body := map[string]any{}
		for field, value := range map[string]string{"name": name, "kind": kind, "at": at, "ignored": ignored, "expires_in": expires} {
			if value != "" {
				body[field] = value
			}
		}
		if cmd.Flags().Changed("count") {
			body["count"] = count
		}
		if len(args) > 0 {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			body["path"] = dir
		}
		return v.printForks(ctx, client.Request{Method: "POST", Path: client.Path("workspaces", w.ID, "forks"), Body: body})
	})
	return cmd
}

func forksCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "forks",
		Short: "List the forks of the workspace",
		Long: `List the forks of the workspace of this directory: their ids, kinds, names, directories
and when they expire.

With --json: {"forks":[…]}, as the server returns a fork.`,
		Example: `  umbra forks
  umbra forks --json`,
		Args: cli.NoArgs,
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	cmd.RunE = v.Action(func(ctx context.Context, _ []string) error {
		w, err := v.HereWorkspace(ctx)
		if err != nil {
			return err
		}
		return v.printForks(ctx, client.Request{Path: client.Path("workspaces", w.ID, "forks")})
	})
	return cmd
}

func inCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "in FORK [-- CMD [ARG…]]",
		Short: "Run a command, or a shell, in a fork's directory",
		Long: `Run a command in the directory of a fork; a shell if there is none. The fork is named by
its id, its directory, or its name among the forks of this directory's workspace. The
exit status is the command's.`,
		Example: `  umbra in attempt-1-5a2f -- make test`,
		Args:    cli.Args(1, cli.AnyNumber),
	}
	v.Connection.Flags(cmd.Flags())
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		f, err := v.findFork(ctx, args[0])
		if err != nil {
			return err
		}
		if f.Root == nil && f.Kind != "layer" {
			return exitcode.Usage(fmt.Errorf("%s is virtual: it has no directory to run a command in", term.Name(args[0])))
		}
		argv := args[1:]
		if len(argv) > 0 && argv[0] == "--" {
			argv = argv[1:]
		}
		if len(argv) == 0 {
			shell := os.Getenv("SHELL")
			if shell == "" {
				shell = "/bin/sh"
			}
			argv = []string{shell}
		}
		if f.Kind == "layer" {
			return inLayer(cmd, v, f.ID, argv)
		}
		_ = v.HangUp()
		run := exec.CommandContext(ctx, argv[0], argv[1:]...)
		run.Dir, run.Stdin, run.Stdout, run.Stderr = *f.Root, os.Stdin, v.Stdout, v.Stderr
		run.Env = append(os.Environ(), "UMBRA_WORKSPACE="+f.ID)
		run.Cancel = func() error { return run.Process.Signal(syscall.SIGTERM) }
		err = run.Run()
		reconcile(cmd, v, f.ID)
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			status := exit.ExitCode()
			if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				status = 128 + int(ws.Signal())
			}
			return exitcode.With(status)
		}
		if errors.Is(err, exec.ErrNotFound) {
			fmt.Fprintf(v.Stderr, "umbra: %s: not found\n", term.Name(argv[0]))
			return exitcode.With(127)
		}
		return err
	})
	return cmd
}

// reconcile has what a command changed in a fork's directory recorded. It is found
// later otherwise, so a failure says nothing of the command.
func reconcile(cmd *cobra.Command, v *verb, id string) {
	ctx := context.WithoutCancel(cmd.Context())
	if c, done, err := v.Connection.Open(ctx, cmd, v.Stderr); err == nil {
		_, _ = c.JSON(ctx, client.Request{Method: "POST", Path: client.Path("workspaces", id, "sync"), Body: map[string]any{}}, nil)
		_ = done()
	}
}

// inLayer runs a command in a fork that is an overlay. It needs a server that runs:
// this process waits for the command's children, and must have no others.
func inLayer(cmd *cobra.Command, v *verb, id string, argv []string) error {
	if err := v.HangUp(); err != nil {
		return err
	}
	o := execrun.Options{Fork: id, Require: true, Command: argv, Stdout: v.Stdout, Stderr: v.Stderr}
	if os.Getenv("UMBRA_WORKSPACE") == id {
		o.Task = os.Getenv("UMBRA_TASK")
	}
	if err := execServer(cmd, &v.Connection, &o); err != nil {
		return err
	}
	defer o.Client.Close()
	if status := execrun.In(context.WithoutCancel(cmd.Context()), o); status != 0 {
		return exitcode.With(status)
	}
	return nil
}

func mergeCommand() *cobra.Command {
	v := &verb{}
	var into, as, conflict, plan string
	var tasks, subtasks, paths, hunks []string
	var dry, again bool
	cmd := &cobra.Command{
		Use:   "merge FORK",
		Short: "Merge a fork back, whole or in parts",
		Long: `Merge a fork into the workspace that it was made from: what that lacks, each commit
with its author. A conflict changes nothing and is listed with who made both sides
(exit status 1); --on-conflict skip leaves such paths out. One revert takes the merge
back; a later merge with --again brings that too. Where retention dropped commits of the
target since the fork, what was merged before is unknown: check a --dry-run, and merge
with its --plan. The fork is named by its id, its directory, or its name among the forks
of this directory's workspace.`,
		Example: `  umbra merge attempt-1-5a2f --dry-run
  umbra merge attempt-1-5a2f --subtask tests`,
		Args: cli.Args(1, 1),
	}
	v.Connection.Flags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&into, "into", "", "merge into the workspace `WS` instead of the parent")
	f.StringSliceVar(&tasks, "of-task", nil, "only commits of the task `T` (repeats)")
	f.StringSliceVar(&subtasks, "subtask", nil, "only commits of the subtask `S` (repeats)")
	f.StringArrayVar(&paths, "path", nil, "only the file or directory `PATH` (repeats)")
	f.StringSliceVar(&hunks, "hunk", nil, "only the hunk `ID` of umbra review (repeats)")
	f.StringVar(&as, "as", "", "replay or squash (`HOW`)")
	f.StringVarP(&v.Task, "task", "t", "", "the task `T` of the target that the merge belongs to; else a new one")
	f.StringVar(&conflict, "on-conflict", "", "refuse or skip (`WAY`)")
	f.BoolVar(&again, "again", false, "also merge what a revert took back of an earlier merge")
	f.StringVar(&plan, "plan", "", "do exactly what the dry run with this `PLAN` reported, or nothing")
	f.BoolVar(&dry, "dry-run", false, "report what would be done, and change nothing")
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		f, err := v.findFork(ctx, args[0])
		if err != nil {
			return err
		}
		body := map[string]any{"dry_run": dry}
		if again {
			body["again"] = true
		}
		for field, value := range map[string]string{"into": into, "as": as, "task_id": v.Task, "on_conflict": conflict, "plan": plan} {
			if value != "" {
				body[field] = value
			}
		}
		for field, list := range map[string][]string{"tasks": tasks, "subtasks": subtasks, "paths": paths, "hunks": hunks} {
			if len(list) > 0 {
				body[field] = list
			}
		}
		var m render.Merge
		raw, err := v.Client.JSON(ctx, client.Request{Method: "POST", Path: client.Path("workspaces", f.ID, "merge"), Body: body}, &m)
		if e, ok := errors.AsType[*client.Error](err); ok && e.Code == "merge_conflict" {
			if jerr := json.Unmarshal(e.Body, &m); jerr != nil {
				return err
			}
			if v.JSON {
				if perr := v.PrintJSON(e.Body); perr != nil {
					return perr
				}
				return exitcode.With(1)
			}
			perr := v.Print(false, func(o *term.Output) error {
				m.Write(o, true)
				o.Printf("nothing was changed\n")
				return nil
			})
			return errors.Join(perr, exitcode.With(1))
		}
		if err != nil {
			return err
		}
		return v.Answer(raw, func(o *term.Output) { m.Write(o, dry) })
	})
	return cmd
}

// findFork returns the fork that an argument names: by its ID, which may be any workspace's,
// by its directory, or by its name, which is looked for among the forks of the workspace of
// this directory.
func (v *verb) findFork(ctx context.Context, arg string) (f render.Fork, err error) {
	if !strings.ContainsRune(arg, '/') {
		_, err = v.Client.JSON(ctx, client.Request{Path: client.Path("workspaces", arg)}, &f)
		if client.CodeOf(err) != "workspace_not_found" {
			return f, err
		}
	}
	dir, err := filepath.Abs(arg)
	if err != nil {
		return f, err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	here, err := v.HereWorkspace(ctx)
	if err != nil && !errors.Is(err, cli.ErrNoWorkspace) {
		return f, err
	}
	var list struct {
		Workspaces []render.Fork `json:"workspaces"`
	}
	if _, err := v.Client.JSON(ctx, client.Request{Path: "/workspaces"}, &list); err != nil {
		return f, err
	}
	parents := []string{here.ID} // in a fork's own directory its siblings are meant too
	for _, x := range list.Workspaces {
		if x.ID == here.ID {
			parents = append(parents, x.ForkOf)
		}
	}
	var found []string
	for _, x := range list.Workspaces {
		if x.ForkOf != "" && (x.Root != nil && *x.Root == dir || x.Name == arg && slices.Contains(parents, x.ForkOf)) {
			f, found = x, append(found, x.ID)
		}
	}
	switch len(found) {
	case 0:
		return f, fmt.Errorf("fork %s not found; umbra forks lists them", term.Name(arg))
	case 1:
		return f, nil
	}
	return f, exitcode.Usage(fmt.Errorf("several forks are called %s; name one by its ID: %s", term.Name(arg), strings.Join(found, ", ")))
}

type raceResult struct {
	Forks  []*race.Attempt `json:"forks"`
	Best   *int            `json:"best"`
	Merged *int            `json:"merged"`
	Merge  json.RawMessage `json:"merge,omitempty"`
	Kept   bool            `json:"kept"`
}

func raceCommand() *cobra.Command {
	v := &verb{}
	var o race.Options
	var keep bool
	var merge string
	cmd := &cobra.Command{
		Use:   "race N [flags] -- CMD [ARG…]",
		Short: "Run a command in N forks side by side, and keep the best",
		Long: `Run a command in N forks of the workspace at once; {n} in it and $UMBRA_FORK are the
fork's number. Then the judge runs in each: exit status 0 passes, and a number on its
last line ranks, higher first; else the smaller difference does. On a terminal it asks
which fork to merge; --merge best merges without asking. The other forks are deleted
once one is merged, unless --keep is given. Ctrl-C ends all and deletes them.

The exit status is 0 if a fork passed, 1 if none did.`,
		Example: `  umbra race 4 --judge 'make test' --merge best -- agent --seed {n} "fix the tests"`,
		Args:    cli.Args(1, cli.AnyNumber),
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&o.Judge, "judge", "", "the shell command `CMD` that judges each fork")
	f.DurationVar(&o.Timeout, "timeout", 0, "end a fork's command after `TIME`, such as 10m")
	f.StringVar(&o.Session, "agent-session", "", "note the agent's session `X` with each fork's task")
	f.StringVar(&merge, "merge", "", "merge `WHICH`: best, none, or a fork's number")
	f.BoolVar(&keep, "keep", false, "keep all forks")
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 1 || n > 64 {
			return exitcode.Usage(errors.New("the number of forks must be from 1 to 64"))
		}
		if o.Command = args[1:]; len(o.Command) == 0 {
			return exitcode.Usage(errors.New("which command? Say: umbra race N -- CMD"))
		}
		if m, err := strconv.Atoi(merge); merge != "" && merge != "best" && merge != "none" && (err != nil || m < 1 || m > n) {
			return exitcode.Usage(errors.New("--merge must be best, none, or a fork's number"))
		}
		w, err := v.forkable(ctx)
		if err != nil {
			return err
		}
		o.Client, o.Workspace, o.N, o.Output = v.Client, w.ID, n, v.Stderr
		return v.race(ctx, o, merge, keep)
	})
	return cmd
}

// race runs one to its end.
func (v *verb) race(ctx context.Context, o race.Options, merge string, keep bool) error {
	r, err := race.Begin(ctx, o)
	if err != nil {
		return err
	}
	if err := r.Run(ctx); err != nil {
		switch {
		case ctx.Err() == nil: // the other attempts may be hours of work
			fmt.Fprintf(v.Stderr, "the forks stay: umbra forks, umbra merge FORK\n")
		case !keep:
			err = errors.Join(err, r.Drop(ctx))
		}
		return err
	}
	result := raceResult{Forks: r.Attempts, Kept: true}
	best := r.Best()
	if best != nil {
		result.Best = &best.N
	}
	if !v.JSON {
		if err := v.Print(false, func(o *term.Output) error {
			race.Table(o, r.Attempts, best)
			return nil
		}); err != nil {
			return err
		}
	}
	if merge == "" && !v.JSON && term.IsTerminal(os.Stdin) && term.IsTerminal(v.Stdout) {
		fmt.Fprintf(v.Stderr, "Merge which fork? [1-%d, best, none] ", o.N)
		line, _ := bufio.NewReader(cli.Input(ctx, os.Stdin)).ReadString('\n')
		merge = strings.TrimSpace(line)
	}
	chosen := best
	if k, err := strconv.Atoi(merge); err == nil && k >= 1 && k <= len(r.Attempts) {
		chosen = r.Attempts[k-1]
	} else if merge != "best" {
		chosen = nil
	}
	if chosen != nil {
		if result.Merge, err = r.Merge(ctx, chosen); err != nil {
			return err // the forks stay
		}
		if result.Merged = &chosen.N; !keep {
			if err := r.Drop(ctx); err != nil {
				return err
			}
			result.Kept = false
		}
	}
	if v.JSON {
		raw, err := json.Marshal(result)
		if err != nil {
			return err
		}
		err = v.PrintJSON(raw)
		if err == nil && best == nil {
			err = exitcode.With(1)
		}
		return err
	}
	switch {
	case chosen != nil:
		fmt.Fprintf(v.Stderr, "merged fork %d\n", chosen.N)
	default:
		fmt.Fprintf(v.Stderr, "nothing was merged; the forks stay: umbra forks, umbra merge FORK\n")
	}
	if best == nil {
		return exitcode.With(1)
	}
	return nil
}
