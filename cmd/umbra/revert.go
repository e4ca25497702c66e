package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/render"
	"umbra/internal/term"
)

func revertCommand() *cobra.Command {
	v := &verb{}
	r := &revertFlags{}
	cmd := &cobra.Command{
		Use:   "revert COMMIT | --task T [--subtask S | --change N | PATH] | --actor A … [PATH…]",
		Short: "Undo a commit, a task's work, or an actor's changes, and only that",
		Long: `Undo one commit, a task's changes, those of one subtask, of one file or directory,
one change, or the changes that an actor, a source or a time selects. Later changes
to the same files stay: text is merged, and where that does not come out clean
nothing is changed and the conflicts are listed, with who changed the file (exit
status 1).

Changes that were made outside umbra are left and listed, since they may be yours;
--include-external undoes them too. A COMMIT, --change and --source external name
what they undo, and need no more.

A revert is a commit like any other, and can itself be reverted (umbra revert
COMMIT). --dry-run shows what would happen, with a plan; --plan does exactly that,
or nothing if something has changed since. With --json: the server's answer, also
that of a conflict.`,
		Example: `  umbra revert 1f3a9c2
  umbra revert --actor bob --since 1h --dry-run
  umbra revert --source external --since 2026-01-31T12:00:00Z src/
  umbra revert --task a1b2c3d4 --dry-run
  umbra revert --task a1b2c3d4 --subtask add-types
  umbra revert --task a1b2c3d4 src/app.ts
  umbra revert --task a1b2c3d4 --on-conflict skip --include-external`,
		Args: cobra.ArbitraryArgs,
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.TaskFlags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	r.flags(cmd)
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error { return v.revert(ctx, r, args) })
	// What is wrong with the flags shows before a server is looked for.
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error { return r.check(v, args) }
	return cmd
}

type revertFlags struct {
	change          uint64
	dryRun          bool
	onConflict      string
	includeExternal bool
	includeShared   bool
	plan            string

	actor, agent, source, since, until string
}

func (r *revertFlags) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Uint64VarP(&r.change, "change", "c", 0, "only the task's change with the number `N`, which may be a revert")
	fs.StringVar(&r.actor, "actor", "", "changes by the actor `A`, in whatever task")
	fs.StringVar(&r.agent, "agent", "", "changes by the agent `A`, in whatever task")
	fs.StringVar(&r.source, "source", "", "changes of the source `S`: api, script, external, revert …")
	fs.StringVar(&r.since, "since", "", "changes from this `TIME` on: RFC 3339, or a duration before now (1h, 2d)")
	fs.StringVar(&r.until, "until", "", "changes before this `TIME`: RFC 3339, or a duration before now")
	fs.BoolVarP(&r.dryRun, "dry-run", "n", false, "show what would happen, and change nothing")
	fs.StringVar(&r.onConflict, "on-conflict", "fail", "fail: change nothing; skip: leave that file, do the rest; force: the state before (`HOW`)")
	fs.BoolVar(&r.includeExternal, "include-external", false, "undo changes made outside umbra too")
	fs.BoolVar(&r.includeShared, "include-shared", false, "undo changes that several agents may have made too")
	fs.StringVar(&r.plan, "plan", "", "do exactly what the dry run of this `TOKEN` showed")
}

// selects reports whether the flags select changes of the whole workspace.
func (r *revertFlags) selects() bool {
	return r.actor != "" || r.agent != "" || r.source != "" || r.since != "" || r.until != ""
}

func (r *revertFlags) check(v *verb, args []string) error {
	chosen := len(args)
	for _, given := range []bool{v.Subtask != "", r.change != 0} {
		if given {
			chosen++
		}
	}
	switch {
	case r.selects() && (v.Task != "" || v.Subtask != "" || r.change != 0):
		return exitcode.Usage(errors.New("--actor, --agent, --source, --since and --until select in the whole workspace: not with --task, --subtask or --change"))
	case r.selects():
	case v.Task == "" && (v.Subtask != "" || r.change != 0):
		return exitcode.Usage(errors.New("--subtask and --change need --task"))
	case v.Task == "" && len(args) == 0:
		return exitcode.Usage(errors.New("name what is to be undone: a COMMIT, --task, or --actor, --since …"))
	case v.Task == "" && len(args) > 1:
		return exitcode.Usage(errors.New("only one COMMIT can be reverted at a time"))
	case v.Task == "" && !commitForm.MatchString(args[0]):
		return exitcode.Usage(fmt.Errorf("%q is not a commit; a file is reverted with --task T or --actor A", args[0]))
	case v.Task != "" && chosen > 1:
		return exitcode.Usage(errors.New("--subtask, --change and PATH exclude each other"))
	}
	switch {
	case r.onConflict != "fail" && r.onConflict != "skip" && r.onConflict != "force":
		return exitcode.Usage(fmt.Errorf("--on-conflict is fail, skip or force, not %q", r.onConflict))
	case r.plan != "" && r.dryRun:
		return exitcode.Usage(errors.New("--plan and --dry-run exclude each other"))
	}
	for name, at := range map[string]string{"--since": r.since, "--until": r.until} {
		if _, err := parseTime(at, time.Now()); err != nil {
			return exitcode.Usage(fmt.Errorf("%s is a time as 2026-01-31T12:00:00Z, or a duration such as 90m, 1h or 2d, not %q", name, at))
		}
	}
	return nil
}

