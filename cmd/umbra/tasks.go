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

func tasksCommand() *cobra.Command {
	v := &verb{}
	status, limit := "", 0
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "List tasks, newest first",
		Long: `List the tasks of all workspaces, or of one, newest first.

With --json: {"tasks":[…]}, as the server returns a task.`,
		Example: `  umbra tasks
  umbra tasks --workspace . --status executing
  umbra tasks -n 10 --json`,
		Args: cli.NoArgs,
	}
	v.Connection.Flags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	cmd.Flags().StringVarP(&v.Workspace, "workspace", "w", "", "only those of the workspace `WS`: its id or its directory")
	cmd.Flags().StringVar(&status, "status", "", "only those that are `STATUS`: executing, paused, completed, failed or cancelled")
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "at most `N` tasks")
	cmd.RunE = v.Action(func(ctx context.Context, _ []string) error {
		if limit < 0 {
			return exitcode.Usage(fmt.Errorf("--limit must be 0 or more, not %d", limit))
		}
		q := url.Values{}
		if status != "" {
			q.Set("status", status)
		}
		if v.Workspace != "" {
			w, err := v.FindWorkspace(ctx, v.Workspace)
			if err != nil {
				return err
			}
			q.Set("workspace", w.ID)
		}
		items := firstOf(client.Pages[client.Task](ctx, v.Client, "/tasks", "tasks", q, taskPage(limit)), limit)
		if v.JSON {
			return v.PrintList("tasks", func(yield func(json.RawMessage, error) bool) {
				for item, err := range items {
					if !yield(item.Raw, err) {
						return
					}
				}
			})
		}
		var list []client.Task
		for item, err := range items {
			if err != nil {
				return err
			}
			list = append(list, item.Value)
		}
		return v.Print(false, func(o *term.Output) error {
			render.Tasks(o, list)
			return nil
		})
	})
	return cmd
}

// taskPage is how many tasks are asked for at once.
func taskPage(limit int) int {
	if limit > 0 {
		return min(limit, 200)
	}
	return 200
}

// firstOf ends a sequence after so many elements; 0: it goes to its end.
func firstOf[T any](seq iter.Seq2[T, error], limit int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		n := 0
		for x, err := range seq {
			if n++; !yield(x, err) || n == limit {
				return
			}
		}
	}
}
