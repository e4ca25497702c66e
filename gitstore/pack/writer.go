package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// WriterOptions says how a pack is written.
type WriterOptions struct {
	Level int // zlib's, 1 to 9; 0: 1, the fastest; negative: stored
}

func (o WriterOptions) level() int {
	switch {
	case o.Level == 0:
		return 1
	case o.Level < 0:
		return 0
	}
	return o.Level
}

// writeBuffer gathers small entries into one write, in bytes.
const writeBuffer = 256 << 10

// Writer streams a new pack into a file. Memory: a buffer, a compressor, and
// about 100 bytes an object for the index. An object that is there already is
// not written again. A call that fails for its arguments or its source leaves
// the pack as it was before; one that fails for the file leaves the Writer
// useless. For one goroutine.
type Writer struct {
	f       vfs.File
	level   int
	entries []written
	byID    map[object.ID]int32
	buf     []byte // not yet written
	flushed int64  // where buf belongs
	err     error
	done    bool
}

// written is an entry, with the number of deltas under it.
type written struct {
	IdxEntry
	depth int32
}

// Create begins a pack in an empty file that is open for reading and writing.
func Create(f vfs.File, opt WriterOptions) (*Writer, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size != 0 {
		return nil, fmt.Errorf("%w: %d bytes", errNotEmpty, info.Size)
	}
	w := &Writer{f: f, level: opt.level(), byID: map[object.ID]int32{}}
	head := Header(0)
	w.buf = append(w.buf, head[:]...)
	return w, nil
}

// errNotEmpty guards what a file holds already.
var errNotEmpty = errors.New("pack: file for a new pack is not empty")

// Count gives the number of objects written.
func (w *Writer) Count() int { return len(w.entries) }

// Size gives where the next entry begins, in bytes.
func (w *Writer) Size() int64 { return w.flushed + int64(len(w.buf)) }

// Has reports whether the pack holds an object already.
func (w *Writer) Has(id object.ID) bool {
	_, ok := w.byID[id]
	return ok
}

// Holds returns what Has would return for each object added so far. Unlike Has it
// may be used after Finish, then by several goroutines at once.
func (w *Writer) Holds() func(object.ID) bool {
	ids := w.byID
	return func(id object.ID) bool {
		_, ok := ids[id]
		return ok
	}
}

// Depth gives how many deltas an object is on; 0 for a whole one. False
// where the pack does not hold it.
func (w *Writer) Depth(id object.ID) (int, bool) {
	i, ok := w.byID[id]
	if !ok {
		return 0, false
	}
	return int(w.entries[i].depth), true
}

// errFinished is given by a Writer after Finish.
var errFinished = errors.New("pack: writer is finished")

func (w *Writer) ready() error {
	if w.err == nil && w.done {
		return errFinished
	}
	return w.err
}

// Add writes a whole object and gives its id.
func (w *Writer) Add(kind object.Kind, data []byte) (object.ID, error) {
	id := object.Hash(kind, data)
	if err := w.ready(); err != nil || w.Has(id) {
		return id, err
	}
	if kind < object.Commit || kind > object.Tag {
		return id, corrupt("object of kind %d", kind)
	}
	start := len(w.buf)
	w.buf = AppendEntry(w.buf, kind, data, w.level)
	return id, w.added(id, start, 0)
}

// AddDelta writes object id as a delta of base, which this pack holds. The
// caller answers for the delta giving that object.
func (w *Writer) AddDelta(id, base object.ID, delta []byte) error {
	if err := w.ready(); err != nil || w.Has(id) {
		return err
	}
	return w.addDelta(id, base, int64(len(delta)), appendDeflated(nil, delta, w.level))
}

// addDelta writes a delta of size bytes that is compressed already.
func (w *Writer) addDelta(id, base object.ID, size int64, stream []byte) error {
	b, ok := w.byID[base]
	if !ok {
		return fmt.Errorf("%w: base %v", ErrNotFound, base)
	}
	start := len(w.buf)
	h := EntryHeader{Kind: OfsDelta, Size: size, BaseDistance: uint64(w.Size()) - w.entries[b].Offset}
	w.buf = AppendRaw(w.buf, h, stream)
	return w.added(id, start, w.entries[b].depth+1)
}

