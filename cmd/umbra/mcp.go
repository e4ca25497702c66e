package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/exitcode"
	"umbra/internal/mcplink"
)

func mcpCommand() *cobra.Command {
	k := &mcplink.Link{Connection: cli.Connection{Share: true}}
	var mounts []string
	var task string
	cmd := &cobra.Command{
		Use:   "mcp --mount PREFIX=DIR[:SCOPE]",
		Short: "Serve directories to an MCP client over standard input and output",
		Long: `Serve directories to an MCP client over standard input and output.

Each mount shows a directory under a prefix. SCOPE is READ_ONLY, READ_WRITE (the
default) or WRITE_ONLY. PREFIX=virtual:SEGMENT/SEGMENT[:SCOPE] mounts the virtual
store of a namespace, whose files exist only in git.

If a server has the data directory open, umbra mcp works through that server. If
none does, it opens the directory itself, and later ones work through it. So several
editors can run side by side.`,
		Example: `  umbra mcp --mount /project=. --mount /docs=~/docs:READ_ONLY
  umbra mcp --mount /notes=virtual:team/notes`,
		Args: cli.NoArgs,
	}
	fs := cmd.Flags()
	k.Flags(fs)
	fs.StringArrayVar(&mounts, "mount", nil, "mount `PREFIX=DIR[:SCOPE]`; may be given several times")
	fs.StringVarP(&task, "task", "t", "", "changes in its workspace belong to the task `T`; else to a new one")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		table, err := mcplink.ParseMounts(mounts)
		if err != nil {
			return exitcode.Usage(err)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		// A client that leaves is an error of writing.
		pipes := make(chan os.Signal, 1)
		signal.Notify(pipes, syscall.SIGPIPE)
		defer signal.Stop(pipes)
		return cli.Misused(k.Serve(ctx, cmd, table, task))
	}
	return cmd
}
