// Package moved reads and writes the maps of purges.
//
// A purge gives every commit from the first that it changes another id. A map holds
// what each was and is now: magic, the count (8 bytes, big-endian), the pairs of old
// and new id sorted by the old one, CRC-32C of all before it. It is never changed.
package moved

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// ID is git's.
type ID = object.ID

const (
	magic = "UMBMOVE1"
	head  = len(magic) + 8
	width = 2 * len(ID{})
)

// Encode returns a map's bytes; one that names nothing is written too.
func Encode(moves map[ID]ID) []byte {
	olds := make([]ID, 0, len(moves))
	for id := range moves {
		olds = append(olds, id)
	}
	slices.SortFunc(olds, func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	out := make([]byte, 0, head+width*len(olds)+4)
	out = append(out, magic...)
	out = binary.BigEndian.AppendUint64(out, uint64(len(olds)))
	for _, id := range olds {
		to := moves[id]
		out = append(append(out, id[:]...), to[:]...)
	}
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, crc32.MakeTable(crc32.Castagnoli)))
}

// Find looks into the map in a file, without reading the whole of it: which commit
// that one is now whose id begins with prefix, hexadecimal digits. None if several do.
func Find(fsys vfs.FS, name, prefix string) (old, now ID, ok bool, err error) {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return old, now, false, nil
	}
	if err != nil {
		return old, now, false, err
	}
	defer f.Close()
	var first [head]byte
	if _, err := f.ReadAt(first[:], 0); err != nil || string(first[:len(magic)]) != magic {
		return old, now, false, fmt.Errorf("%s: no map of commits", name)
	}
	pair := func(i uint64) (o, n ID, err error) {
		var b [width]byte
		_, err = f.ReadAt(b[:], int64(head)+int64(i)*int64(width))
		copy(o[:], b[:len(o)])
		copy(n[:], b[len(o):])
		return o, n, err
	}
	lo, hi := uint64(0), binary.BigEndian.Uint64(first[len(magic):])
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
