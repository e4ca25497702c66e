package main

import (
	"context"
	"net/url"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/render"
	"umbra/internal/term"
)

func summaryCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "summary [PATH]",
		Short: "Show the net changes of a task, by file",
		Long: `Show the net changes of a task, file by file: A added, M modified, D deleted,
R renamed, with the lines added and removed. A file that is as it was before is
not listed; "mixed" marks one that others changed in between.

Without --task it is the workspace's only task. With --json: the server's
changed-files summary.`,
		Example: `  umbra summary --task a1b2c3d4
  umbra summary --task a1b2c3d4 --subtask add-types src/`,
		Args: cli.Args(0, 1),
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.TaskFlags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	v.PagerFlag(cmd.Flags())
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		_, task, p, err := v.PickFiles(ctx, args)
		if err != nil {
			return err
		}
		sum, raw, err := v.summary(ctx, task)
		if err != nil {
			return err
		}
		if v.JSON {
			if p != "" {
				if raw, err = render.Narrow(raw, p); err != nil {
					return err
				}
			}
			return v.PrintJSON(raw)
		}
		return v.Print(true, func(o *term.Output) error {
			render.Summary(o, render.Under(sum.Files, p))
			return nil
		})
	})
	return cmd
}

// summary reads a task's summary, or that of the one subtask.
func (v *verb) summary(ctx context.Context, task string) (sum client.Summary, raw []byte, err error) {
	q := url.Values{}
	if v.Subtask != "" {
		q.Set("subtask_id", v.Subtask)
	}
	raw, err = v.Client.JSON(ctx, client.Request{Path: client.Path("tasks", task, "files"), Query: q}, &sum)
	return sum, raw, err
}
