package server

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"umbra/config"
	"umbra/internal/blob"
	"umbra/internal/cluster"
	"umbra/internal/doctor"
)

const (
	// doctorPatience is how long engine and store are tried for umbra doctor.
	doctorPatience = 5 * time.Second
	// slowEngine is from which time of a small query on the engine counts as slow: each
	// commit takes longer.
	slowEngine = 20 * time.Millisecond
	// crowded is the share of its connections above which the engine counts as full.
	crowded = 0.8
	// clockOff is how far the boot clock's rate may be off before a lease is not what it
	// says. Measuring it takes two answers of the engine.
	clockOff = 0.05
)

// examination gathers findings about a cluster.
type examination struct{ list []doctor.Finding }

func (x *examination) ok(check, format string, args ...any) {
	x.list = append(x.list, doctor.Finding{Check: check, Level: doctor.OK, Detail: fmt.Sprintf(format, args...)})
}

func (x *examination) add(check string, level doctor.Level, do, format string, args ...any) {
	x.list = append(x.list, doctor.Finding{Check: check, Level: level, Detail: fmt.Sprintf(format, args...), Do: do})
}

// clusterFindings checks what nodes share. It takes about a second.
func clusterFindings(ctx context.Context, cfg config.Config) []doctor.Finding {
	x := &examination{}
	opts, store, place, err := ClusterParts(ctx, cfg)
	if err != nil {
		x.add("cluster", doctor.Hurts, "correct the settings", "%s", strings.TrimPrefix(err.Error(), "cluster: "))
		return x.list
	}
	opts.Patience = doctorPatience
	a, err := cluster.Look(ctx, opts)
	if err != nil {
		x.add("engine", doctor.Hurts, "see docs/FLEET.md, \"When a start is refused\"", "%v", Refused(err))
		x.storeAlone(ctx, store, place)
		return x.list
	}
	defer a.Close()
	facts, err := a.Facts(ctx)
	if err != nil {
		x.add("engine", doctor.Hurts, "is PostgreSQL's primary up, and reachable from this machine", "%v", err)
		x.storeAlone(ctx, store, place)
		return x.list
	}
	x.engine(facts)
	x.replication(facts, cfg.Cluster.Replication)
	x.store(ctx, store, blob.Check(ctx, store, place, a.Cluster().ID, false, doctorPatience), place)
	x.nodes(ctx, a, store)
	if off := math.Abs(facts.Rate - 1); facts.Rate == 0 || off < clockOff {
		x.ok("clock", "the clock since the system's start runs as fast as the engine's")
	} else {
		x.add("clock", doctor.Hurts, "a virtual machine that is paused or migrated has such a clock: a lease is then longer or shorter than it says, and reads may be stale",
			"the clock since the system's start runs at %.2f times the engine's", facts.Rate)
	}
	return x.list
}

// manyDead is from how many dead rows on a table counts as not vacuumed, where they are
// more than the living ones.
const manyDead = 1_000_000

func (x *examination) engine(f *cluster.Facts) {
	switch {
	case f.Latency > slowEngine:
		x.add("engine", doctor.Note, "a commit takes longer than this: bring the nodes near to the primary", "PostgreSQL %s answers in %v", f.Version, f.Latency.Round(time.Microsecond))
	default:
		x.ok("engine", "PostgreSQL %s answers in %v", f.Version, f.Latency.Round(time.Microsecond))
	}
	if f.Settings["autovacuum"] != "on" {
		x.add("engine", doctor.Hurts, "set autovacuum = on", "autovacuum is %s: the log's rows are never reused", f.Settings["autovacuum"])
	}
	if f.Settings["synchronous_commit"] == "off" {
		// Nodes set it for their own connections.
		x.add("engine", doctor.Note, "set synchronous_commit = on", "synchronous_commit is off for other clients of this server")
	}
	if float64(f.Connections) > crowded*float64(f.MaxConnections) {
		x.add("engine", doctor.Hurts, "raise max_connections, or find out whose they are", "%d of %d connections are in use", f.Connections, f.MaxConnections)
	}
	for _, t := range f.Tables {
		if t.Dead > manyDead && t.Dead > t.Live {
			since := "never"
			if t.Vacuumed >= 0 {
				since = t.Vacuumed.Round(time.Second).String() + " ago"
			}
			x.add("engine", doctor.Hurts, "look for old transactions and idle replication slots, which hold the cleanup back; with hot_standby_feedback a query on a standby does too",
				"table %s has %d dead rows and %d living ones, and was vacuumed %s", t.Name, t.Dead, t.Live, since)
		}
	}
}

