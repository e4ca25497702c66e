// Package intake copies the workspaces of a data directory, and their records, into a
// cluster (umbra cluster import). Those with directories become one node's, which fetches
// the history from the cluster's log.
//
// Of a workspace first the history becomes objects and a row of the cluster, at once;
// then the records and private files of its tasks, its sessions and toolsets; then the
// workspace's own record, by which nodes find it. So a run that was cut off leaves a workspace that is not visible,
// and the next run goes on with it. The data directory is read and not written: stores
// are opened on copies.
package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/sink"
	"umbra/internal/access"
	"umbra/internal/blob"
	"umbra/internal/calls"
	"umbra/internal/cluster"
	"umbra/internal/datadir"
	"umbra/internal/errs"
	"umbra/internal/review"
	"umbra/internal/session"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/toolset"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// State says what became of a workspace.
type State string

// The states. Of a dry run Imported is what would be imported.
const (
	Imported State = "imported"
	Present  State = "present"  // the cluster has its history already
	Skipped  State = "skipped"  // no node takes its directory, or what it is a fork of was skipped
	Conflict State = "conflict" // the cluster has another history under its id or namespace
)

// Workspace is what became of one.
type Workspace struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Seq   uint64 `json:"seq"`   // number of the newest commit
	Bytes int64  `json:"bytes"` // of the history
	State State  `json:"state"`
}

// Report is what a run did. The counts are of records that it copied.
type Report struct {
	Workspaces []Workspace `json:"workspaces"`
	Tasks      int         `json:"tasks"`
	Sessions   int         `json:"sessions"`
	Toolsets   int         `json:"toolsets"`
	Tokens     int         `json:"tokens"`
	SentBytes  int64       `json:"sent_bytes"`
	Files      int         `json:"task_files"` // scratch and artifacts of tasks
	Answers    int         `json:"answers"`    // that are kept for idempotency keys
	// Left is what of the data directory is not in the cluster besides the workspaces that
	// are not; also of a dry run.
	Left []Left `json:"left"`
}

// Left is something that a run does not copy.
type Left struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Whole reports whether everything of the data directory is in the cluster.
func (r *Report) Whole() bool {
	for _, w := range r.Workspaces {
		if w.State == Skipped || w.State == Conflict {
			return false
		}
	}
	return true
}

// Options of a run.
type Options struct {
	Dir   string // the data directory
	Admin *cluster.Admin
	Store blob.Store
	Dry   bool // nothing is changed
	// Node is the live node that gets the directories; empty: none does. Arrive says to it
	// that it has one.
	Node   string
	Arrive func(ctx context.Context, workspace string) error
	Log    *slog.Logger
}

// run is one run.
type run struct {
	o        Options
	dir      *state.Dir
	tmp      string    // has copies
	from, to *state.DB // from is a copy
	known    datadir.Records
	children map[string][]workspaces.Record // linked forks, by what they continue
	there    map[string]bool                // workspaces that the cluster has
	tasks    map[string][]task.Record       // by workspace
	sessions map[string][]session.Record    // by workspace
	toolsets []toolset.Record
	report   Report
}

// Run imports. The data directory must have no server; its lock is held meanwhile.
// Copies of the records and of one workspace with its forks at a time are in the
// directory for temporary files.
func Run(ctx context.Context, o Options) (*Report, error) {
	dir, err := acquire(o.Dir)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "umbra-import-*")
	if err != nil {
		return nil, errors.Join(err, dir.Release())
	}
	r := &run{o: o, dir: dir, tmp: tmp, children: map[string][]workspaces.Record{}, there: map[string]bool{}, tasks: map[string][]task.Record{}, sessions: map[string][]session.Record{}, report: Report{Workspaces: []Workspace{}, Left: []Left{}}}
	err = r.all(ctx)
	return &r.report, errors.Join(err, os.RemoveAll(tmp), dir.Release())
}

