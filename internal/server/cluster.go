package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"umbra/config"
	"umbra/internal/blob"
	"umbra/internal/buildinfo"
	"umbra/internal/cluster"
	"umbra/internal/datadir"
	"umbra/internal/errs"
	"umbra/internal/exitcode"
	"umbra/internal/node"
	"umbra/internal/state"
)

// storePatience is how long the object store is tried at a start.
const storePatience = 30 * time.Second

// formerLife is the content of datadir.NodeFile.
type formerLife struct {
	Cluster string `json:"cluster"`
	Life    int64  `json:"life,string"`
}

// ClusterParts opens what the settings of a cluster name. Nothing is connected to.
// place is how messages name the object store. Errors have the exit status of
// wrong use.
func ClusterParts(ctx context.Context, cfg config.Config) (opts cluster.Options, store blob.Store, place string, err error) {
	misuse := func(code, sentence string) error {
		return exitcode.Usage(&cluster.Refusal{Code: code, Sentence: sentence, Exit: exitcode.Misused})
	}
	missing := ""
	switch c := cfg.Cluster; {
	case c.URL == "":
		missing = "cluster.url"
	case c.Blobs == "":
		missing = "cluster.blobs"
	}
	if missing != "" {
		return opts, nil, "", misuse("cluster_incomplete", "cluster.url and cluster.blobs belong together; "+missing+" is missing.")
	}
	if runtime.GOOS != "linux" {
		return opts, nil, "", misuse("platform_unsupported", "A cluster needs Linux.")
	}
	location, err := blob.Parse(cfg.Cluster.Blobs)
	if err != nil {
		return opts, nil, "", Refused(err)
	}
	s3, err := blob.OpenS3(ctx, location, blob.Tuning{})
	if err != nil {
		return opts, nil, "", Refused(err)
	}
	opts = cluster.Options{URL: cfg.Cluster.URL, ReadURL: cfg.Cluster.ReadURL, Replication: cfg.Cluster.Replication, Wait: cfg.Cluster.Wait, Version: buildinfo.Version(), PublicURL: cfg.Cluster.PublicURL}
	return opts, s3, location.Place(), nil
}

// Refused puts an error of a cluster's start into the form with which the program
// ends, and gives it the exit status.
func Refused(err error) error {
	if e, ok := errors.AsType[*errs.Error](err); ok && strings.HasPrefix(e.Code, "blobs_") {
		r := &cluster.Refusal{Code: e.Code, Sentence: e.Detail, Exit: exitcode.Failed, Err: err}
		if e.Code == "blobs_url_invalid" {
			r.Exit = exitcode.Misused
		}
		err = r
	}
	if r, ok := errors.AsType[*cluster.Refusal](err); ok && r.Exit == exitcode.Misused {
		return exitcode.Usage(r)
	}
	return err
}

// member is this server in a cluster; nil without one.
type member struct {
	life *cluster.Node
	*node.Node
}

// node returns what the layers above use; nil without a cluster.
func (m *member) node() *node.Node {
	if m == nil {
		return nil
	}
	return m.Node
}

// leave ends the server's life in the cluster: others may take over at once what it
// still owns.
func (m *member) leave(log *slog.Logger) {
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	working, stop := context.WithTimeout(ctx, closePatience/2)
	defer stop()
	if err := bounded(working, func() error { m.Node.Close(); return nil }); err != nil {
		log.Warn("the node's own work did not end in time", "error", err)
	}
	if err := m.life.Close(ctx); err != nil {
		log.Warn("the cluster was not left in order: its lease has to end", "error", err)
	}
}

