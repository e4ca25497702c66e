package gitstore

import (
	"umbra/gitstore/overlay"
	"umbra/internal/wspath"
)

// Edit is one change of a tree; a Draft's edits apply in order.
type Edit struct {
	// Path is the file that is put, removed or moved.
	Path wspath.Path
	// Mode of the file that is put; 0 removes the file or whole folder.
	Mode Mode
	// Blob is the content of the file that is put.
	Blob Blob
	// MoveTo, if not empty, moves the entry at Path (file or folder) there
	// whole, in place of what is there; Mode and Blob are ignored.
	MoveTo wspath.Path
}

func (e *Edit) apply(o *overlay.Overlay) error {
	switch {
	case e.MoveTo != "":
		return o.Move(e.Path, e.MoveTo)
	case e.Mode == 0:
		return o.Remove(e.Path)
	}
	return o.Put(e.Path, e.Mode, e.Blob.id)
}
