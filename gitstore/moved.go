package gitstore

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

// movedFiles lists the numbers of the maps, oldest first.
func (s *Store) movedFiles() ([]int, error) {
	names, err := s.fs.ReadDir(storedir.Moved)
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
func (s *Store) Moved(prefix string) (old, now ID, ok bool, err error) {
	files, err := s.movedFiles()
	if err != nil {
		return old, now, false, errs.Wrap(err, "")
	}
	for i := 0; i < len(files); i++ {
		o, n, found, err := moved.Find(s.fs, storedir.MovedName(files[i]), prefix)
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
func errRewritten(now ID) error {
	return errs.New(errs.Gone, "history_rewritten", "A purge has given that commit another id: %s.", now).With("moved_to", now.String())
}

// noCommit is the error for an id that leads to no commit. If a purge changed the
// id, the error has the new one.
func (s *Store) noCommit(id ID) error {
	if _, now, ok, err := s.Moved(id.String()); err == nil && ok {
		return errRewritten(now)
	}
	return errs.New(errs.NotFound, "commit_not_found", "The commit does not exist.")
}

// PurgedBlob is the id of what is in place of purged bytes.
func PurgedBlob() ID { return object.Hash(object.Blob, []byte(purgedText)) }

const purgedText = "purged\n"
