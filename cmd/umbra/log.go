package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"umbra/internal/client"
	"umbra/internal/term"
)

func logCommand() *cobra.Command {
	v := &verb{}
	limit := 0
	cmd := &cobra.Command{
		Use:   "log [PATH]",
		Short: "Show the changes of a workspace or a task, newest first",
		Long: `Show the changes of a workspace, newest first: one paragraph a commit, one line a
change, with its number in the task.

PATH is a file or a folder, from here if this folder lies in the workspace, else
from the workspace's root. With --json: {"entries":[…]}, the changelog's entries.`,
		Example: `  umbra log
  umbra log --task a1b2c3d4 --subtask add-types
  umbra log -n 20 src/app.ts`,
		Args: cobraArgs(0, 1),
	}
	v.connection.flags(cmd.Flags())
	v.workspaceFlag(cmd.Flags())
	v.taskFlags(cmd.Flags())
	v.outputFlags(cmd.Flags())
	v.pagerFlag(cmd.Flags())
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "at most `N` changes")
	cmd.RunE = v.action(func(ctx context.Context, args []string) error {
		if limit < 0 {
			return usageError{fmt.Errorf("--limit is %d", limit)}
		}
		w, err := v.pickWorkspace(ctx)
		if err != nil {
			return err
		}
		p, err := onePath(w, args)
		if err != nil {
			return err
		}
		entries := v.entries(ctx, w, p, limit)
		if v.json {
			return v.printList("entries", func(yield func(json.RawMessage, error) bool) {
				for item, err := range entries {
					if !yield(item.Raw, err) {
						return
					}
				}
			})
		}
		return v.print(true, func(o *term.Output) error { return writeLog(o, entries) })
	})
	return cmd
}

// pageSize is how many entries are asked for at once.
const pageSize = 1000

// entries goes through the workspace's log, newest first, at most so many
// entries (0: all).
func (v *verb) entries(ctx context.Context, w place, p string, limit int) iter.Seq2[client.Item[client.Entry], error] {
	q := url.Values{}
	if v.task != "" {
		q.Set("task_id", v.task)
	}
	if p != "" {
		q.Set("path", p)
	}
	size := pageSize
	if limit > 0 && v.subtask == "" {
		size = min(limit, pageSize)
	}
	return func(yield func(client.Item[client.Entry], error) bool) {
		n := 0
		for item, err := range client.Pages[client.Entry](ctx, v.client, client.Path("workspaces", w.id, "log"), "entries", q, size) {
			if err == nil && v.subtask != "" && item.Value.SubtaskID != v.subtask {
				continue
			}
			if n++; !yield(item, err) || n == limit {
				return
			}
		}
	}
}

// abbrev is how many digits of an id are shown.
const abbrev = 12

func short(id string) string { return id[:min(len(id), abbrev)] }

func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// writeLog writes entries, those of one commit under one head.
func writeLog(o *term.Output, entries iter.Seq2[client.Item[client.Entry], error]) error {
	last := ""
	for item, err := range entries {
		if err != nil {
			return err
		}
		e := &item.Value
		if e.Commit != last {
			if last != "" {
				o.Printf("\n")
			}
			last = e.Commit
			o.Printf("%s  %s  %s\n", o.Paint(term.Commit, "commit "+short(e.Commit)), stamp(e.When), whose(e))
		}
		writeEntry(o, e)
		if o.Err() != nil {
			return o.Err()
		}
	}
	return nil
}

// whose tells the actor, the source, and the task with its subtask.
func whose(e *client.Entry) string {
	s := e.Source
	if e.Actor != "" {
		s = term.Line(e.Actor) + " (" + s + ")"
	}
	if e.TaskID != "" {
		s += "  task " + e.TaskID
	}
	if e.SubtaskID != "" {
		s += "/" + e.SubtaskID
	}
	return s
}

// writeEntry writes one line: "    #4  rename  a -> b".
func writeEntry(o *term.Output, e *client.Entry) {
	number := ""
	if e.ID != nil {
		number = fmt.Sprintf("#%d", *e.ID)
	}
	o.Printf("    %-5s %-7s %s", number, e.Operation, moved(e.Path, e.NewPath))
	if len(e.Reverts) > 0 {
		list := make([]string, len(e.Reverts))
		for i, n := range e.Reverts {
			if list[i] = "a change without a task"; n != 0 {
				list[i] = fmt.Sprintf("#%d", n)
			}
		}
		list = slices.Compact(list)
		o.Printf("  %s", o.Paint(term.Dim, "undoes "+strings.Join(list, ", ")))
	}
	o.Printf("\n")
}

// moved names a path, or two of a rename.
func moved(from, to string) string {
	if to == "" {
		return term.Name(from)
	}
	return term.Name(from) + " -> " + term.Name(to)
}

// cobraArgs refuses too few and too many arguments.
func cobraArgs(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low {
			return usageError{fmt.Errorf("an argument is missing: umbra %s", cmd.Use)}
		}
		if len(args) > high {
			return usageError{fmt.Errorf("unexpected argument %q", args[high])}
		}
		return nil
	}
}
