package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"umbra/internal/client"
	"umbra/internal/term"
	"umbra/internal/wspath"
)

func revertCommand() *cobra.Command {
	v := &verb{}
	r := &revertFlags{}
	cmd := &cobra.Command{
		Use:   "revert --task T [--subtask S | --change N | PATH]",
		Short: "Undo what a task did, and nothing else",
		Long: `Undo a task's own changes, those of one subtask, of one file or folder, or one
change. What others did to the same files since stays: text is merged, and where
that does not come out clean nothing is changed and the conflicts are named, with
who changed the file (exit status 1).

A revert is a change like any other, and can itself be reverted (--change).
--dry-run tells what would happen, with a plan; --plan does just that, or nothing
if something has changed since. With --json: the server's answer, also that of a
conflict.`,
		Example: `  umbra revert --task a1b2c3d4 --dry-run
  umbra revert --task a1b2c3d4 --subtask add-types
  umbra revert --task a1b2c3d4 src/app.ts
  umbra revert --task a1b2c3d4 --change 4
  umbra revert --task a1b2c3d4 --on-conflict skip --include-external=false`,
		Args: cobraArgs(0, 1),
	}
	v.connection.flags(cmd.Flags())
	v.workspaceFlag(cmd.Flags())
	v.taskFlags(cmd.Flags())
	v.outputFlags(cmd.Flags())
	r.flags(cmd)
	cmd.RunE = v.action(func(ctx context.Context, args []string) error { return v.revert(ctx, r, args) })
	// What is wrong with the flags shows before a server is looked for.
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error { return r.check(v, len(args)) }
	return cmd
}

type revertFlags struct {
	change          uint64
	dryRun          bool
	onConflict      string
	includeExternal bool
	plan            string
}

func (r *revertFlags) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Uint64VarP(&r.change, "change", "c", 0, "only the change with the number `N`, which may be a revert")
	fs.BoolVarP(&r.dryRun, "dry-run", "n", false, "tell what would happen, and change nothing")
	fs.StringVar(&r.onConflict, "on-conflict", "fail", "fail: change nothing; skip: leave that file, do the rest; force: the state before the task (`HOW`)")
	fs.BoolVar(&r.includeExternal, "include-external", true, "undo changes made on disk that belong to the task too")
	fs.StringVar(&r.plan, "plan", "", "do just what the dry run of this `TOKEN` told")
}

func (r *revertFlags) check(v *verb, paths int) error {
	chosen := paths
	for _, given := range []bool{v.subtask != "", r.change != 0} {
		if given {
			chosen++
		}
	}
	switch {
	case v.task == "":
		return usageError{errors.New("say which task's work is to be undone: --task")}
	case chosen > 1:
		return usageError{errors.New("--subtask, --change and PATH exclude each other")}
	case r.onConflict != "fail" && r.onConflict != "skip" && r.onConflict != "force":
		return usageError{fmt.Errorf("--on-conflict is fail, skip or force, not %q", r.onConflict)}
	case r.plan != "" && r.dryRun:
		return usageError{errors.New("--plan and --dry-run exclude each other")}
	}
	return nil
}

func (v *verb) revert(ctx context.Context, r *revertFlags, args []string) error {
	body := map[string]any{"dry_run": r.dryRun, "on_conflict": r.onConflict, "include_external": r.includeExternal}
	if r.plan != "" {
		// The plan tells the rest.
		body = map[string]any{"plan": r.plan}
	}
	route := client.Path("tasks", v.task, "revert")
	switch {
	case v.subtask != "":
		route = client.Path("tasks", v.task, "subtasks", v.subtask, "revert")
	case r.change != 0:
		route = client.Path("tasks", v.task, "changes", strconv.FormatUint(r.change, 10), "revert")
	case len(args) > 0:
		w, err := v.pickWorkspace(ctx)
		if err != nil {
			return err
		}
		p, err := pathIn(w, args[0])
		if err != nil {
			return err
		}
		if p == "" {
			break // the root: all of it
		}
		text, encoding := wspath.EncodeJSON(p)
		body["path"] = text
		if encoding != "" {
			body["path_encoding"] = encoding
		}
	}
	var done client.Reverted
	raw, err := v.client.JSON(ctx, client.Request{Method: http.MethodPost, Path: route, Body: body}, &done)
	if e, ok := errors.AsType[*client.Error](err); ok && e.Code == "revert_conflict" {
		return v.conflicted(e)
	}
	if err != nil {
		return err
	}
	if v.json {
		err = v.printJSON(raw)
	} else {
		err = v.print(false, func(o *term.Output) error {
			writeReverted(o, &done)
			return nil
		})
	}
	if err == nil && len(done.Conflicts) > 0 {
		return exitError{exitFailed}
	}
	return err
}

// conflicted tells why nothing was changed.
func (v *verb) conflicted(e *client.Error) error {
	if v.json {
		return errors.Join(v.printJSON(e.Body), exitError{exitFailed})
	}
	var told client.Reverted
	if err := json.Unmarshal(e.Body, &told); err != nil {
		return e
	}
	err := v.print(false, func(o *term.Output) error {
		writeConflicts(o, told.Conflicts)
		return nil
	})
	fmt.Fprintln(v.stderr, "umbra: nothing was changed; --on-conflict skip does the rest, --on-conflict force takes the state before the task")
	return errors.Join(err, exitError{exitFailed})
}

func writeReverted(o *term.Output, r *client.Reverted) {
	for _, f := range r.Files {
		st := map[string]term.Style{"deleted": term.Removed, "restored": term.Added, "merged": term.Frag, "unchanged": term.Dim}[f.Action]
		o.Printf("%s %s", o.Paint(st, fmt.Sprintf("%-9s", f.Action)), term.Name(client.Bytes(f.Path, f.Encoding)))
		if f.Source == "external" {
			o.Printf("  (changed on disk)")
		}
		o.Printf("\n")
	}
	writeConflicts(o, r.Conflicts)
	switch {
	case r.DryRun && r.Entries == 0 && len(r.Conflicts) == 0:
		o.Printf("nothing to undo\n")
	case r.DryRun:
		o.Printf("would undo %s\n", count(r.Entries, "change", "changes"))
		if r.Plan != nil {
			o.Printf("plan: %s\n", *r.Plan)
		}
	case r.Commit == nil && len(r.Conflicts) > 0:
		o.Printf("nothing else to undo\n")
	case r.Commit == nil:
		o.Printf("nothing to undo\n")
	default:
		o.Printf("%s undone in %s\n", count(r.Entries, "change", "changes"), o.Paint(term.Commit, "commit "+short(*r.Commit)))
	}
}

// writeConflicts names each file, and who changed it.
func writeConflicts(o *term.Output, list []client.Conflict) {
	for _, x := range list {
		o.Printf("%s %s: %s since change #%d", o.Paint(term.Removed, fmt.Sprintf("%-9s", "conflict")),
			term.Name(client.Bytes(x.Path, x.Encoding)), x.Reason, x.Entry)
		by := x.ChangedBy
		if by.Commit != nil {
			who := "somebody"
			if by.Actor != nil && *by.Actor != "" {
				who = term.Line(*by.Actor)
			}
			o.Printf(", by %s", who)
			if by.Task != nil {
				o.Printf(" for task %s", *by.Task)
				if by.Subtask != nil {
					o.Printf("/%s", *by.Subtask)
				}
			}
			o.Printf(" in %s", o.Paint(term.Commit, "commit "+short(*by.Commit)))
		}
		o.Printf("\n")
	}
}
