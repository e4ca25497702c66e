package main

import (
	"context"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/render"
	"umbra/internal/term"
)

func workspacesCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "workspaces",
		Short: "List the workspaces",
		Long: `List the workspaces: directories whose every change is recorded. state is clean,
reconciling (what is on disk is being recorded) or missing (the directory is gone).

With --json: {"workspaces":[…]}, as the server answers it.`,
		Example: `  umbra workspaces
  umbra workspaces --server http://127.0.0.1:8080 --json`,
		Args: cli.NoArgs,
	}
	v.Connection.Flags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	cmd.RunE = v.Action(func(ctx context.Context, _ []string) error {
		list, raw, err := v.Client.Workspaces(ctx)
		if err != nil {
			return err
		}
		return v.Answer(raw, func(o *term.Output) { render.Workspaces(o, list) })
	})
	return cmd
}
