package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/cluster"
	"umbra/internal/errs"
	"umbra/internal/exitcode"
	"umbra/internal/intake"
	"umbra/internal/server"
	"umbra/internal/state"
	"umbra/internal/term"
)

func importCommand() *cobra.Command {
	v := &verb{}
	dry := false
	cmd := &cobra.Command{
		Use:   "import DATA_DIR [--dry-run] [--node NODE]",
		Short: "Copy the workspaces of a single server into a cluster",
		Long: `Copy the workspaces of a single server's data directory into a cluster, with their
history, tasks and their private files, sessions, toolsets and calls, the answers that are
kept for idempotency keys, and the server's tokens. IDs, numbers and commits stay. The
data directory is not changed, and must have no server. Nodes may run. The next run
continues an interrupted one.

Workspaces of directories become those of the node that --node names, else of the only
live node on this machine; it must have cluster.physical. Without such a node they, and
forks of them, are skipped, as layers over directories always are. What else is left is
listed with the reason, also with --dry-run. Copies of one workspace and its forks at a
time are in the directory for temporary files (TMPDIR).

Exit status 1: some were skipped, or the cluster has another history under the ID,
namespace or directory of one (conflict).`,
		Example: `  umbra cluster import /var/lib/umbra --dry-run
  umbra cluster import /var/lib/umbra --node n1`,
		Args: cli.One("one DATA_DIR is needed"),
	}
	v.flags(cmd)
	nodeFlag(cmd)
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
		o := intake.Options{Dir: args[0], Admin: a, Store: v.store, Dry: dry, Log: log}
		why, err := v.directories(cmd.Context(), a, &o)
		if err != nil {
			return err
		}
		rep, err := intake.Run(cmd.Context(), o)
		if err != nil {
			return err
		}
		if err := v.print(cmd, rep, func(w io.Writer) { printImport(w, rep, dry, why) }); err != nil || rep.Whole() {
			return err
		}
		return exitcode.With(exitcode.Failed)
	}
	return cmd
}

// directories sets the node that gets directories, or returns why none does.
func (v *verb) directories(ctx context.Context, a *cluster.Admin, o *intake.Options) (why string, err error) {
	db := state.New(a.Records())
	defer db.Close()
	to, err := server.FolderNode(ctx, a, db, v.cfg.Cluster.Node)
	if e, ok := errors.AsType[*errs.Error](err); ok && v.cfg.Cluster.Node == "" && e.Code == "physical_off" {
		return e.Detail, nil
	}
	o.Node, o.Arrive = to.Name, outsider(a, to).Arrive
	return "", err
}

func printImport(w io.Writer, r *intake.Report, dry bool, why string) {
	for _, x := range r.Workspaces {
		state := string(x.State)
		if dry && x.State == intake.Imported {
			state = "to be imported"
		}
		fmt.Fprintf(w, "%s  %s  %s  commit %d  %d bytes\n", x.ID, x.Kind, state, x.Seq, x.Bytes)
	}
	for _, x := range r.Left {
		fmt.Fprintf(w, "left: %s: %s\n", term.Line(x.What), x.Why)
	}
	if why != "" && !r.Whole() {
		fmt.Fprintf(w, "directories are skipped: %s\n", why)
	}
	if !dry {
		fmt.Fprintf(w, "%d tasks, %d files of tasks, %d sessions, %d toolsets, %d answers, %d tokens; %d bytes sent\n", r.Tasks, r.Files, r.Sessions, r.Toolsets, r.Answers, r.Tokens, r.SentBytes)
	}
}
