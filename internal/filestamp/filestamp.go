// Package filestamp marks prepared files, so that a start after a power failure knows
// its own half-written files from a user's.
//
// The low 20 bits of the time of modification, in nanoseconds, are a function of
// the bits above them, of the file's inode and of the ID of the blob that it was to
// hold. A process that writes to the file, truncates or replaces it breaks that, but for a
// write of which only the bytes reach the disk (fdatasync). A stamp alone therefore
// proves nothing: what bears it is taken for torn only if it also consists of the
// blob's blocks and zeros.
//
// A file system without nanoseconds, or with inode numbers that change, keeps no
// stamps: nothing on it is taken for torn.
package filestamp

import (
	"encoding/binary"
	"hash/fnv"
	"io"
)

const (
	bits = 20 // about a millisecond
	mask = 1<<bits - 1
)

// Mtime returns the stamped time for a file, at most two milliseconds before at.
// Times are nanoseconds since 1970.
func Mtime(at int64, ino uint64, blob [20]byte) int64 {
	base := at &^ mask
	if m := base | low(base, ino, blob); m <= at {
		return m
	}
	base -= 1 << bits
	return base | low(base, ino, blob)
}

// Is reports whether a time of modification is stamped for a file and a blob. One
// in a million other times is.
func Is(mtime int64, ino uint64, blob [20]byte) bool {
	return mtime&mask == low(mtime&^mask, ino, blob)
}

func low(base int64, ino uint64, blob [20]byte) int64 {
	var b [36]byte
	binary.LittleEndian.PutUint64(b[:], uint64(base))
	binary.LittleEndian.PutUint64(b[8:], ino)
	copy(b[16:], blob[:])
	h := fnv.New64a()
	h.Write(b[:])
	x := h.Sum64()
	return int64((x ^ x>>bits ^ x>>(2*bits)) & mask)
}

// Torn reports whether a file of a size consists of a blob's blocks, each of them
// whole or zeros. The blob is not shorter.
func Torn(file io.ReaderAt, size int64, blob io.Reader) (bool, error) {
	const block = 512 // the smallest that a disk writes
	is, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); off < size; {
		n, err := file.ReadAt(is[:min(int64(len(is)), size-off)], off)
		if n == 0 {
			return false, err
		}
		if _, err := io.ReadFull(blob, want[:n]); err != nil {
			return false, err
		}
		for i := 0; i < n; i += block {
			end := min(i+block, n)
			if string(is[i:end]) != string(want[i:end]) && !zeros(is[i:end]) {
				return false, nil
			}
		}
		off += int64(n)
	}
	return true, nil
}

func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
