package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"umbra/internal/client"
	"umbra/internal/term"
)

func workspacesCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "workspaces",
		Short: "List the workspaces",
		Long: `List the workspaces: directories whose every change is recorded. state is clean,
reconciling (what is on disk is being recorded) or missing (the folder is gone).

With --json: {"workspaces":[…]}, as the server answers it.`,
		Example: `  umbra workspaces
  umbra workspaces --server http://127.0.0.1:8080 --json`,
		Args: noArgs,
	}
	v.connection.flags(cmd.Flags())
	v.outputFlags(cmd.Flags())
	cmd.RunE = v.action(func(ctx context.Context, _ []string) error {
		list, raw, err := v.client.Workspaces(ctx)
		if err != nil {
			return err
		}
		if v.json {
			return v.printJSON(raw)
		}
		return v.print(false, func(o *term.Output) error {
			writeWorkspaces(o, list)
			return nil
		})
	})
	return cmd
}

func writeWorkspaces(o *term.Output, list []client.Workspace) {
	if len(list) == 0 {
		o.Printf("no workspaces\n")
		return
	}
	rows := [][]string{{"WORKSPACE", "STATE", "TASKS", "HEAD", "ROOT"}}
	for _, w := range list {
		head, root := "-", "("+w.Kind+")"
		if w.Head != nil {
			head = short(*w.Head)
		}
		if w.Root != nil {
			root = term.Name(*w.Root)
		}
		rows = append(rows, []string{w.ID, w.State, strconv.Itoa(w.Tasks), head, root})
	}
	o.Table(rows)
	for _, w := range list {
		for _, text := range w.Warnings {
			o.Printf("%s %s: %s\n", o.Paint(term.Removed, "warning"), w.ID, term.Line(text))
		}
	}
}
