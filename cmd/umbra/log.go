package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/render"
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

PATH is a file or a directory, from here if this directory lies in the workspace, else
from the workspace's root. With --json: {"entries":[…]}, the changelog's entries.`,
		Example: `  umbra log
  umbra log --task a1b2c3d4 --subtask add-types
  umbra log -n 20 src/app.ts`,
		Args: cli.Args(0, 1),
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.TaskFlags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	v.PagerFlag(cmd.Flags())
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "at most `N` changes")
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		if limit < 0 {
			return exitcode.Usage(fmt.Errorf("--limit must be 0 or more, not %d", limit))
		}
		w, err := v.PickWorkspace(ctx)
		if err != nil {
			return err
		}
		p, err := cli.OnePath(w, args)
		if err != nil {
			return err
		}
		entries := v.entries(ctx, w, p, limit)
		if v.JSON {
			return v.PrintList("entries", func(yield func(json.RawMessage, error) bool) {
				for item, err := range entries {
					if !yield(item.Raw, err) {
						return
					}
				}
			})
		}
		return v.Print(true, func(o *term.Output) error { return render.Log(o, entries) })
	})
	return cmd
}

// pageSize is how many entries are asked for at once.
const pageSize = 1000

// entries goes through the workspace's log, newest first, at most so many
// entries (0: all).
func (v *verb) entries(ctx context.Context, w cli.Place, p string, limit int) iter.Seq2[client.Item[client.Entry], error] {
	q := url.Values{}
	if v.Task != "" {
		q.Set("task_id", v.Task)
	}
	if p != "" {
		q.Set("path", p)
	}
	size := pageSize
	if limit > 0 && v.Subtask == "" {
		size = min(limit, pageSize)
	}
	return func(yield func(client.Item[client.Entry], error) bool) {
		n := 0
		for item, err := range client.Pages[client.Entry](ctx, v.Client, client.Path("workspaces", w.ID, "log"), "entries", q, size) {
			if err == nil && v.Subtask != "" && item.Value.SubtaskID != v.Subtask {
				continue
			}
			if n++; !yield(item, err) || n == limit {
				return
			}
		}
	}
}