// acquire takes the lock of a data directory, and changes nothing in it: one of an
// older format is left to the program.
func acquire(path string) (*state.Dir, error) {
	raw, err := os.ReadFile(filepath.Join(path, "format"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not a data directory", path)
	}
	if err != nil {
		return nil, err
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && n < state.Format {
		return nil, fmt.Errorf("data directory %s has format %d, and is not changed here: start umbra serve on it once, so that it has format %d", path, n, state.Format)
	}
	return state.Acquire(path)
}

func (r *run) all(ctx context.Context) error {
	if err := r.openRecords(); err != nil {
		return err
	}
	defer r.from.Close()
	r.to = state.New(r.o.Admin.Records())
	defer r.to.Close()
	var err error
	if !r.o.Dry {
		if r.known, err = datadir.OpenRecords(r.to); err != nil {
			return err
		}
	}
	source, err := datadir.OpenRecords(r.from)
	if err != nil {
		return err
	}
	all, err := source.All()
	if err != nil {
		return err
	}
	var roots []workspaces.Record
	for _, w := range all {
		switch {
		case w.Unfinished: // it never was one
			r.leave("workspace "+w.ID, "its baseline is not whole")
		case w.Fork != nil && w.Fork.Linked:
			r.children[w.Fork.Of] = append(r.children[w.Fork.Of], w)
		default:
			roots = append(roots, w)
		}
	}
	for _, w := range roots {
		if err := r.family(ctx, w, nil, ""); err != nil {
			return fmt.Errorf("workspace %s: %w", w.ID, err)
		}
		if err := os.RemoveAll(filepath.Join(r.tmp, "workspaces")); err != nil {
			return err
		}
	}
	if err := r.leftovers(all); err != nil || r.o.Dry {
		return err
	}
	if err := r.copyAnswers(); err != nil {
		return err
	}
	r.report.Tokens, err = access.Copy(r.from, r.to)
	return err
}

// openRecords opens a copy of the records.
func (r *run) openRecords() error {
	name := filepath.Join(r.tmp, "state.db")
	err := copyFile(r.dir.Join("state.db"), name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if r.from, err = state.Open(name); err != nil {
		return err
	}
	if err := r.settleCalls(); err != nil {
		return errors.Join(err, r.from.Close())
	}
	list, err := session.Kept(r.from)
	for _, s := range list {
		r.sessions[s.Workspace] = append(r.sessions[s.Workspace], s)
	}
	if err == nil {
		r.toolsets, err = toolset.Kept(r.from)
	}
	if err == nil {
		var tasks []task.Record
		tasks, err = task.Kept(r.from)
		for _, t := range tasks {
			r.tasks[t.Workspace] = append(r.tasks[t.Workspace], t)
		}
	}
	if err != nil {
		return errors.Join(err, r.from.Close())
	}
	return nil
}

// settleCalls gives the copy of the records the calls that were in their log alone.
func (r *run) settleCalls() (err error) {
	to := filepath.Join(r.tmp, "calls")
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	if err := copyTree(r.dir.Join("calls"), to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := vfs.OS(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	return calls.Settle(r.from, files)
}

// family imports a workspace and the forks that continue its history. base is the store
// of what it is a fork of, nil for a root; failed is set where that was not imported.
func (r *run) family(ctx context.Context, w workspaces.Record, base *gitstore.Store, failed State) (err error) {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	w.Restored = w.Kind != workspaces.VirtualKind // its directory may have changed since
	if w.Restored {
		w.Server = r.o.Node
	}
	n := len(r.report.Workspaces)
	r.report.Workspaces = append(r.report.Workspaces, Workspace{ID: w.ID, Kind: w.ShownKind(), State: failed})
	var store *gitstore.Store
	if failed == "" {
		entry := &r.report.Workspaces[n]
		if store, err = r.open(ctx, w, base); err != nil {
			return err
		}
		if store != nil {
			defer func() { err = errors.Join(err, store.Close(ctx)) }()
		}
		if err := r.one(ctx, w, store, base, entry); err != nil {
			return err
		}
		if entry.State != Imported && entry.State != Present {
			failed = entry.State
		}
		if !r.o.Dry && failed == "" {
			if err := r.records(ctx, w, store); err != nil {
				return err
			}
		}
	}
	for _, fork := range r.children[w.ID] {
		if err := r.family(ctx, fork, store, failed); err != nil {
			return fmt.Errorf("fork %s: %w", fork.ID, err)
		}
	}
	return nil
}

// open opens a copy of a workspace's store; nil for one that has none.
func (r *run) open(ctx context.Context, w workspaces.Record, base *gitstore.Store) (*gitstore.Store, error) {
	if r.skips(w) || w.Fork != nil && w.Fork.Unmade {
		return nil, nil
	}
	to := filepath.Join(r.tmp, "workspaces", w.ID)
	if err := copyTree(filepath.Join(r.o.Dir, "workspaces", w.ID), to); err != nil {
		return nil, err
	}
	return r.openStore(ctx, w, base, to, nil)
}

// openStore opens a store in a directory, on a sink if there is one.
func (r *run) openStore(ctx context.Context, w workspaces.Record, base *gitstore.Store, dir string, k sink.Sink) (*gitstore.Store, error) {
	files, err := vfs.OS(dir)
	if err != nil {
		return nil, err
	}
	o := gitstore.Options{FS: files, Sink: k, Log: r.o.Log.With("workspace", w.ID), Foreground: true}
	if base != nil {
		if o.Base, err = datadir.ForkBase(w.Fork, base); err != nil {
			return nil, errors.Join(err, files.Close())
		}
	}
	return gitstore.Open(ctx, o)
}

// one imports a workspace's history.
func (r *run) one(ctx context.Context, w workspaces.Record, store, base *gitstore.Store, out *Workspace) error {
	switch {
	case r.skips(w):
		out.State = Skipped
		return nil
	case store == nil: // a fork that was never opened: its record is all there is
		out.State, out.Seq = Imported, w.Fork.Seq
		if found, err := r.to.Get(datadir.WorkspacesBucket, w.ID, &workspaces.Record{}); found || err != nil {
			out.State = Present
			return err
		}
		return nil
	}
	out.Seq, out.Bytes = store.Tip().Seq, store.HistoryBytes()
	switch found, err := r.compare(ctx, w, store, base); {
	case err != nil:
		return err
	case found != "":
		out.State = found
		return nil
	}
	if done, err := r.to.Get(doneBucket, w.ID, new(bool)); done || err != nil {
		out.State = Present // it was, and was removed there since
		return err
	}
	if taken, err := r.taken(w); err != nil {
		return err
	} else if taken {
		out.State = Conflict
		return nil
	}
	out.State = Imported
	if r.o.Dry {
		return nil
	}
	row := cluster.Workspace{ID: w.ID, Kind: w.Kind, Pinned: w.Server}
	if w.Namespace != nil {
		raw, err := json.Marshal(w.Namespace)
		if err != nil {
			return err
		}
		row.Namespace = string(raw)
	}
	draft := r.o.Admin.Draft(row, r.o.Store)
	err := store.CopyTo(ctx, draft)
	r.report.SentBytes += draft.Sent()
	if err != nil {
		return err
	}
	if same, err := r.has(ctx, w, store, base, draft.View()); err != nil {
		return err
	} else if !same {
		return errs.New(errs.Internal, "", "what was put into the object store is not the history")
	}
	if err := r.mark(w.ID); err != nil {
		return err
	}
	err = draft.Publish(ctx)
	if errors.Is(err, cluster.ErrExists) {
		// A node made one of its namespace meanwhile, or another run was faster.
		out.State, err = r.compare(ctx, w, store, base)
		if out.State == "" {
			out.State = Conflict
		}
	}
	return err
}

// compare looks whether the cluster has a workspace: "" where it has none of its id and
// namespace.
func (r *run) compare(ctx context.Context, w workspaces.Record, store, base *gitstore.Store) (State, error) {
	view, err := r.o.Admin.View(ctx, r.o.Store, w.ID)
	if errors.Is(err, cluster.ErrNotFound) {
		if w.Namespace == nil {
			return "", nil
		}
		taken, err := r.o.Admin.HasNamespace(ctx, w.Namespace)
		if taken {
			return Conflict, nil
		}
		return "", err
	}
	if err != nil {
		return "", err
	}
	same, err := r.has(ctx, w, store, base, view)
	if same || err != nil {
		return Present, err
	}
	return Conflict, nil
}

// has reports whether a history goes on from that of a store: both have the same commit
// under the number of the store's newest one.
func (r *run) has(ctx context.Context, w workspaces.Record, store, base *gitstore.Store, view sink.Sink) (same bool, err error) {
	dir := filepath.Join(r.tmp, "workspaces", ".view") // a fork's base is next to it
	if err := os.Mkdir(dir, 0o700); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	other, err := r.openStore(ctx, w, base, dir, view)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, other.Close(ctx)) }()
	tip := store.Tip()
	if other.Tip().Seq < tip.Seq {
		return false, nil
	}
	at, err := other.CommitAt(ctx, tip.Seq)
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Gone) {
		return tip.Seq == 0, nil
	}
	return at == tip.Commit, err
}

// doneBucket has the IDs of the workspaces of which all records were copied.
const doneBucket = "workspaces_imported"

// Buckets returns the buckets that only imports use.
func Buckets() []string { return []string{doneBucket} }

// records copies what belongs to a workspace whose history the cluster has, and at last
// the record by which nodes find it. That is done once: what was removed since stays so.
func (r *run) records(ctx context.Context, w workspaces.Record, store *gitstore.Store) error {
	r.there[w.ID] = true
	done, err := r.to.Get(doneBucket, w.ID, new(bool))
	if done || err != nil {
		return err
	}
	if err := r.copyTasks(w.ID, store); err != nil {
		return err
	}
	if err := r.copyFiles(ctx, w.ID); err != nil {
		return err
	}
	for _, s := range r.sessions[w.ID] {
		added, err := session.Add(r.to, s)
		if err != nil {
			return err
		}
		if added {
			r.report.Sessions++
		}
	}
	for _, t := range r.toolsets {
		if !r.due(&t, w.ID) {
			continue
		}
		added, err := toolset.Add(r.to, t)
		if err != nil {
			return err
		}
		if added {
			r.report.Toolsets++
		}
	}
	if err := errors.Join(calls.Copy(r.from, r.to, w.ID), review.Copy(r.from, r.to, w.ID)); err != nil {
		return err
	}
	// A node that was asked for the namespace has made the record itself.
	_, found, err := r.known.Get(w.ID)
	if err == nil && !found {
		err = r.known.Put(w)
	}
	if err != nil {
		return err
	}
	if err := r.to.Put(doneBucket, w.ID, true); err != nil || w.Server == "" {
		return err
	}
	if err := r.o.Arrive(ctx, w.ID); err != nil {
		r.o.Log.Warn("the node has not opened the workspace yet: it does at its next start", "node", w.Server, "workspace", w.ID, "error", err)
	}
	return nil
}

// mark says that a workspace which has no owner yet has tasks that the records may not
// have: a node that claims it compares them.
func (r *run) mark(ws string) error {
	return r.to.Update(func(tx *state.Tx) error {
		var has int64
		if found, err := tx.Get(task.Behind, ws, &has); found || err != nil {
			return err
		}
		return tx.Put(task.Behind, ws, 1)
	})
}

// batch is how many records one transaction writes.
const batch = 200

// copyTasks copies the records of a workspace's tasks, as far as its history does not
// know better: after a kill they are older.
func (r *run) copyTasks(ws string, store *gitstore.Store) error {
	list := map[string]task.Record{}
	for _, t := range r.tasks[ws] {
		if !t.Pending { // else it may never have been made
			list[t.ID] = t
		}
	}
	if store != nil {
		for _, t := range store.Tasks() {
			now := task.RecordOf(t, ws)
			now.Dropped = list[t.ID].Dropped
			list[t.ID] = now
		}
	}
	r.tasks[ws] = slices.Collect(maps.Values(list)) // for their files
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(list)), batch) {
		n := 0
		err := r.to.Update(func(tx *state.Tx) error {
			n = 0
			for _, id := range ids {
				added, err := task.AddTo(tx, list[id])
				if err != nil {
					return err
				}
				if added {
					n++
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.report.Tasks += n
	}
	return nil
}

// due reports whether a workspace was the last that a toolset waited for. The default
// toolset is made of the settings.
func (r *run) due(t *toolset.Record, ws string) bool {
	mounts := false
	for _, m := range t.Mounts {
		mounts = mounts || m.Workspace == ws
		if !r.there[m.Workspace] {
			return false
		}
	}
	return mounts && !t.Fixed
}
