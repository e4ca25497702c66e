// Package fleet has the verbs about a cluster: umbra cluster init, status, drain, import, adopt.
//
// It is for cmd/umbra alone.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/blob"
	"umbra/internal/cli"
	"umbra/internal/cluster"
	"umbra/internal/exitcode"
	"umbra/internal/server"
	"umbra/internal/term"
)

// Command returns umbra cluster with its verbs.
func Command() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "cluster",
		Short: "Make, check, drain and fill a cluster of servers",
		Long: `Make, check, drain and fill a cluster: several servers (nodes) that share PostgreSQL
and an object store. The two are named by --cluster and --blobs, by
UMBRA_CLUSTER_URL and UMBRA_CLUSTER_BLOBS, or by the settings' file (--config).

Exit status: 0 done, 1 something was found or is left, 2 wrong use.`,
		Example: `  umbra cluster init --cluster postgres://umbra@db1,db2/umbra --blobs s3://umbra-packs/prod
  umbra cluster status`,
	}, initCommand(), statusCommand(), drainCommand(), importCommand(), adoptCommand())
}

// verb is what the verbs share.
type verb struct {
	json bool

	opts  cluster.Options
	store blob.Store
	place string
	cfg   config.Config
}

func (v *verb) flags(cmd *cobra.Command) {
	all := cmd.Flags()
	config.ClusterFlags(all, false)
	all.String("config", "", "read settings from `FILE` (YAML or TOML, by its extension)")
	all.BoolVar(&v.json, "json", false, "print JSON")
}

func (v *verb) load(cmd *cobra.Command) (err error) {
	if v.cfg, err = config.Load(cmd.Flags()); err != nil {
		return exitcode.Usage(err)
	}
	v.opts, v.store, v.place, err = server.ClusterParts(cmd.Context(), v.cfg)
	return err
}

// print writes an answer as JSON, or for a user.
func (v *verb) print(cmd *cobra.Command, answer any, text func(io.Writer)) error {
	if !v.json {
		text(cmd.OutOrStdout())
		return nil
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", raw)
	return err
}

func initCommand() *cobra.Command {
	v := &verb{}
	lease := cluster.DefaultLease
	cmd := &cobra.Command{
		Use:   "init [--lease 3s]",
		Short: "Make a cluster in an empty database, or upgrade its schema",
		Long: `Make a cluster in an empty database and mark the object store as its own; of one
that exists, upgrade the schema. Nodes do it as well when they start.

The lease is how long a node may answer without an answer of PostgreSQL, and after
which others take over from one that is silent: 1s to 30s, for all nodes. It is
set here once.`,
		Example: `  umbra cluster init --cluster postgres://umbra@db1,db2/umbra --blobs s3://umbra-packs/prod`,
		Args:    cli.Args(0, 0),
	}
	v.flags(cmd)
	cmd.Flags().DurationVar(&lease, "lease", lease, "`DURATION` of a node's lease: 1s to 30s")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if lease < cluster.MinLease || lease > cluster.MaxLease {
			return exitcode.Usage(fmt.Errorf("--lease must be %v to %v", cluster.MinLease, cluster.MaxLease))
		}
		if err := v.load(cmd); err != nil {
			return err
		}
		v.opts.Lease = lease
		a, err := cluster.Init(cmd.Context(), v.opts)
		if err != nil {
			return server.Refused(err)
		}
		defer a.Close()
		if err := a.CheckStore(cmd.Context(), v.store, v.place, 30*time.Second); err != nil {
			return server.Refused(err)
		}
		location, err := blob.Parse(v.cfg.Cluster.Blobs)
		if err != nil {
			return err
		}
		c := a.Cluster()
		made := struct {
			Cluster string `json:"cluster"`
			Schema  int    `json:"schema"`
			LeaseMS int64  `json:"lease_ms"`
			Blobs   string `json:"blobs"`
			Created bool   `json:"created"`
		}{c.ID, c.Schema, c.Lease.Milliseconds(), location.String(), c.Created}
		return v.print(cmd, made, func(w io.Writer) {
			state := "exists"
			if made.Created {
				state = "was made"
			}
			fmt.Fprintf(w, "cluster %s %s: schema %d, lease %v, packs in %s\n", made.Cluster, state, made.Schema, c.Lease, made.Blobs)
		})
	}
	return cmd
}

func statusCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "status [WS…]",
		Short: "Show engine, store, nodes and workspaces of a cluster",
		Long: `Show the state of PostgreSQL, of the object store and of the nodes, and sums over
the workspaces; with WS, of these workspaces. Nothing is changed.

Exit status 1: PostgreSQL or the store is not ok, or the node of a pinned
workspace is gone.`,
		Example: `  umbra cluster status --json`,
	}
	v.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := v.load(cmd); err != nil {
			return err
		}
		ctx := cmd.Context()
		v.opts.Patience = 5 * time.Second
		a, err := cluster.Look(ctx, v.opts)
		if err != nil {
			return v.unreachable(cmd, server.Refused(err))
		}
		defer a.Close()
		if len(args) > 0 {
			return v.workspaces(cmd, a, args)
		}
		s, err := a.Status(ctx, v.store)
		if err != nil {
			return err
		}
		if err := v.print(cmd, s, func(w io.Writer) { printStatus(w, s) }); err != nil || s.OK() {
			return err
		}
		return exitcode.With(exitcode.Failed)
	}
	return cmd
}

