package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"

	"umbra/config"
	"umbra/gitstore"
	"umbra/gitstore/sink"
	"umbra/httpapi/forward"
	"umbra/httpapi/upkeep"
	"umbra/internal/backup"
	"umbra/internal/buildinfo"
	"umbra/internal/cluster"
	"umbra/internal/copyout"
	"umbra/internal/datadir"
	"umbra/internal/doctor"
	"umbra/internal/errs"
	"umbra/internal/intake"
	"umbra/internal/node"
	"umbra/internal/retention"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// backupSource is this process for a backup: it holds the data directory.
type backupSource struct {
	db         *state.DB
	answers    *state.Answers
	workspaces *workspaces.Manager
}

// State is backup.Source's.
func (s backupSource) State(_ context.Context, w io.Writer) ([]string, error) {
	if err := s.answers.Flush(); err != nil { // then the log holds nothing that the store lacks
		return nil, err
	}
	var ids []string
	err := s.db.Snapshot(w, func(tx *state.Tx) error {
		return tx.ForEach(datadir.WorkspacesBucket, "", func(key string, raw []byte) (bool, error) {
			var r workspaces.Record
			if err := json.Unmarshal(raw, &r); err != nil {
				return false, err
			}
			if r.Fork == nil || !r.Fork.Unmade { // which has no history of its own
				ids = append(ids, key)
			}
			return true, nil
		})
	})
	s.workspaces.ForksFirst(ids)
	return ids, err
}

// Freeze is backup.Source's.
func (s backupSource) Freeze(ctx context.Context, id string) (*gitstore.Frozen, error) {
	return s.workspaces.Freeze(ctx, id)
}

// backups makes the dialect of umbra backup.
func backups(cfg config.Config, dir *state.Dir, source backupSource, n *node.Node, log *slog.Logger) *upkeep.Backup {
	folders := func() []string {
		list := ownFolders(cfg.WorkspaceDir, cfg.Output.Dir)
		for _, r := range source.workspaces.Physical() {
			list = append(list, r.Root)
		}
		return list
	}
	s := &backup.Service{DataDir: dir.Path, Source: source, Folders: folders, Program: buildinfo.Version()}
	if n != nil {
		s.Begin = func() (string, backup.Source, func() error, error) { return clusterSource(n, source.db, log) }
	}
	return &upkeep.Backup{Service: s}
}

// clusterSource makes what a backup of a cluster copies, in a directory for temporary files.
func clusterSource(n *node.Node, db *state.DB, log *slog.Logger) (dir string, _ backup.Source, end func() error, err error) {
	if dir, err = os.MkdirTemp("", "umbra-backup-*"); err != nil {
		return "", nil, nil, err
	}
	end = func() error { return os.RemoveAll(dir) }
	records, ok := db.Backend().(*cluster.Records)
	if !ok {
		return "", nil, nil, errors.Join(errors.New("the records are not a cluster's"), end())
	}
	s, err := copyout.New(copyout.Options{Dir: dir, Each: records.Each, Object: n.Objects().Get, Log: log,
		Only: append([]string{machinesBucket, foldersBucket, task.Behind}, intake.Buckets()...),
		View: func(ctx context.Context, ws string) (sink.Sink, error) {
			to, _, err := n.View(ctx, ws, workspaces.Point{Exact: true})
			if errors.Is(err, cluster.ErrNotFound) {
				err = errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
			}
			return to, err
		}})
	if err != nil {
		return "", nil, nil, errors.Join(err, end())
	}
	return dir, s, end, nil
}

// purges makes the dialect of umbra purge. f is nil without a cluster.
func purges(m *workspaces.Manager, answers *state.Answers, n *node.Node, f *forward.Forwarder, log *slog.Logger) *upkeep.Purge {
	p := &upkeep.Purge{Workspaces: m, Forget: answers.Forget, Log: log}
	if f == nil {
		return p
	}
	p.Erase = func(ctx context.Context, w *workspace.Workspace, purged workspaces.Purged) any {
		ctx, cancel := context.WithTimeout(ctx, node.ErasePatience)
		defer cancel()
		list := append([]string{w.ID()}, m.Related(w.ID())...)
		for _, id := range list {
			w, err := m.Get(ctx, id)
			if err == nil {
				defer w.Release()
				err = w.Store().CopyWhole(ctx)
			}
			if err == nil {
				err = n.Purged(ctx, id)
			}
			if err == nil {
				err = m.DropCopies(ctx, id, workspaces.Purged{}) // of when another node had it
			}
			if err != nil {
				return &node.Remaining{Nodes: []string{n.Name()}, Error: err.Error()}
			}
		}
		r := n.Erase(ctx, list, func(ctx context.Context, o node.Owner) error {
			err := f.Drop(ctx, forward.Owner(o), w.ID(), purged.Blobs, purged.Ignored)
			for _, id := range list[1:] {
				err = errors.Join(err, f.Drop(ctx, forward.Owner(o), id, nil, false))
			}
			return err
		})
		if r == nil {
			return nil
		}
		return r
	}
	return p
}

// DoctorOptions returns what umbra doctor checks by the settings.
func DoctorOptions(cfg config.Config, dataDir string) doctor.Options {
	o := doctor.Options{DataDir: dataDir, FreeFloor: int64(cfg.Limits.FreeBytes), MaxWatches: cfg.Workspaces.MaxWatches}
	if cfg.Cluster.On() {
		o.More = func(ctx context.Context) []doctor.Finding { return clusterFindings(ctx, cfg) }
	}
	return o
}

// examiner is the server's side of it.
func examiner(cfg config.Config, dir *state.Dir, m *workspaces.Manager, ready func() error) *upkeep.Doctor {
	return &upkeep.Doctor{Workspaces: m, Options: DoctorOptions(cfg, dir.Path), Ready: ready}
}

// retentionOf starts what drops old history.
func retentionOf(cfg config.Config, s *services, db *state.DB, log *slog.Logger, d *deps) *retention.Service {
	o := retention.Options{Workspaces: s.workspaces, Tasks: s.tasks, Age: cfg.Retention.Age, Bytes: int64(cfg.Retention.Bytes), Interval: cfg.Retention.Interval, Log: log}
	if d.node != nil {
		t := turns{d.node, db}
		o.Others, o.Turn, o.Ended = t.others, t.turn, t.ended
	}
	kept := retention.New(o)
	d.closers = append(d.closers, func(context.Context) error { kept.Close(); return nil })
	return kept
}
