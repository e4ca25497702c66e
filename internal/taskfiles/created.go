package taskfiles

import (
	"strings"

	"umbra/gitstore/message"
	"umbra/internal/history"
	"umbra/internal/workspace"
)

// createdIn follows a path backwards through a task's entries to the one that
// made it.
func createdIn(entries []history.Entry, path string) *workspace.ChangeEntry {
	for i := len(entries) - 1; i >= 0; i-- {
		e := &entries[i]
		switch {
		case e.TakenBack:
		case e.Operation == message.Rename && e.NewPath == path:
			path = e.Path
		case strings.TrimSuffix(e.Path, "/") != path:
		case e.Operation == message.Create, e.Operation == message.Mkdir, e.Operation == message.Symlink:
			return e.ChangeEntry
		case e.Operation == message.Delete, e.Operation == message.Rmdir:
			return nil
		}
	}
	return nil
}