// added notes the entry that begins at start of buf.
func (w *Writer) added(id object.ID, start int, depth int32) error {
	w.note(id, w.flushed+int64(start), crc32.ChecksumIEEE(w.buf[start:]), depth)
	if len(w.buf) >= writeBuffer {
		return w.flush()
	}
	return nil
}

func (w *Writer) note(id object.ID, off int64, crc uint32, depth int32) {
	w.byID[id] = int32(len(w.entries))
	w.entries = append(w.entries, written{IdxEntry{ID: id, Offset: uint64(off), CRC: crc}, depth})
}

func (w *Writer) flush() error {
	if w.err != nil {
		return w.err
	}
	if len(w.buf) == 0 {
		return nil
	}
	n, err := w.f.WriteAt(w.buf, w.flushed)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = err
		return err
	}
	w.flushed += int64(n)
	w.buf = w.buf[:0]
	return nil
}

// entryWriter sends one entry's bytes through the Writer's buffer and sums them.
type entryWriter struct {
	w   *Writer
	crc uint32
}

func (e *entryWriter) Write(p []byte) (int, error) {
	e.crc = crc32.Update(e.crc, crc32.IEEETable, p)
	e.w.buf = append(e.w.buf, p...)
	if len(e.w.buf) >= writeBuffer {
		return len(p), e.w.flush()
	}
	return len(p), nil
}

// stream writes one entry of any size by fill, which gives the object's id. If
// fill fails, or the object is there already, the entry is taken back.
func (w *Writer) stream(h EntryHeader, depth int32, fill func(io.Writer) (object.ID, error)) (object.ID, error) {
	if err := w.ready(); err != nil {
		return object.Zero, err
	}
	// What was buffered before goes out first, so that taking back is to
	// forget all from here on.
	if err := w.flush(); err != nil {
		return object.Zero, err
	}
	start := w.flushed
	e := &entryWriter{w: w}
	_, err := e.Write(appendHeader(nil, h))
	var id object.ID
	if err == nil {
		id, err = fill(e)
	}
	if err != nil || w.Has(id) {
		w.flushed, w.buf = start, w.buf[:0]
		return id, err
	}
	w.note(id, start, e.crc, depth)
	return id, nil
}

// AddStream writes a whole object of size bytes from r, which must give exactly
// that many, in bounded memory. It fails with object.ErrCollision, and the pack
// is as before.
func (w *Writer) AddStream(kind object.Kind, size int64, r io.Reader) (object.ID, error) {
	if kind < object.Commit || kind > object.Tag || size < 0 {
		return object.Zero, corrupt("object of kind %d, %d bytes", kind, size)
	}
	return w.stream(EntryHeader{Kind: kind, Size: size}, 0, func(out io.Writer) (object.ID, error) {
		var id object.ID
		sum := object.NewChecked()
		_, _ = sum.Write(object.Header(kind, size))
		d := getDeflater(w.level, out)
		defer putDeflater(d, w.level)
		n, err := io.CopyBuffer(io.MultiWriter(sum, d.z), io.LimitReader(plainReader{r}, size), make([]byte, 64<<10))
		if err == nil && n < size {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = atEOF(r)
		}
		if err == nil {
			err = d.z.Close()
		}
		if err == nil {
			id, err = sum.ID()
		}
		return id, err
	})
}

// plainReader hides a WriterTo, which would choose its own buffer size.
type plainReader struct{ io.Reader }

// ErrLonger is returned where a source has more bytes than were announced.
var ErrLonger = errors.New("pack: source is longer than announced")

func atEOF(r io.Reader) error {
	var one [1]byte
	switch n, err := io.ReadFull(r, one[:]); {
	case n > 0:
		return ErrLonger
	case err != io.EOF:
		return err
	}
	return nil
}

