package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/gitstore"
	"umbra/internal/client"
	"umbra/internal/state"
	"umbra/internal/term"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
)

// repaired is what was done to workspaces, by id.
type repaired map[string]*gitstore.Repaired

// repair puts right what can be of the workspaces that are named, all without a
// name. It takes the data directory for as long: a server that runs has the
// same files open.
func repair(ctx context.Context, cmd *cobra.Command, k *connection, names []string) (out repaired, err error) {
	if k.server != "" {
		return nil, usageError{errors.New("--repair works on the files of a data directory (--data-dir), not over --server")}
	}
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return nil, usageError{err}
	}
	if _, err := os.Stat(cfg.DataDir); errors.Is(err, fs.ErrNotExist) {
		return nil, usageError{fmt.Errorf("data directory %s does not exist", cfg.DataDir)}
	}
	dir, err := state.Acquire(cfg.DataDir)
	if held, ok := errors.AsType[*state.HeldError](err); ok {
		return nil, fmt.Errorf("repair needs the data directory to itself; stop the server first: %w", held)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Release()) }()
	db, err := state.Open(dir.Join("state.db"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	records, err := recordedWorkspaces(db, names)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelError}))
	out = make(repaired)
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
			// What was told of it when it was put away need not be so afterwards.
			rec.Rest = nil
			if err := (workspaceRecords{db}).Put(rec); err != nil {
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
func recordedWorkspaces(db *state.DB, names []string) (out []workspace.Record, err error) {
	all, err := workspaceRecords{db}.All()
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

func recordedAs(all []workspace.Record, name string) (workspace.Record, bool) {
	folder, err := filepath.Abs(name)
	if err != nil {
		return workspace.Record{}, false
	}
	folder = resolved(folder)
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
	return workspace.Record{}, false
}

// with adds what was done to what the server found afterwards.
func (r repaired) with(w client.Workspace, raw []byte) ([]byte, error) {
	done, ok := r[w.ID]
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

func (r repaired) write(o *term.Output, w client.Workspace) {
	done, ok := r[w.ID]
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
