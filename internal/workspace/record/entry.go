package record

import (
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/workspace/content"
	"umbra/internal/wspath"
)

// Entry is one entry to be, with what it was and is.
type Entry struct {
	message.Entry
	Before, After gitstore.Entry
	Content       *content.Content
	blob          *gitstore.Blob   // of an external change
	certainty     claims.Certainty // of an external change that a call made
}

// operationOf names what lies between two states of a path.
func operationOf(old, now gitstore.Entry) message.Operation {
	switch {
	case now.Mode == 0:
		return message.Delete
	case old.Mode == 0 && now.Mode == object.Symlink:
		return message.Symlink
	case old.Mode == 0:
		return message.Create
	case old.ID == now.ID && old.Mode != object.Symlink && now.Mode != object.Symlink:
		return message.Chmod
	}
	return message.Modify
}

// takeBack gives the edits that undo the change set on the tree that it made,
// and the entries for them. Blobs are filled in by the caller.
func takeBack(entries []Entry) (remove []wspath.Path, put []gitstore.Entry, back []Entry) {
	for _, e := range entries {
		if strings.HasSuffix(e.Path, "/") {
			back = append(back, inverse(e)) // trees hold no empty folder
			continue
		}
		if e.After.Mode != 0 {
			remove = append(remove, e.After.Path)
		}
		if e.Before.Mode != 0 {
			put = append(put, e.Before)
		}
		back = append(back, inverse(e))
	}
	return remove, put, back
}

// inverse gives the entry that undoes one.
func inverse(e Entry) Entry {
	b := Entry{Before: e.After, After: e.Before}
	b.Operation, b.Path = e.Operation, e.Path
	switch e.Operation {
	case message.Create, message.Symlink:
		b.Operation = message.Delete
	case message.Delete:
		b.Operation, b.Path = message.Create, string(e.Before.Path)
		if e.Before.Mode == object.Symlink {
			b.Operation = message.Symlink
		}
	case message.Rename:
		b.Path, b.OldPath = e.OldPath, e.Path
	case message.Mkdir:
		b.Operation = message.Rmdir
	case message.Rmdir:
		b.Operation = message.Mkdir
	}
	return b
}
