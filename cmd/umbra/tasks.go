package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"umbra/internal/client"
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
		Args: noArgs,
	}
	v.connection.flags(cmd.Flags())
	v.outputFlags(cmd.Flags())
	cmd.Flags().StringVarP(&v.workspace, "workspace", "w", "", "only those of the workspace `WS`: its id or its directory")
	cmd.Flags().StringVar(&status, "status", "", "only those that are `STATUS`: executing, paused, completed, failed or cancelled")
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "at most `N` tasks")
	cmd.RunE = v.action(func(ctx context.Context, _ []string) error {
		if limit < 0 {
			return usageError{fmt.Errorf("--limit is %d", limit)}
		}
		q := url.Values{}
		if status != "" {
			q.Set("status", status)
		}
		if v.workspace != "" {
			w, err := v.findWorkspace(ctx, v.workspace)
			if err != nil {
				return err
			}
			q.Set("workspace", w.ID)
		}
		items := firstOf(client.Pages[client.Task](ctx, v.client, "/tasks", "tasks", q, taskPage(limit)), limit)
		if v.json {
			return v.printList("tasks", func(yield func(json.RawMessage, error) bool) {
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
		return v.print(false, func(o *term.Output) error {
			writeTasks(o, list)
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

// maxGoal is how much of a goal stands in a table.
const maxGoal = 72

func writeTasks(o *term.Output, list []client.Task) {
	if len(list) == 0 {
		o.Printf("no tasks\n")
		return
	}
	rows := [][]string{{"TASK", "STATUS", "CHANGES", "UPDATED", "WORKSPACE", "GOAL"}}
	for _, t := range list {
		rows = append(rows, []string{t.ID, t.Status, strconv.FormatUint(t.Changes, 10), stamp(t.Updated), t.WorkspaceID,
			term.Cut(term.Line(t.Goal), maxGoal)})
	}
	o.Table(rows)
}
