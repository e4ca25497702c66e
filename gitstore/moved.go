package gitstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"umbra/gitstore/object"
	"umbra/internal/errs"
)

// A purge gives every commit from the first that it changes another id. What
// each was and is now stands in `moved/<number>`, eight decimal digits, one file
// a purge: magic, the count (8 bytes, big-endian), the pairs of old and new id
// sorted by the old one, CRC-32C of all before it. The files are never changed.
const (
	movedDir   = "moved"
	movedMagic = "UMBMOVE1"
	movedHead  = len(movedMagic) + 8
	movedPair  = 2 * len(ID{})
)

func movedName(n int) string { return path.Join(movedDir, fmt.Sprintf("%08d", n)) }

// encodeMoved gives the file's bytes; one that names nothing is written too.
func encodeMoved(moves map[ID]ID) []byte {
	olds := make([]ID, 0, len(moves))
	for id := range moves {
		olds = append(olds, id)
	}
	slices.SortFunc(olds, func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	out := make([]byte, 0, movedHead+movedPair*len(olds)+4)
	out = append(out, movedMagic...)
	out = binary.BigEndian.AppendUint64(out, uint64(len(olds)))
	for _, id := range olds {
		to := moves[id]
		out = append(append(out, id[:]...), to[:]...)
	}
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, crc32.MakeTable(crc32.Castagnoli)))
}

// movedFiles lists the numbers of the maps, oldest first.
func (s *Store) movedFiles() ([]int, error) {
	names, err := s.fs.ReadDir(movedDir)
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

// Moved tells which commit a commit of before a purge is now, after all purges
// since; false for an id that no purge has changed. prefix is its id in
// hexadecimal digits, or their beginning: where that fits several, none is told.
func (s *Store) Moved(prefix string) (old, now ID, ok bool, err error) {
	files, err := s.movedFiles()
	if err != nil {
		return old, now, false, errs.Wrap(err, "")
	}
	for i := 0; i < len(files); i++ {
		o, n, found, err := s.movedIn(movedName(files[i]), prefix)
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

// movedIn looks into one map, without reading the whole of it.
func (s *Store) movedIn(name, prefix string) (old, now ID, ok bool, err error) {
	f, err := s.fs.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return old, now, false, nil
	}
	if err != nil {
		return old, now, false, err
	}
	defer f.Close()
	var head [16]byte
	if _, err := f.ReadAt(head[:], 0); err != nil || string(head[:len(movedMagic)]) != movedMagic {
		return old, now, false, fmt.Errorf("%s: no map of commits", name)
	}
	pair := func(i uint64) (o, n ID, err error) {
		var b [movedPair]byte
		_, err = f.ReadAt(b[:], int64(movedHead)+int64(i)*int64(movedPair))
		copy(o[:], b[:len(o)])
		copy(n[:], b[len(o):])
		return o, n, err
	}
	lo, hi := uint64(0), binary.BigEndian.Uint64(head[len(movedMagic):])
	all := hi
	for lo < hi {
		mid := (lo + hi) / 2
		o, _, err := pair(mid)
		if err != nil {
			return old, now, false, err
		}
		if o.String() < prefix {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == all {
		return old, now, false, nil
	}
	if old, now, err = pair(lo); err != nil || !strings.HasPrefix(old.String(), prefix) {
		return ID{}, ID{}, false, err
	}
	if lo+1 < all {
		next, _, err := pair(lo + 1)
		if err != nil || strings.HasPrefix(next.String(), prefix) {
			return ID{}, ID{}, false, err
		}
	}
	return old, now, true, nil
}

// errRewritten is answered for a commit whose id a purge changed.
func errRewritten(now ID) error {
	return errs.New(errs.Gone, "history_rewritten", "A purge has given that commit another id: %s.", now).With("moved_to", now.String())
}

// noCommit is the error for an id that leads to no commit: where a purge has
// changed it, it tells the id that it is now.
func (s *Store) noCommit(id ID) error {
	if _, now, ok, err := s.Moved(id.String()); err == nil && ok {
		return errRewritten(now)
	}
	return errs.New(errs.NotFound, "commit_not_found", "The commit does not exist.")
}

// PurgedBlob is the id of what stands in place of purged bytes.
func PurgedBlob() ID { return object.Hash(object.Blob, []byte(purgedText)) }

const purgedText = "purged\n"
