package intake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"umbra/gitstore/journal"
	"umbra/gitstore/remote"
	"umbra/internal/areas"
	"umbra/internal/datadir"
	"umbra/internal/state"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// skips reports whether a workspace is not copied: no node takes its directory, or it is
// a layer, whose files are in the data directory.
func (r *run) skips(w workspaces.Record) bool {
	return w.Kind != workspaces.VirtualKind && (r.o.Node == "" || w.Mounted())
}

// taken reports whether a directory is another workspace of the node already.
func (r *run) taken(w workspaces.Record) (bool, error) {
	if w.Kind == workspaces.VirtualKind {
		return false, nil
	}
	list, _, err := datadir.ReadRecords(r.to).List(workspaces.Resident, "", 0)
	return slices.ContainsFunc(list, func(o workspaces.Record) bool {
		return o.ID != w.ID && o.Server == w.Server && o.Root == w.Root
	}), err
}

// leave notes something that is not copied.
func (r *run) leave(what, why string, args ...any) {
	r.report.Left = append(r.report.Left, Left{what, fmt.Sprintf(why, args...)})
}

// leftovers notes what is not copied besides workspaces.
func (r *run) leftovers(all []workspaces.Record) error {
	comes := map[string]bool{} // workspaces
	for _, w := range r.report.Workspaces {
		comes[w.ID] = w.State == Imported || w.State == Present
	}
	for _, t := range r.toolsets {
		for _, m := range t.Mounts {
			if !t.Fixed && !comes[m.Workspace] {
				r.leave("toolset "+t.ID, "the workspace %s that it mounts is not copied", m.Workspace)
				break
			}
		}
	}
	list, err := os.ReadDir(r.dir.Join("workspaces"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range list {
		if !slices.ContainsFunc(all, func(w workspaces.Record) bool { return w.ID == e.Name() }) {
			r.leave(r.dir.Join("workspaces", e.Name()), "the history of a workspace that was removed")
			continue
		}
		aside, err := filepath.Glob(r.dir.Join("workspaces", e.Name(), journal.Dir, remote.Orphaned+"*"))
		if err != nil {
			return err
		}
		for _, name := range aside {
			r.leave(name, "commits that were put aside")
		}
	}
	layers, err := os.ReadDir(r.dir.Join("layers"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range layers {
		r.leave(r.dir.Join("layers", e.Name()), "the layer of a command")
	}
	return nil
}

// copyFiles copies the scratch and artifacts of a workspace's tasks.
func (r *run) copyFiles(ctx context.Context, ws string) error {
	for _, t := range r.tasks[ws] {
		if t.Deleted {
			continue
		}
		dir := r.dir.Join("tasks", t.ID)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		files, err := vfs.OS(dir)
		if err != nil {
			return err
		}
		n, err := areas.Put(ctx, areas.Options{State: r.to, Objects: r.o.Admin.Objects(r.o.Store), Log: r.o.Log, Names: areas.Names()}, t.ID, ws, files)
		if err = errors.Join(err, files.Close()); err != nil {
			return fmt.Errorf("the files of task %s: %w", t.ID, err)
		}
		r.report.Files += n
	}
	return nil
}

// copyAnswers copies the answers that are kept for idempotency keys, but those that name
// a workspace which is not in the cluster, or a task on it.
func (r *run) copyAnswers() error {
	log := filepath.Join(r.tmp, "answers.log")
	if err := copyFile(r.dir.Join("answers.log"), log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var ids [][]byte
	for _, w := range r.report.Workspaces {
		if r.there[w.ID] {
			continue
		}
		ids = append(ids, []byte(w.ID))
		for _, t := range r.tasks[w.ID] {
			ids = append(ids, []byte(t.ID))
		}
	}
	copied, left, err := state.CopyAnswers(r.from, r.to, log, func(a *state.Answer) bool {
		return slices.ContainsFunc(ids, func(id []byte) bool { return bytes.Contains(a.Body, id) || named(a.Header, string(id)) })
	})
	if left > 0 {
		r.leave(fmt.Sprintf("%d answers", left), "they are about workspaces that are not copied")
	}
	r.report.Answers = copied
	return err
}

// named reports whether a header has an ID.
func named(header map[string][]string, id string) bool {
	for _, values := range header {
		for _, v := range values {
			if strings.Contains(v, id) {
				return true
			}
		}
	}
	return false
}