// joinCluster makes the server a node of the cluster that the settings name. It
// returns nil where they name none.
func joinCluster(ctx context.Context, cfg config.Config, dir *state.Dir, address string, log *slog.Logger) (*member, error) {
	if !cfg.Cluster.On() {
		return nil, nil
	}
	opts, store, place, err := ClusterParts(ctx, cfg)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	if opts.Name = cfg.Cluster.Node; opts.Name == "" {
		opts.Name = nodeNameOf(host)
	}
	if opts.Address = cfg.Cluster.Advertise; opts.Address == "" {
		opts.Address = advertised(address, host)
	}
	opts.Log = log
	if err := checkImported(dir); err != nil {
		return nil, err
	}
	former, err := readFormerLife(dir.Path)
	if err != nil {
		return nil, err
	}
	opts.Former = former.Life
	opts.OnLife = func(id string, life int64) error {
		if former.Cluster != "" && former.Cluster != id {
			return &cluster.Refusal{Code: "data_dir_other_cluster", Exit: exitcode.Failed, Sentence: fmt.Sprintf("%s is the cache of cluster %s.", dir.Path, former.Cluster)}
		}
		return writeFormerLife(dir.Path, formerLife{id, life})
	}
	life, err := cluster.Open(ctx, opts)
	if err != nil {
		return nil, Refused(err)
	}
	if err := life.CheckStore(ctx, store, place, storePatience); err != nil {
		closing, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		return nil, errors.Join(Refused(err), life.Close(closing))
	}
	log.Info("joined the cluster", "cluster", life.Cluster.ID, "node", opts.Name, "address", opts.Address)
	ops := blob.NewMeter()
	return &member{life, node.New(node.Options{Cluster: life, Store: blob.Measured(store, ops), StoreMeter: ops, Grace: cfg.Cluster.GarbageGrace, Wait: cfg.Cluster.Wait, Log: log})}, nil
}

// checkImported refuses a data directory that has workspaces of a single server:
// no node would see them.
func checkImported(dir *state.Dir) error {
	name := dir.Join("state.db")
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := state.Open(name)
	if err != nil {
		return err
	}
	defer db.Close()
	records, err := datadir.OpenRecords(db)
	if err != nil {
		return err
	}
	n, err := records.Count()
	if err != nil || n == 0 {
		return err
	}
	what := "1 workspace"
	if n > 1 {
		what = fmt.Sprintf("%d workspaces", n)
	}
	return &cluster.Refusal{Code: "data_dir_not_imported", Exit: exitcode.Failed, Sentence: fmt.Sprintf("%s has %s of its own; run umbra cluster import.", dir.Path, what)}
}

// nodeNameOf makes a host's name a node's.
func nodeNameOf(host string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '-':
			return r
		}
		return '-'
	}, strings.ToLower(host))
	return name[:min(len(name), 63)]
}

// advertised is the address under which other machines reach a listener.
func advertised(address, host string) string {
	scheme, at, ok := strings.Cut(address, "://")
	if !ok {
		return address
	}
	if _, port, err := net.SplitHostPort(at); err == nil {
		return scheme + "://" + net.JoinHostPort(host, port)
	}
	return address
}

func readFormerLife(dir string) (formerLife, error) {
	var f formerLife
	raw, err := os.ReadFile(filepath.Join(dir, datadir.NodeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if len(bytes.Trim(raw, "\x00 ")) == 0 && err == nil {
		return f, nil // a power failure came before it was on the disk
	}
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err != nil {
		return f, fmt.Errorf("%s: %w", filepath.Join(dir, datadir.NodeFile), err)
	}
	return f, nil
}

// formerLifeSize is the size of the file, which is written in place and at once: also where
// the disk has no room left, and so that a reader never sees half of it.
const formerLifeSize = 512

// writeFormerLife replaces what the file has. After a power failure it may have the one
// before: its life is over as well, and the present one is declared dead a lease later.
func writeFormerLife(dir string, f formerLife) error {
	raw, err := json.Marshal(f)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, datadir.NodeFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(append(raw, bytes.Repeat([]byte{' '}, max(0, formerLifeSize-len(raw)))...), 0)
	return errors.Join(err, file.Close())
}
