package fleet

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"umbra/internal/adopt"
	"umbra/internal/cli"
	"umbra/internal/cluster"
	"umbra/internal/datadir"
	"umbra/internal/exitcode"
	"umbra/internal/server"
	"umbra/internal/state"
)

func adoptCommand() *cobra.Command {
	v := &verb{}
	virtual := false
	cmd := &cobra.Command{
		Use:   "adopt WS --virtual",
		Short: "Let a directory's workspace go on when its node does not come back",
		Long: `Let the workspace of a directory go on from the copy that the cluster has of its
history, when the directory's node does not come back: as a virtual workspace, which any
node may own. Commits that were not copied are not in it; the copy was at most 2 s behind.

Where the node comes back it does not go on with the workspace. Commits of it that were
not copied are then in directories journal/orphaned-* there, which umbra cluster status WS
names and git reads.

Exit status 1: the node is live (node_alive).`,
		Example: `  umbra cluster adopt notes-5f44ec7d --virtual`,
		Args:    cli.One("the ID of one workspace is needed"),
	}
	v.flags(cmd)
	cmd.Flags().BoolVar(&virtual, "virtual", false, "go on as a virtual workspace")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !virtual {
			return exitcode.Usage(errors.New("--virtual is needed"))
		}
		if err := v.load(cmd); err != nil {
			return err
		}
		a, err := cluster.Look(cmd.Context(), v.opts)
		if err != nil {
			return server.Refused(err)
		}
		defer a.Close()
		db := state.New(a.Records())
		defer db.Close()
		records, err := datadir.OpenRecords(db)
		if err != nil {
			return err
		}
		r, err := adopt.Virtual(cmd.Context(), a, v.store, records, args[0])
		if err != nil {
			return err
		}
		return v.print(cmd, r, func(w io.Writer) {
			fmt.Fprintf(w, "%s goes on from commit %d, copied at %s, as a virtual workspace\n", r.ID, r.Seq, r.CopiedAt.Format(time.RFC3339))
		})
	}
	return cmd
}
