package main

import (
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/cli"
	"umbra/internal/exitcode"
	"umbra/internal/server"
)

func serveCommand(stdout, stderr io.Writer) *cobra.Command {
	var idle time.Duration
	cmd := &cobra.Command{
		Use:   "serve [DIR]",
		Short: "Start the server",
		Long: `Start the server: tasks, sessions, toolsets and MCP, code, scripts, git and the web
UI on one port. When it is ready, one line on standard output names the address.
The routes, and the log, are written to standard error.

With DIR, that directory is opened as a workspace at once: what is in it is recorded
before the server is ready. SIGTERM or Ctrl-C ends it cleanly; what was accepted
is finished, for ten seconds at most.

Settings are flags, UMBRA_… variables and a file (--config), in this order;
config.yaml in the sources lists them all.`,
		Example: `  umbra serve
  umbra serve ~/projects/app
  umbra serve --listen 127.0.0.1:9000 --data-dir ~/umbra-data`,
		Args: cli.Args(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Load(cmd.Flags())
			if err != nil {
				return exitcode.Usage(err)
			}
			folder, err := cli.FolderArgument(args)
			if err != nil {
				return err
			}
			if idle < 0 {
				return exitcode.Usage(errors.New("--idle-exit must not be negative"))
			}
			return server.Serve(cmd.Context(), cfg, server.Options{Folder: folder, Idle: idle, AnyPort: idle > 0}, stdout, stderr)
		},
	}
	config.Flags(cmd.Flags())
	config.ClusterFlags(cmd.Flags(), true)
	cmd.Flags().DurationVar(&idle, "idle-exit", 0, "end after `DURATION` without a request, and take another port if the address is in use")
	return cmd
}
