package task

import "umbra/internal/areas"

// A task's scratch and artifacts are package areas.
type (
	Area       = areas.Area
	AreaPath   = areas.AreaPath
	AreaFile   = areas.AreaFile
	AreaEntry  = areas.AreaEntry
	AreaOp     = areas.AreaOp
	AreaOpKind = areas.AreaOpKind
	AreaResult = areas.AreaResult
	Folders    = areas.Folders
	Staged     = areas.Staged
)

// The areas, and what is done to them.
const (
	Scratch    = areas.Scratch
	Artifacts  = areas.Artifacts
	AreaWrite  = areas.AreaWrite
	AreaDelete = areas.AreaDelete
	AreaRename = areas.AreaRename
	AreaChmod  = areas.AreaChmod
)

// Areas gives both, in the order of their names.
func Areas() []Area { return areas.Areas() }

// SplitURI is areas.SplitURI.
func SplitURI(p string) (a Area, rest string, ok bool) { return areas.SplitURI(p) }