// unreachable prints what can be said without PostgreSQL.
func (v *verb) unreachable(cmd *cobra.Command, err error) error {
	r, ok := errors.AsType[*cluster.Refusal](err)
	if !ok || r.Code != "engine_unreachable" || !v.json {
		return err
	}
	s := &cluster.Status{Engine: cluster.EngineStatus{State: "unreachable"}, Nodes: []cluster.NodeStatus{}}
	s.Blobs = cluster.StoreAlone(cmd.Context(), v.store)
	return errors.Join(v.print(cmd, s, nil), err)
}

func (v *verb) workspaces(cmd *cobra.Command, a *cluster.Admin, ids []string) error {
	list, err := a.Workspaces(cmd.Context(), v.store, ids)
	if err != nil {
		return err
	}
	down := false
	for _, w := range list {
		down = down || w.State == "node_down"
	}
	err = v.print(cmd, map[string]any{"workspaces": list}, func(out io.Writer) {
		for _, w := range list {
			owner := "-"
			if w.Owner != nil {
				owner = *w.Owner
			}
			fmt.Fprintf(out, "%s  %s  %s  owner %s  epoch %d  commit %d  %d bytes unsealed  %d packs\n", w.ID, w.Kind, w.State, term.Line(owner), w.Epoch, w.Seq, w.UnsealedBytes, w.Packs)
			for _, dir := range w.Orphaned {
				fmt.Fprintf(out, "  commits that did not go on: %s\n", term.Line(dir))
			}
		}
	})
	if err == nil && down {
		return exitcode.With(exitcode.Failed)
	}
	return err
}

func printStatus(w io.Writer, s *cluster.Status) {
	fmt.Fprintf(w, "cluster     %s, schema %d, lease %d ms\n", s.Cluster, s.Schema, s.LeaseMS)
	fmt.Fprintf(w, "PostgreSQL  %s, version %s, %d standbys, %d ms\n", s.Engine.State, s.Engine.Version, s.Engine.Standbys, s.Engine.LatencyMS)
	fmt.Fprintf(w, "store       %s, %d ms\n", s.Blobs.State, s.Blobs.LatencyMS)
	for _, n := range s.Nodes {
		fmt.Fprintf(w, "node        %s  %s  %s  %s  last beat %d ms ago  owns %d  pinned %d\n", term.Line(n.Node), n.State, term.Line(n.Address), term.Line(n.Version), n.BeatAgeMS, n.Owned, n.Pinned)
	}
	t := s.Workspaces
	fmt.Fprintf(w, "workspaces  %d, owned %d, pinned %d; %d bytes unsealed, the oldest for %d s\n", t.Total, t.Owned, t.Pinned, t.UnsealedBytes, t.OldestUnsealedS)
	fmt.Fprintf(w, "garbage     %d objects, %d bytes\n", s.Garbage.Objects, s.Garbage.Bytes)
}

func drainCommand() *cobra.Command {
	v := &verb{}
	within := 30 * time.Second
	undo := false
	cmd := &cobra.Command{
		Use:   "drain NODE [--timeout 30s] [--undo]",
		Short: "Make a node hand its workspaces over",
		Long: `Make a node hand its workspaces over to whichever node is asked for them next, and
take no others, until --undo. Workspaces that are pinned to the node are left.

Exit status 1: some are left.`,
		Example: `  umbra cluster drain n2 --timeout 1m`,
		Args:    cli.One("the name of one NODE is needed"),
	}
	v.flags(cmd)
	cmd.Flags().DurationVar(&within, "timeout", within, "wait for `DURATION`")
	cmd.Flags().BoolVar(&undo, "undo", false, "let the node take workspaces again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if within < 0 {
			return exitcode.Usage(errors.New("--timeout must not be negative"))
		}
		if err := v.load(cmd); err != nil {
			return err
		}
		return v.drain(cmd.Context(), cmd, args[0], within, undo)
	}
	return cmd
}

func (v *verb) drain(ctx context.Context, cmd *cobra.Command, node string, within time.Duration, undo bool) error {
	a, err := cluster.Look(ctx, v.opts)
	if err != nil {
		return server.Refused(err)
	}
	defer a.Close()
	d, err := a.Drain(ctx, node, within, undo, func(ctx context.Context, p cluster.Peer) error { return outsider(a, p).Look(ctx) })
	if err != nil {
		return err
	}
	err = v.print(cmd, d, func(w io.Writer) {
		fmt.Fprintf(w, "node %s released %d workspaces in %d ms; %d are left\n", d.Node, d.Released, d.TookMS, len(d.Left))
		for _, ws := range d.Left {
			fmt.Fprintf(w, "  %s\n", ws)
		}
	})
	if err == nil && len(d.Left) > 0 {
		return exitcode.With(exitcode.Failed)
	}
	return err
}
