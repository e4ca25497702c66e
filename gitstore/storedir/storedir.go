// Package storedir says what the files in a store's directory are called, and
// writes and removes small ones.
package storedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"umbra/gitstore/journal"
	"umbra/internal/vfs"
)

const (
	Repo  = "repo.git" // the bare repository
	Packs = Repo + "/objects/pack"
	// Idx is the suffix of a pack's index, Prepared that of a pack in journal/ that
	// is being written, or not needed by history yet.
	Idx      = ".idx"
	Prepared = ".blob"

	Dropped = "dropped" // the ids of the commits that retention dropped
	Intent  = "purge"   // there while a purge is at its switch
	Damaged = "damaged" // what a repair has replaced
	Exclude = "exclude" // the workspace's own rules of what is not recorded
	// Moved has, one file a purge, which commit each one is now that a purge changed.
	Moved = "moved"

	// Tasks begins the names of our refs of tasks; InfoLogs has their reflogs.
	Tasks    = "refs/umbra/tasks/"
	InfoLogs = Repo + "/logs/" + Tasks
)

// MovedName gives the file of a purge's map, by its number: eight decimal digits.
func MovedName(n int) string { return path.Join(Moved, fmt.Sprintf("%08d", n)) }

// WriteFile makes a file with durable bytes (its name is not: sync the folder)
// in place of one that is there. It is always a new inode: one whose sync
// failed must not be synced again.
func WriteFile(fsys vfs.FS, name string, data []byte) error {
	temp := path.Join(journal.Dir, "tmp-"+path.Base(name))
	if err := Remove(fsys, temp); err != nil {
		return err
	}
	f, err := fsys.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return fsys.Rename(temp, name)
}

// Remove removes a file, if it is there.
func Remove(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// StaleIdx reports whether a file is the index of a journal that is shown.
func StaleIdx(base string, shown uint64) bool {
	n, ok := journal.ParseName(strings.TrimSuffix(base, Idx) + journal.Suffix)
	return ok && strings.HasSuffix(base, Idx) && n <= shown
}