// parseTime reads a time in RFC 3339, or a duration before now; a number of days
// is one, too. Empty is the zero time.
func parseTime(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Parse(time.RFC3339, s)
}

// request gives the route and the body of what the flags ask for.
func (v *verb) revertRequest(ctx context.Context, r *revertFlags, args []string) (route string, body map[string]any, err error) {
	body = map[string]any{"dry_run": r.dryRun, "on_conflict": r.onConflict, "include_external": r.includeExternal, "include_shared": r.includeShared}
	if r.plan != "" {
		body = map[string]any{"plan": r.plan} // it holds the rest
	}
	switch {
	case v.Subtask != "":
		return client.Path("tasks", v.Task, "subtasks", v.Subtask, "revert"), body, nil
	case r.change != 0:
		return client.Path("tasks", v.Task, "changes", strconv.FormatUint(r.change, 10), "revert"), body, nil
	case v.Task != "" && len(args) == 0:
		return client.Path("tasks", v.Task, "revert"), body, nil
	}
	w, err := v.PickWorkspace(ctx)
	if err != nil {
		return "", nil, err
	}
	if v.Task == "" && !r.selects() {
		return client.Path("workspaces", w.ID, "commits", args[0], "revert"), body, nil
	}
	paths, encoding, err := cli.EncodePaths(w, args)
	if err != nil {
		return "", nil, err
	}
	if encoding != "" {
		body["path_encoding"] = encoding
	}
	if v.Task != "" {
		if len(paths) > 0 { // else the root: all of it
			body["path"] = paths[0]
		}
		return client.Path("tasks", v.Task, "revert"), body, nil
	}
	if len(paths) > 0 {
		body["paths"] = paths
	}
	for name, value := range map[string]string{"actor": r.actor, "agent": r.agent, "source": r.source} {
		if value != "" {
			body[name] = value
		}
	}
	for name, value := range map[string]string{"since": r.since, "until": r.until} {
		if at, err := parseTime(value, time.Now()); err == nil && !at.IsZero() {
			body[name] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	return client.Path("workspaces", w.ID, "revert"), body, nil
}

func (v *verb) revert(ctx context.Context, r *revertFlags, args []string) error {
	route, body, err := v.revertRequest(ctx, r, args)
	if err != nil {
		return err
	}
	var done client.Reverted
	raw, err := v.Client.JSON(ctx, client.Request{Method: http.MethodPost, Path: route, Body: body}, &done)
	if e, ok := errors.AsType[*client.Error](err); ok && e.Code == "revert_conflict" {
		return v.conflicted(e)
	}
	if err != nil {
		return err
	}
	err = v.Answer(raw, func(o *term.Output) { render.Reverted(o, &done) })
	if err == nil && len(done.Conflicts) > 0 {
		return exitcode.With(exitcode.Failed)
	}
	return err
}

// conflicted reports why nothing was changed.
func (v *verb) conflicted(e *client.Error) error {
	if v.JSON {
		return errors.Join(v.PrintJSON(e.Body), exitcode.With(exitcode.Failed))
	}
	var reverted client.Reverted
	if err := json.Unmarshal(e.Body, &reverted); err != nil {
		return e
	}
	err := v.Print(false, func(o *term.Output) error {
		render.WriteConflicts(o, reverted.Conflicts)
		return nil
	})
	fmt.Fprintln(v.Stderr, "umbra: nothing was changed; --on-conflict skip does the rest, --on-conflict force takes the state before")
	return errors.Join(err, exitcode.With(exitcode.Failed))
}
