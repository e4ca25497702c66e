package datadir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"umbra/gitstore"
	"umbra/internal/state"
	"umbra/internal/term"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// Repaired is what was done to workspaces, by id.
type Repaired map[string]*gitstore.Repaired

// Repair puts right what can be of the workspaces that are named, all without a
// name. It takes the data directory for as long: a server that runs has the
// same files open.
func Repair(ctx context.Context, dataDir string, names []string, log *slog.Logger) (out Repaired, err error) {
	dir, err := state.Acquire(dataDir)
	if held, ok := errors.AsType[*state.HeldError](err); ok {
		return nil, fmt.Errorf("repair needs the data directory to itself; stop the server first: %w", held)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Release()) }()
	if err := CheckSingle(dir.Path); err != nil {
		return nil, err
	}
	db, err := state.Open(dir.Join("state.db"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	stored, err := OpenRecords(db)
	if err != nil {
		return nil, err
	}
	records, err := recordedWorkspaces(stored, names)
	if err != nil {
		return nil, err
	}
	out = make(Repaired)
	for _, rec := range records {
		id := rec.ID
		files, err := vfs.OS(dir.Join("workspaces", id))
		if errors.Is(err, fs.ErrNotExist) {
			out[id] = &gitstore.Repaired{Done: []string{}, Cannot: []string{"The workspace's directory in the data directory does not exist."}}
			continue
		}
		if err != nil {
			return out, err
		}
		if rec.Rest != nil {
			// The figures that were stored when it was unloaded may be wrong afterwards.
			rec.Rest = nil
			if err := stored.Put(rec); err != nil {
				return out, errors.Join(err, files.Close())
			}
		}
		if rec.Fork != nil && rec.Fork.Linked {
			out[id] = &gitstore.Repaired{Done: []string{}, Cannot: []string{"A fork cannot be repaired by itself; what it shares with its parent is repaired there."}}
			files.Close()
			continue
		}
		done, err := gitstore.Repair(ctx, gitstore.Options{FS: files, Log: log})
		out[id] = &done
		if err != nil {
			return out, fmt.Errorf("workspace %s: %w", id, err)
		}
	}
	return out, nil
}

// recordedWorkspaces gives those that are named by id or by a folder in them, all
// without a name.
func recordedWorkspaces(stored Records, names []string) (out []workspaces.Record, err error) {
	all, err := stored.All()
	if err != nil || len(names) == 0 {
		return all, err
	}
	for _, name := range names {
		rec, ok := recordedAs(all, name)
		if !ok {
			return nil, fmt.Errorf("workspace %s not found", term.Name(name))
		}
		out = append(out, rec)
	}
	return out, nil
}

func recordedAs(all []workspaces.Record, name string) (workspaces.Record, bool) {
	folder, err := filepath.Abs(name)
	if err != nil {
		return workspaces.Record{}, false
	}
	folder = Resolved(folder)
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	for _, rec := range all {
		if rec.ID == name {
			return rec, true
		}
	}
	for _, rec := range all {
		if rec.Root == "" {
			continue
		}
		if rel, err := filepath.Rel(rec.Root, folder); err == nil && filepath.IsLocal(rel) {
			return rec, true
		}
	}
	return workspaces.Record{}, false
}

// With adds what was done to what the server found afterwards.
func (r Repaired) With(id string, raw []byte) ([]byte, error) {
	done, ok := r[id]
	if !ok {
		return raw, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	var err error
	if all["repaired"], err = json.Marshal(done); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// Write prints what was done to a workspace.
func (r Repaired) Write(o *term.Output, id string) {
	done, ok := r[id]
	if !ok {
		return
	}
	for _, text := range done.Done {
		o.Printf("repaired  %s\n", term.Line(text))
	}
	for _, text := range done.Cannot {
		o.Printf("lost      %s\n", term.Line(text))
	}
}
