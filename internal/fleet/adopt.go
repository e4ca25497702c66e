package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"umbra/httpapi/forward"
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
	virtual, into := false, ""
	cmd := &cobra.Command{
		Use:   "adopt WS --virtual | --into DIR",
		Short: "Let a directory's workspace go on when its node does not come back",
		Long: `Let the workspace of a directory go on from the copy that the cluster has of its
history, when the directory's node does not come back: as a virtual workspace, which any
node may own, or in a directory of another node. Commits that were not copied are not in
it; the copy was at most 2 s behind.

With --into, DIR is a directory of the machine of the node that --node names, else of
this machine, whose only live node it is then. It is made where it is missing, must be
empty, and gets the files of the newest commit. Run the same command again
to continue one that was cut off.

Where the former node comes back it does not go on with the workspace. Commits of it that
were not copied are then in directories journal/orphaned-* there, which umbra cluster
status WS names and git reads.

Exit status 1: the former node is live (node_alive), another run is at work on the
workspace (adopt_running), or the node opens no directories (physical_off).`,
		Example: `  umbra cluster adopt notes-5f44ec7d --virtual
  umbra cluster adopt notes-5f44ec7d --into /srv/notes --node n2`,
		Args: cli.One("the ID of one workspace is needed"),
	}
	v.flags(cmd)
	cmd.Flags().BoolVar(&virtual, "virtual", false, "go on as a virtual workspace")
	cmd.Flags().StringVar(&into, "into", "", "go on in the directory `DIR`")
	nodeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if virtual == (into != "") {
			return exitcode.Usage(errors.New("one of --virtual and --into is needed"))
		}
		if into != "" {
			var err error
			if into, err = filepath.Abs(into); err != nil {
				return exitcode.Usage(err)
			}
		}
		if err := v.load(cmd); err != nil {
			return err
		}
		a, err := cluster.Look(cmd.Context(), v.opts)
		if err != nil {
			return server.Refused(err)
		}
		defer a.Close()
		r, err := v.adopt(cmd.Context(), a, args[0], into)
		if err != nil {
			return err
		}
		return v.print(cmd, r, func(w io.Writer) {
			how := "as a virtual workspace"
			if into != "" {
				how = "in " + into
			}
			if r.Owner != nil {
				how += " of node " + *r.Owner
			}
			fmt.Fprintf(w, "%s goes on from commit %d, copied at %s, %s\n", r.ID, r.Seq, r.CopiedAt.Format(time.RFC3339), how)
		})
	}
	return cmd
}

// nodeFlag adds the flag that says which node a verb acts on (cluster.node).
func nodeFlag(cmd *cobra.Command) {
	cmd.Flags().String("node", "", "`NAME` of the node that gets directories (default: the only live one on this machine)")
}

// adopt lets a workspace go on in a directory, or, where that is empty, as a virtual one.
func (v *verb) adopt(ctx context.Context, a *cluster.Admin, ws, into string) (*adopt.Result, error) {
	db := state.New(a.Records())
	defer db.Close()
	if into == "" {
		records, err := datadir.OpenRecords(db)
		if err != nil {
			return nil, err
		}
		return adopt.Virtual(ctx, a, v.store, records, ws)
	}
	to, err := server.FolderNode(ctx, a, db, v.cfg.Cluster.Node)
	if err != nil {
		return nil, err
	}
	r := &adopt.Result{}
	return r, outsider(a, to).Adopt(ctx, ws, into, r)
}

// outsider sends requests to a node.
func outsider(a *cluster.Admin, to cluster.Peer) *forward.Outsider {
	return &forward.Outsider{Key: a.Cluster().Key, To: forward.Peer{Life: to.Life, Name: to.Name, Address: to.Address, URL: to.URL, Draining: to.Draining}}
}