func (x *examination) replication(f *cluster.Facts, mode string) {
	names := f.Settings["synchronous_standby_names"]
	switch mode {
	case cluster.ReplicationProvider:
		x.ok("replication", "left to the provider's storage (cluster.replication)")
		return
	case cluster.ReplicationNone:
		x.add("replication", doctor.Hurts, "set cluster.replication: sync", "an acknowledged commit is on one machine (cluster.replication: none)")
		return
	}
	bad := false
	for _, s := range [][2]string{{"synchronous_standby_names", names}, {"fsync", f.Settings["fsync"]}, {"full_page_writes", f.Settings["full_page_writes"]}} {
		if strings.TrimSpace(s[1]) == "" || s[1] == "off" {
			value := s[1]
			if value == "" {
				value = "empty"
			}
			bad = true
			x.add("replication", doctor.Hurts, "set it on this server and on every standby: ALTER SYSTEM is not replicated", "%s is %s: nodes refuse writes", s[0], value)
		}
	}
	if bad {
		return
	}
	var waited, others []string
	hidden := 0
	for _, s := range f.Standbys {
		switch {
		case s.Name == "" && s.Sync == "":
			hidden++
		case s.Waited():
			waited = append(waited, s.Name+" ("+s.Sync+")")
		default:
			others = append(others, s.Name+" ("+s.Sync+")")
		}
	}
	switch {
	case len(waited) > 0:
		detail := "commits wait for " + names + ": " + strings.Join(waited, ", ")
		if len(others) > 0 {
			detail += "; not for " + strings.Join(others, ", ")
		}
		x.ok("replication", "%s", detail)
	case hidden > 0:
		x.add("replication", doctor.Note, "grant the role pg_monitor to see which", "commits wait for %s; %d standbys are connected, and this role may not see which", names, hidden)
	default:
		x.add("replication", doctor.Hurts, "start a standby of that name: until then no commit is answered", "commits wait for %s, and no such standby is connected", names)
	}
}

func (x *examination) storeAlone(ctx context.Context, store blob.Store, place string) {
	if s := cluster.StoreAlone(ctx, store); s.State == "unreachable" {
		x.add("blobs", doctor.Hurts, "network, credentials, bucket", "%s cannot be reached", place)
	} else {
		x.ok("blobs", "%s answers in %d ms", place, s.LatencyMS)
	}
}

func (x *examination) store(ctx context.Context, store blob.Store, err error, place string) {
	if err != nil {
		x.add("blobs", doctor.Hurts, "the rights PutObject, GetObject, ListBucket and DeleteObject are needed below the prefix", "%v", Refused(err))
		return
	}
	s := cluster.StoreAlone(ctx, store)
	x.ok("blobs", "%s takes PUT, ranged GET, LIST and DELETE, and answers in %d ms", place, s.LatencyMS)
	v, ok := store.(interface {
		Versioning(context.Context) (bool, error)
	})
	if !ok {
		return
	}
	switch on, err := v.Versioning(ctx); {
	case err != nil:
		x.add("blobs", doctor.Note, "grant GetBucketVersioning", "whether the bucket keeps versions cannot be seen: %v", err)
	case on:
		x.add("blobs", doctor.OK, "", "the bucket keeps versions: a database can be restored to an earlier time; bytes that were purged stay as versions")
	default:
		x.add("blobs", doctor.Note, "turn versioning on, with a rule that ends old versions, if the database may have to be restored further back than cluster.garbage_grace",
			"the bucket keeps no versions: packs that were dropped are gone after cluster.garbage_grace")
	}
}

// nodes reports the cluster's members, and whether this machine reaches them.
func (x *examination) nodes(ctx context.Context, a *cluster.Admin, store blob.Store) {
	s, err := a.Status(ctx, store)
	if err != nil {
		x.add("cluster", doctor.Hurts, "", "%s", strings.TrimPrefix(err.Error(), "cluster: "))
		return
	}
	x.ok("cluster", "cluster %s, schema %d, lease %d ms, %d workspaces", s.Cluster, s.Schema, s.LeaseMS, s.Workspaces.Total)
	if s.Blobs.State == "shared" {
		x.add("cluster", doctor.Hurts, "give the copy of the database a prefix of its own", "another database, a copy, sweeps the same prefix: nothing is deleted any more (shared)")
	}
	client := &http.Client{Timeout: doctorPatience}
	defer client.CloseIdleConnections()
	for _, n := range s.Nodes {
		switch {
		case n.State == "dead" && n.Pinned > 0:
			x.add("cluster", doctor.Hurts, "start it again, or 'umbra cluster adopt' its workspaces", "node %s is dead, and %d workspaces are pinned to it", n.Node, n.Pinned)
		case n.State == "dead":
		default:
			if err := reach(ctx, client, n.Address); err != nil {
				x.add("cluster", doctor.Hurts, "requests are forwarded there: open the way between nodes, or correct cluster.advertise of that node", "node %s cannot be reached from here at %s: %v", n.Node, n.Address, err)
			} else {
				x.ok("cluster", "node %s is %s at %s, version %s, and owns %d workspaces", n.Node, n.State, n.Address, n.Version, n.Owned)
			}
		}
	}
}

// reach asks a node whether it lives.
func reach(ctx context.Context, client *http.Client, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/healthz", nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<10))
	if err := res.Body.Close(); err != nil {
		return err
	}
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return err
}
