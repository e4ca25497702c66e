package fleet

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/cluster"
	"umbra/internal/exitcode"
	"umbra/internal/intake"
	"umbra/internal/server"
)

func importCommand() *cobra.Command {
	v := &verb{}
	dry := false
	cmd := &cobra.Command{
		Use:   "import DATA_DIR [--dry-run]",
		Short: "Copy the virtual workspaces of a single server into a cluster",
		Long: `Copy the virtual workspaces of a single server's data directory into a cluster, with
their history, tasks, sessions and toolsets, and the server's tokens. IDs, numbers and
commits stay. The data directory is not changed, and must have no server. Nodes may
run. The next run continues an interrupted one.

Workspaces of directories, and forks of them, are skipped. Copies of one workspace and
its forks at a time are in the directory for temporary files (TMPDIR).

Exit status 1: some were skipped, or the cluster has another history under the ID or
namespace of one (conflict).`,
		Example: `  umbra cluster import /var/lib/umbra --dry-run`,
		Args:    cli.One("one DATA_DIR is needed"),
	}
	v.flags(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be imported, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := v.load(cmd); err != nil {
			return err
		}
		a, err := cluster.Look(cmd.Context(), v.opts)
		if err != nil {
			return server.Refused(err)
		}
		defer a.Close()
		if err := a.CheckStore(cmd.Context(), v.store, v.place, 30*time.Second); err != nil {
			return server.Refused(err)
		}
		log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
		rep, err := intake.Run(cmd.Context(), intake.Options{Dir: args[0], Admin: a, Store: v.store, Dry: dry, Log: log})
		if err != nil {
			return err
		}
		if err := v.print(cmd, rep, func(w io.Writer) { printImport(w, rep, dry) }); err != nil || rep.Whole() {
			return err
		}
		return exitcode.With(exitcode.Failed)
	}
	return cmd
}

func printImport(w io.Writer, r *intake.Report, dry bool) {
	for _, x := range r.Workspaces {
		state := string(x.State)
		if dry && x.State == intake.Imported {
			state = "to be imported"
		}
		fmt.Fprintf(w, "%s  %s  %s  commit %d  %d bytes\n", x.ID, x.Kind, state, x.Seq, x.Bytes)
	}
	if !dry {
		fmt.Fprintf(w, "%d tasks, %d sessions, %d toolsets, %d tokens; %d bytes sent\n", r.Tasks, r.Sessions, r.Toolsets, r.Tokens, r.SentBytes)
	}
}
