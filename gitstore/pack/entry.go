// Package pack reads and writes git's pack files and their indexes
// (gitformat-pack(5), version 2 of both): single entries for a journal, whole
// packs as a stream, and packs merged into one without compressing again.
//
// Invariants: what is read is bounded in memory by the caller's MaxObject and
// checked (zlib's Adler-32, sizes, the entry's CRC where raw bytes are copied);
// nothing that a file holds makes a function panic. A pack that a Writer or
// FinishJournal finished passes `git index-pack --strict` if its objects do.
// Making files durable is the caller's matter: nothing here syncs.
package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
	"math"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zlib"

	"umbra/gitstore/object"
)

// Entry kinds that exist in packs alone (gitformat-pack(5)).
const (
	OfsDelta object.Kind = 6 // base given by its distance in the pack
	RefDelta object.Kind = 7 // base given by its id
)

// HeaderSize is where a pack's first entry begins, TrailerSize the checksum at
// its end, in bytes.
const (
	HeaderSize  = 12
	TrailerSize = 20
)

// Errors of this package. All that a damaged file causes is ErrCorrupt; errors
// of the file system come through as they are.
var (
	ErrCorrupt  = errors.New("pack: corrupt")
	ErrNotFound = errors.New("pack: object not found")
	ErrTooLarge = errors.New("pack: object larger than allowed")
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

// Header gives a pack's first twelve bytes.
func Header(count uint32) [HeaderSize]byte {
	h := [HeaderSize]byte{'P', 'A', 'C', 'K', 0, 0, 0, 2}
	binary.BigEndian.PutUint32(h[8:], count)
	return h
}

// EntryHeader is what is before an entry's zlib stream.
type EntryHeader struct {
	Kind         object.Kind // or OfsDelta, RefDelta
	Size         int64       // inflated bytes of what follows: object or delta
	BaseDistance uint64      // OfsDelta: how far back the base's entry begins
	BaseID       object.ID   // RefDelta
	HeaderLen    int         // bytes that the header takes
}

// maxHeader bounds an entry's header: a 10-byte size and a 20-byte id.
const maxHeader = 30

// ParseHeader reads an entry's header at the front of b. Where b ends within
// the header the error is io.ErrUnexpectedEOF, else ErrCorrupt.
func ParseHeader(b []byte) (EntryHeader, error) {
	if len(b) == 0 {
		return EntryHeader{}, io.ErrUnexpectedEOF
	}
	h := EntryHeader{Kind: object.Kind(b[0] >> 4 & 7)}
	size, n := uint64(b[0]&15), 1
	for shift := 4; b[n-1]&0x80 != 0; shift += 7 {
		if n == len(b) {
			return EntryHeader{}, io.ErrUnexpectedEOF
		}
		part := uint64(b[n] & 0x7f)
		if shift > 62 || part<<shift>>shift != part {
			return EntryHeader{}, corrupt("entry size overflows")
		}
		size |= part << shift
		n++
	}
	if size > math.MaxInt64 {
		return EntryHeader{}, corrupt("entry size overflows")
	}
	h.Size = int64(size)
	switch h.Kind {
	case object.Commit, object.Tree, object.Blob, object.Tag:
	case OfsDelta:
		d, used, err := parseDistance(b[n:])
		if err != nil {
			return EntryHeader{}, err
		}
		h.BaseDistance = d
		n += used
	case RefDelta:
		if len(b) < n+20 {
			return EntryHeader{}, io.ErrUnexpectedEOF
		}
		n += copy(h.BaseID[:], b[n:n+20])
	default:
		return EntryHeader{}, corrupt("entry kind %d", h.Kind)
	}
	h.HeaderLen = n
	return h, nil
}

// parseDistance reads the "offset encoding" of an OFS_DELTA: most significant
// digits first, one added at each continuation.
func parseDistance(b []byte) (uint64, int, error) {
	var d uint64
	for i, c := range b {
		if d > math.MaxInt64>>7 {
			return 0, 0, corrupt("base distance overflows")
		}
		d = d<<7 | uint64(c&0x7f)
		if c&0x80 == 0 {
			if d == 0 {
				return 0, 0, corrupt("entry is its own base")
			}
			return d, i + 1, nil
		}
		d++
	}
	return 0, 0, io.ErrUnexpectedEOF
}

// appendHeader writes what ParseHeader reads.
func appendHeader(dst []byte, h EntryHeader) []byte {
	c := byte(h.Kind)<<4 | byte(h.Size&15)
	for size := h.Size >> 4; size > 0; size >>= 7 {
		dst = append(dst, c|0x80)
		c = byte(size & 0x7f)
	}
	dst = append(dst, c)
	switch h.Kind {
	case OfsDelta:
		var buf [10]byte
		i := len(buf) - 1
		buf[i] = byte(h.BaseDistance & 0x7f)
		for d := h.BaseDistance >> 7; d > 0; d >>= 7 {
			d--
			i--
			buf[i] = 0x80 | byte(d&0x7f)
		}
		dst = append(dst, buf[i:]...)
	case RefDelta:
		dst = append(dst, h.BaseID[:]...)
	}
	return dst
}

// Fast is the zlib level of what is compressed while a caller waits.
const Fast = 1

// Stored is the level that compresses nothing.
const Stored = 0

// AppendEntry adds a whole entry to dst: header and zlib stream. Level is
// zlib's, -2 to 9, 0 to store.
func AppendEntry(dst []byte, kind object.Kind, data []byte, level int) []byte {
	return appendDeflated(appendHeader(dst, EntryHeader{Kind: kind, Size: int64(len(data))}), data, level)
}

// AppendOfsDelta adds an entry that makes its object by a delta from the entry
// that begins baseDistance bytes before this one.
func AppendOfsDelta(dst []byte, baseDistance uint64, delta []byte, level int) []byte {
	h := EntryHeader{Kind: OfsDelta, Size: int64(len(delta)), BaseDistance: baseDistance}
	return appendDeflated(appendHeader(dst, h), delta, level)
}

// AppendRaw adds an entry whose zlib stream is already there, as Pack.Raw gives
// it. h.HeaderLen plays no part.
func AppendRaw(dst []byte, h EntryHeader, stream []byte) []byte {
	return append(appendHeader(dst, h), stream...)
}

// appender is an io.Writer on the end of a slice.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// deflater is a compressor with the slice that it last wrote to.
type deflater struct {
	z   *zlib.Writer
	out appender
}

// A compressor's tables take some hundred KB and longer to make than an entry
// takes to compress. The pools hold nothing but idle ones, by level.
var deflaters [12]sync.Pool

func clampLevel(level int) int { return max(zlib.HuffmanOnly, min(zlib.BestCompression, level)) }

// getDeflater gives one that writes to w.
func getDeflater(level int, w io.Writer) *deflater {
	level = clampLevel(level)
	d, ok := deflaters[level-zlib.HuffmanOnly].Get().(*deflater)
	if !ok {
		z, err := zlib.NewWriterLevel(nil, level)
		if err != nil {
			panic(err) // the level was clamped
		}
		d = &deflater{z: z}
	}
	if w == nil {
		w = &d.out
	}
	d.z.Reset(w)
	return d
}

func putDeflater(d *deflater, level int) {
	d.out.b = nil
	d.z.Reset(nil)
	deflaters[clampLevel(level)-zlib.HuffmanOnly].Put(d)
}

// storedBelow is the length in bytes below which nothing is compressed: a delta
// of a tree is mostly an object id, and to make a code for it takes longer than
// all the rest.
const storedBelow = 64

// smallMax is the length in bytes up to which level 1 is done without the tables
// of a full compressor: they cost time to clear, and the result is longer.
const smallMax = 32 << 10

func appendDeflated(dst, data []byte, level int) []byte {
	if len(data) < storedBelow || level == Stored && len(data) <= math.MaxUint16 {
		return appendStored(dst, data)
	}
	if level == zlib.BestSpeed && len(data) <= smallMax {
		out := appender{append(dst, 0x78, 0x01)}
		_ = flate.StatelessDeflate(&out, data, true, nil) // an appender never fails
		return binary.BigEndian.AppendUint32(out.b, adler32.Checksum(data))
	}
	d := getDeflater(level, nil)
	defer putDeflater(d, level)
	d.out.b = dst
	// An appender never fails, so neither does the stream.
	_, _ = d.z.Write(data)
	_ = d.z.Close()
	return d.out.b
}

// appendStored appends a zlib stream of one stored block (RFC 1950, RFC 1951
// 3.2.4).
func appendStored(dst, data []byte) []byte {
	n := uint16(len(data))
	dst = append(dst, 0x78, 0x01, 1, byte(n), byte(n>>8), byte(^n), byte(^n>>8))
	dst = append(dst, data...)
	return binary.BigEndian.AppendUint32(dst, adler32.Checksum(data))
}
