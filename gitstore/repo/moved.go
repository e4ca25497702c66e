package repo

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"

	"umbra/gitstore/moved"
	"umbra/gitstore/object"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
)

// MovedFiles lists the numbers of the maps, oldest first.
func (r *Repo) MovedFiles() ([]int, error) {
	names, err := r.FS.ReadDir(storedir.Moved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range names {
		if n, err := strconv.Atoi(e.Name); err == nil && len(e.Name) == 8 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Moved reports which commit a commit of before a purge is now, after all purges
// since; false for an id that no purge has changed. prefix is its id in
// hexadecimal digits, or their beginning: if that matches several, none is returned.
func (h History) Moved(prefix string) (old, now object.ID, ok bool, err error) {
	files, err := h.r.MovedFiles()
	if err != nil {
		return old, now, false, errs.Wrap(err, "")
	}
	for i := 0; i < len(files); i++ {
		o, n, found, err := moved.Find(h.r.FS, storedir.MovedName(files[i]), prefix)
		if err != nil {
			return old, now, false, errs.Wrap(err, "")
		}
		if !found {
			continue
		}
		if !ok {
			old, ok = o, true
		}
		now, prefix = n, n.String()
	}
	return old, now, ok, nil
}

// errRewritten is answered for a commit whose id a purge changed.
func errRewritten(now object.ID) error {
	return errs.New(errs.Gone, "history_rewritten", "A purge has given that commit another id: %s.", now).With("moved_to", now.String())
}

// noCommit is the error for an id that leads to no commit. If a purge changed the
// id, the error has the new one.
func (r *Repo) noCommit(id object.ID) error {
	if _, now, ok, err := r.Moved(id.String()); err == nil && ok {
		return errRewritten(now)
	}
	return errs.New(errs.NotFound, "commit_not_found", "The commit does not exist.")
}

// PurgedBlob is the id of what is in place of purged bytes.
func PurgedBlob() object.ID { return object.Hash(object.Blob, []byte(PurgedText)) }

const PurgedText = "purged\n"

// Rewrites counts the purges since the store was opened: what was read of
// history under another number may name commits and bytes that are no more.
func (h History) Rewrites() uint64 { return h.r.Purges.Count.Load() }

// StillThere fails for content that a purge has taken away since a draft was
// made that refers to it.
func (r *Repo) StillThere(id object.ID) error {
	gone := r.Purges.Gone.Load()
	if gone == nil || !(*gone)[id] || r.HasBlob(id) {
		return nil
	}
	return errs.New(errs.Unavailable, "history_rewritten", "A purge took that content away meanwhile; try again.")
}
