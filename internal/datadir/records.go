// Package datadir works on the files of a data directory: the workspaces' records,
// the owner's secret, repair and restore.
package datadir

import (
	"errors"
	"os"
	"path/filepath"

	"umbra/internal/doctor"
	"umbra/internal/state"
	"umbra/internal/workspaces"
)

// KnownFolders reads the workspaces' folders from the records, which nobody
// holds; a finding where that cannot be.
func KnownFolders(dataDir string) ([]string, *doctor.Finding) {
	path := dataDir + "/state.db"
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	fail := func(err error) ([]string, *doctor.Finding) {
		return nil, &doctor.Finding{Check: "data", Level: doctor.Hurts, About: path, Detail: "the records cannot be read: " + err.Error(),
			Do: "run this as the user that runs the server; if the file is damaged, restore a backup"}
	}
	db, err := state.Open(path)
	if err != nil {
		return fail(err)
	}
	defer db.Close()
	records, err := Records{db}.All()
	if err != nil {
		return fail(err)
	}
	var folders []string
	for _, r := range records {
		if r.Root != "" {
			folders = append(folders, r.Root)
		}
	}
	return folders, nil
}

// Resolved gives an absolute path whose folder has no links in it; what is not
// there any more stays as it is written.
func Resolved(p string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(p)); err == nil {
		return filepath.Join(dir, filepath.Base(p))
	}
	return filepath.Clean(p)
}

// Records keeps a manager's records in the state database.
type Records struct{ DB *state.DB }

// WorkspacesBucket is the bucket of the state database that holds the records.
const WorkspacesBucket = "workspaces"

// All implements workspaces.Records.
func (w Records) All() ([]workspaces.Record, error) {
	return state.All[workspaces.Record](w.DB, WorkspacesBucket)
}

// Put implements workspaces.Records.
func (w Records) Put(list ...workspaces.Record) error {
	return w.DB.Update(func(tx *state.Tx) error {
		for _, r := range list {
			if err := tx.Put(WorkspacesBucket, r.ID, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// Delete implements workspaces.Records.
func (w Records) Delete(id string) error { return w.DB.Delete(WorkspacesBucket, id) }
