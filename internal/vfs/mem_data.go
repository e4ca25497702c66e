package vfs

import (
	"math/bits"
	"math/rand/v2"
	"slices"
)

// sector is what a disk writes whole.
const sector = 512

// fileData is a regular file's bytes: as everyone reads them, and as they are on
// disk. dirty is what Sync will write: a sector that is not dirty is never
// written, even where cur and disk differ (after a Sync that failed).
type fileData struct {
	cur, disk []byte
	dirty     []uint64 // a bit for each sector
}

// resize gives b with n bytes; new ones are zeros.
func resize(b []byte, n int) []byte {
	if n <= len(b) {
		return b[:n]
	}
	old := len(b)
	b = slices.Grow(b, n-old)[:n]
	clear(b[old:])
	return b
}

// mark makes the sectors of [from, to) dirty.
func (d *fileData) mark(from, to int) {
	if from >= to {
		return
	}
	first, last := from/sector, (to-1)/sector
	if words := last/64 + 1; words > len(d.dirty) {
		d.dirty = resizeBits(d.dirty, words)
	}
	for s := first; s <= last; s++ {
		d.dirty[s/64] |= 1 << (s % 64)
	}
}

func resizeBits(b []uint64, n int) []uint64 { return append(b, make([]uint64, n-len(b))...) }

// write puts p at off and gives how far it reached.
func (d *fileData) write(p []byte, off int) {
	if end := off + len(p); end > len(d.cur) {
		d.setSize(end)
	}
	copy(d.cur[off:], p)
	d.mark(off, off+len(p))
}

func (d *fileData) setSize(n int) {
	// Where the disk still has old bytes under what now reads as zeros, those
	// zeros have to be written.
	d.mark(len(d.cur), min(n, len(d.disk)))
	d.cur = resize(d.cur, n)
}

// sync writes what is dirty.
func (d *fileData) sync() {
	d.disk = resize(d.disk, len(d.cur))
	for s := range d.sectors() {
		from := s * sector
		if from < len(d.cur) {
			to := min(from+sector, len(d.cur))
			copy(d.disk[from:to], d.cur[from:to])
		}
	}
	d.clean()
}

// clean forgets what was dirty: what Linux does with the pages whose write-out
// failed, whatever fsync then answers.
func (d *fileData) clean() { clear(d.dirty) }

// sectors gives the dirty ones in order.
func (d *fileData) sectors() func(func(int) bool) {
	return func(yield func(int) bool) {
		for i, word := range d.dirty {
			for ; word != 0; word &= word - 1 {
				if !yield(i*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// torn gives the bytes after a power cut in which those dirty sectors that
// written chooses had reached the disk, and the size was this one.
func (d *fileData) torn(size int, written func(sector int) bool) []byte {
	out := make([]byte, size)
	copy(out, d.disk)
	for s := range d.sectors() {
		from, to := s*sector, min((s+1)*sector, size)
		if from >= to || !written(s) {
			continue
		}
		n := 0
		if from < len(d.cur) {
			n = copy(out[from:to], d.cur[from:])
		}
		clear(out[from+n : to])
	}
	return out
}

// afterCut gives one of the states that a power cut may leave: the synced one,
// the newest, a prefix of what was written in the file's order, or sectors at
// random; with the size of before, of now, or one between.
func (d *fileData) afterCut(r *rand.Rand) []byte {
	all := slices.Collect(d.sectors())
	if len(all) == 0 && len(d.cur) == len(d.disk) {
		return slices.Clone(d.disk)
	}
	low, high := min(len(d.disk), len(d.cur)), max(len(d.disk), len(d.cur))
	sizes := []int{len(d.disk), len(d.cur), low + r.IntN(high-low+1)}
	size := sizes[r.IntN(len(sizes))]
	switch r.IntN(4) {
	case 0:
		return slices.Clone(d.disk)
	case 1:
		return d.torn(len(d.cur), func(int) bool { return true })
	case 2:
		end := r.IntN(len(all) + 1)
		return d.torn(size, func(s int) bool { return end > 0 && s <= all[end-1] })
	default:
		return d.torn(size, func(int) bool { return r.IntN(2) == 0 })
	}
}
