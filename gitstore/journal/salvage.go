package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
)

// Salvage puts a new file with the acknowledged entries of a journal under its
// name, after a write or sync of the old one failed. The kernel may have
// dropped the dirty pages of such a file and call them clean: neither its
// bytes past the acknowledged ones nor a later sync of it mean anything.
//
// Until the new file has the name and the folder is synced, a start would find
// the old one, with the failed group absent or there whole; nothing is
// answered in between.
func (js *Set) Salvage(old *Journal) (*Journal, error) {
	temp := old.Name + ".new"
	if err := js.FS.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := js.FS.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	j := &Journal{Number: old.Number, Name: old.Name, State: old.State, f: f, at: make(map[object.ID]Loc)}
	err = j.copyFrom(old, js.MaxObject)
	if err == nil {
		err = js.FS.Rename(temp, old.Name)
	}
	if err == nil {
		err = js.FS.SyncDir(Dir)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	js.Log.Warn("journal salvaged after a disk error", "journal", old.Number)
	return j, nil
}

// copyFrom copies the acknowledged entries of old, each inflated as a check,
// and zeroed room behind them, and syncs the file.
func (j *Journal) copyFrom(old *Journal, limit int64) error {
	old.mu.RLock()
	defer old.mu.RUnlock()
	j.end, j.Room = old.end, max(2*old.end, minPrepared)
	head := pack.Header(0)
	if _, err := j.f.WriteAt(head[:], 0); err != nil {
		return err
	}
	sc := pack.NewScanner(old.f, old.end, pack.ScanOptions{MaxObject: limit})
	for sc.Pos() < old.end {
		e, err := sc.Next()
		if err != nil {
			return fmt.Errorf("acknowledged entries cannot be read back: %w", err)
		}
		buf := make([]byte, e.End-e.Offset)
		if _, err := old.f.ReadAt(buf, e.Offset); err != nil {
			return err
		}
		if _, err := j.f.WriteAt(buf, e.Offset); err != nil {
			return err
		}
	}
	maps.Copy(j.at, old.at)
	if err := j.zero(j.end); err != nil {
		return err
	}
	return j.f.Sync()
}