// CopyRaw writes an entry of another pack as it is compressed there. A delta
// is on base, which this pack holds; for a whole object base is zero. The
// entry's bytes are compared with the index's checksum on the way.
func (w *Writer) CopyRaw(src *Pack, e Located, base object.ID) error {
	if err := w.ready(); err != nil || w.Has(e.ID) {
		return err
	}
	h, err := src.header(e.Offset)
	if err != nil {
		return err
	}
	body := &fileReader{r: src.f, off: e.Offset + int64(h.HeaderLen), end: e.End}
	if body.off > body.end {
		return corrupt("entry of %v runs into the next", e.ID)
	}
	sum, err := headerSum(src, e, h)
	if err != nil {
		return err
	}
	var depth int32
	if h.Kind == OfsDelta || h.Kind == RefDelta {
		b, ok := w.byID[base]
		if !ok {
			return fmt.Errorf("%w: base %v", ErrNotFound, base)
		}
		depth = w.entries[b].depth + 1
		h = EntryHeader{Kind: OfsDelta, Size: h.Size, BaseDistance: uint64(w.Size()) - w.entries[b].Offset}
	}
	if e.End-e.Offset > writeBuffer {
		_, err := w.stream(h, depth, func(out io.Writer) (object.ID, error) {
			_, err := io.CopyBuffer(out, io.TeeReader(body, &sum), make([]byte, 64<<10))
			if err == nil && uint32(sum) != e.CRC {
				err = corrupt("entry of %v has other bytes", e.ID)
			}
			return e.ID, err
		})
		return err
	}
	start := len(w.buf)
	w.buf = appendHeader(w.buf, h)
	at := len(w.buf)
	w.buf = append(w.buf, make([]byte, body.end-body.off)...)
	err = readAt(src.f, w.buf[at:], body.off)
	if err == nil {
		_, _ = sum.Write(w.buf[at:])
		if uint32(sum) != e.CRC {
			err = corrupt("entry of %v has other bytes", e.ID)
		}
	}
	if err != nil {
		w.buf = w.buf[:start]
		return err
	}
	return w.added(e.ID, start, depth)
}

// crcSum is a running CRC-32 as an io.Writer.
type crcSum uint32

func (c *crcSum) Write(p []byte) (int, error) {
	*c = crcSum(crc32.Update(uint32(*c), crc32.IEEETable, p))
	return len(p), nil
}

// headerSum begins an entry's checksum with its header as stored.
func headerSum(src *Pack, e Located, h EntryHeader) (crcSum, error) {
	var sum crcSum
	var head [maxHeader]byte
	if err := readAt(src.f, head[:h.HeaderLen], e.Offset); err != nil {
		return 0, err
	}
	_, _ = sum.Write(head[:h.HeaderLen])
	return sum, nil
}

// Finish writes the count and the trailer and cuts the file there. It gives the
// pack's checksum and its entries in the order of the file, for EncodeIdx. The
// file is neither synced nor closed.
func (w *Writer) Finish() ([20]byte, []IdxEntry, error) {
	var sum [20]byte
	if err := w.ready(); err != nil {
		return sum, nil, err
	}
	if err := w.flush(); err != nil {
		return sum, nil, err
	}
	w.done = true
	sum, err := FinishJournal(w.f, w.flushed, uint32(len(w.entries)))
	if err != nil {
		w.err = err
		return sum, nil, err
	}
	entries := make([]IdxEntry, len(w.entries))
	for i := range entries {
		entries[i] = w.entries[i].IdxEntry
	}
	w.byID, w.buf = nil, nil
	return sum, entries, nil
}

// FinishJournal turns a file whose entries end at end into a pack: it puts the
// count into the header, the SHA-1 of all at end, and cuts the file after it.
// It does not sync. Doing it again with the same numbers changes nothing.
func FinishJournal(f vfs.File, end int64, count uint32) ([20]byte, error) {
	var sum [20]byte
	var head [HeaderSize]byte
	if err := readAt(f, head[:], 0); err != nil {
		return sum, err
	}
	want := Header(count)
	if end < HeaderSize || !bytes.Equal(head[:8], want[:8]) {
		return sum, corrupt("no pack to finish")
	}
	if binary.BigEndian.Uint32(head[8:]) != count {
		if err := writeAt(f, want[8:], 8); err != nil {
			return sum, err
		}
	}
	sum, err := packSum(f, end, count)
	if err != nil {
		return sum, err
	}
	if err := writeAt(f, sum[:], end); err != nil {
		return sum, err
	}
	return sum, f.Truncate(end + TrailerSize)
}

func writeAt(f io.WriterAt, b []byte, off int64) error {
	n, err := f.WriteAt(b, off)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}
