package record

import (
	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/wspath"
)

// External is a path that the disk holds otherwise than history.
type External struct {
	Path    wspath.Path
	Old     gitstore.Entry // in the tip; Mode 0: not there
	Mode    object.Mode    // on disk; 0: not there
	Blob    gitstore.Blob
	HasBlob bool // blob is new; else the content is old's
	// certainty says how its owner is known; "" without a call.
	certainty claims.Certainty
}

// KnownAs notes that a change has the owner of another one, which was judged.
func (x *External) KnownAs(other *External) { x.certainty = other.certainty }

// put is the edit that records the file.
func (x *External) put() gitstore.Edit {
	e := gitstore.Edit{Path: x.Path, Mode: x.Mode, Blob: x.Blob}
	if !x.HasBlob {
		e.Blob = gitstore.KnownBlob(x.Old.ID)
	}
	return e
}

// entry is the changelog entry of an external change.
func (x *External) entry() Entry {
	e := Entry{Before: x.Old, certainty: x.certainty}
	if x.HasBlob {
		e.blob = &x.Blob
	}
	e.Path = string(x.Path)
	if x.Mode != 0 {
		id := x.Old.ID
		if x.HasBlob {
			id = x.Blob.ID()
			e.AfterHash = x.Blob.AfterHash()
		}
		e.After = gitstore.Entry{Path: x.Path, Mode: x.Mode, ID: id}
	}
	e.Operation = operationOf(x.Old, e.After)
	return e
}

// over changes the entry that takes a change back into one that leads to what a
// person put there.
func (x *External) over(b Entry) Entry {
	e := x.entry()
	e.Before = b.Before
	if x.Mode == 0 && b.Before.Mode == 0 {
		return Entry{}
	}
	e.Operation = operationOf(e.Before, e.After)
	return e
}
