package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/demo"
	"umbra/internal/exitcode"
	"umbra/internal/term"
)

func demoCommand(stdout, stderr io.Writer) *cobra.Command {
	d := &demo.Demo{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play two scripted agents on a small project",
		Long: `Play a small agent's task on a project that is made for it in a temporary directory:
two agents work on it, one renames a file, one has an idea that fails, you edit a
file on disk in between, and the idea is undone, with a preview first. The commands
that show the result are printed at the end.

It plays on the server that holds the data directory. Where none runs it starts
one, and on a terminal that one stays until Ctrl-C, for the web UI; what it
recorded stays in the data directory. --clean removes all that demos have left:
their projects, workspaces and tasks.

With --json: {"workspace","root","task_id","steps":[{"actor","subtask","does",
"commit"}],"server"}; with --clean {"removed":[…]}.`,
		Example: `  umbra demo
  umbra demo --pace 2s        # with the web UI open
  umbra demo --clean`,
		Args: cli.NoArgs,
	}
	fs := cmd.Flags()
	d.Connection.Flags(fs)
	d.OutputFlags(fs)
	fs.BoolVar(&d.Clean, "clean", false, "remove what demos have left, and play nothing")
	fs.BoolVar(&d.Stay, "stay", false, "a server that was started stays until Ctrl-C; by default so on a terminal")
	fs.DurationVar(&d.Pace, "pace", 0, "wait so long between steps (`TIME`, as 500ms or 2s)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := term.ParseColor(d.Color); err != nil {
			return exitcode.Usage(err)
		}
		if d.Pace < 0 {
			return exitcode.Usage(errors.New("--pace is below zero"))
		}
		if !fs.Changed("stay") {
			d.Stay = term.IsTerminal(stdout) && !d.JSON
		}
		d.Stdout, d.Stderr = stdout, stderr
		return cli.Misused(d.Start(cmd))
	}
	return cmd
}
