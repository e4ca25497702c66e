package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/term"
)

func taskCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "task",
		Short: "Start or end a task",
		Long: `Start or end a task: a named piece of work whose changes can be shown and undone
together. 'umbra tasks' lists them.`,
		Example: `  umbra task start add a login page
  umbra task end a1b2c3d4`,
	}, taskStartCommand(), taskEndCommand())
}

func taskStartCommand() *cobra.Command {
	v := &verb{}
	id := ""
	cmd := &cobra.Command{
		Use:   "start GOAL",
		Short: "Start a task and print its id",
		Long: `Start a task on a workspace and print its id. The words of the goal need no
quotes. With --json: the task, as the server answers it.`,
		Example: `  umbra task start add a login page
  umbra task start --workspace ~/projects/app --id login "add a login page"`,
		Args: cli.Args(1, 1000),
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	cmd.Flags().StringVar(&id, "id", "", "the task's `ID`; else one is made")
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		w, err := v.PickWorkspace(ctx)
		if err != nil {
			return err
		}
		if w.Root == "" {
			return exitcode.Usage(errors.New("the workspace " + w.ID + " is virtual; its tasks are made by the programs that use it"))
		}
		body := map[string]any{"goal": strings.Join(args, " "), "workspace": w.Root}
		if id != "" {
			body["task_id"] = id
		}
		return v.changeTask(ctx, client.Request{Method: http.MethodPost, Path: "/tasks", Body: body})
	})
	return cmd
}

// ends are the states that end a task.
var ends = []string{"completed", "failed", "cancelled"}

func taskEndCommand() *cobra.Command {
	v := &verb{}
	status := ""
	cmd := &cobra.Command{
		Use:   "end TASK",
		Short: "End a task; its changes stay",
		Long: `End a task. Its changes stay and can still be shown and undone; no further ones are
taken under its name. With --json: the task, as the server answers it.`,
		Example: `  umbra task end a1b2c3d4
  umbra task end a1b2c3d4 --status failed`,
		Args: cli.Args(1, 1),
	}
	v.Connection.Flags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	cmd.Flags().StringVar(&status, "status", ends[0], "how it ended: completed, failed or cancelled (`STATUS`)")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(ends, status) {
			return exitcode.Usage(errors.New("--status is completed, failed or cancelled, not " + term.Name(status)))
		}
		return nil
	}
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		return v.changeTask(ctx, client.Request{Method: http.MethodPatch, Path: client.Path("tasks", args[0]), Body: map[string]any{"status": status}})
	})
	return cmd
}

// changeTask sends a request that answers with a task, and prints its id.
func (v *verb) changeTask(ctx context.Context, r client.Request) error {
	var t client.Task
	raw, err := v.Client.JSON(ctx, r, &t)
	if err != nil {
		return err
	}
	return v.Answer(raw, func(o *term.Output) { o.Printf("%s\n", t.ID) })
}
