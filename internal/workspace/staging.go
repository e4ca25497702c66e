package workspace

import (
	"errors"
	"io/fs"
)

// asideDir is the folder, in a workspace's part of the data directory, to which
// exchanges bring out what stood at their targets.
const asideDir = "aside"

// openAside opens the folder; what is displaced stays beside its target where
// there can be none.
func (w *Workspace) openAside() {
	if !w.root.TakesAside() {
		return
	}
	f, err := w.files.Sub(asideDir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = w.files.Mkdir(asideDir, 0o700); err == nil {
			err = w.files.SyncDir(".")
		}
		if err == nil {
			f, err = w.files.Sub(asideDir)
		}
	}
	if err != nil {
		w.log.Warn("no folder for displaced files; they are kept beside their targets", "error", err)
		return
	}
	w.aside = f
	w.root.SetAside(f)
}
