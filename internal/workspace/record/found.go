package record

import (
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/wspath"
)

// CommitFound makes one commit of what a scan found, exact renames as renames.
func (r *Recorder) CommitFound(ctx context.Context, list []External, o *Owner) (int, gitstore.Committed, error) {
	var edits, puts []gitstore.Edit
	for i := range list {
		if list[i].Mode == 0 {
			edits = append(edits, gitstore.Edit{Path: list[i].Path})
		} else {
			puts = append(puts, list[i].put())
		}
	}
	edits = append(edits, puts...)
	entries := pairRenames(list)
	r.keepPermissions(entries)
	m := o.Message
	named, err := r.Obeys(ctx, &m, entries, nil, true)
	if err != nil {
		return 0, gitstore.Committed{}, err
	}
	m.Extra = slices.Concat(m.Extra, certaintyTrailers(entries), named)
	if m.Entries, err = r.MessageEntries(ctx, entries); err != nil {
		return 0, gitstore.Committed{}, err
	}
	before := r.Disk.Store.Snapshot()
	c, err := r.Disk.Store.Commit(ctx, gitstore.Draft{Edits: edits, Message: m, Entries: len(entries)})
	if err == nil && !c.NoChange {
		paths := make([]wspath.Path, len(list))
		for i := range list {
			paths[i] = list[i].Path
			if list[i].Mode == 0 {
				r.Disk.Index.DropFile(list[i].Path)
			}
		}
		r.Progress.Dirty(append(paths, foldersThatCame(before, r.Disk.Store.Snapshot(), paths)...))
	}
	return len(entries), c, err
}

// maxTwins bounds how many files of equal content are checked for one that
// fits.
const maxTwins = 64

// pairRenames gives the entries, one for a file that went under one name and
// came under another with the same bytes and mode. Of several that fit, the one
// of the same base name is taken; empty files only then.
func pairRenames(list []External) []Entry {
	type key struct {
		id   object.ID
		mode object.Mode
	}
	gone := make(map[key][]int)
	for i := range list {
		if x := &list[i]; x.Mode == 0 {
			k := key{x.Old.ID, x.Old.Mode}
			gone[k] = append(gone[k], i)
		}
	}
	from := make(map[int]int) // index of the new one -> of the old one
	paired := make(map[int]bool)
	match := func(i int, sameBase bool) {
		x := &list[i]
		if x.Mode == 0 || x.Old.Mode != 0 || !x.HasBlob {
			return
		}
		if _, ok := from[i]; ok {
			return
		}
		for n, j := range gone[key{x.Blob.ID(), x.Mode}] {
			if n == maxTwins {
				return
			}
			same := list[j].Path.Base() == x.Path.Base()
			if paired[j] || (sameBase || x.Blob.Size() == 0) && !same {
				continue
			}
			from[i], paired[j] = j, true
			return
		}
	}
	for _, sameBase := range []bool{true, false} {
		for i := range list {
			match(i, sameBase)
		}
	}
	var out []Entry
	for i := range list {
		if paired[i] {
			continue
		}
		e := list[i].entry()
		if j, ok := from[i]; ok {
			e.Operation, e.OldPath, e.Before = message.Rename, string(list[j].Path), list[j].Old
			e.certainty = claims.Weaker(e.certainty, list[j].certainty)
		}
		out = append(out, e)
	}
	return out
}
