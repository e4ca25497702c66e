package pack

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ErrTorn is what a Scanner gives where a journal does not end as one that was
// written whole does. Errors of the file system are never ErrTorn.
var ErrTorn = errors.New("pack: torn")

// DefaultMaxObject bounds an object or delta that is taken into memory, in
// bytes, where an option leaves it open.
const DefaultMaxObject = 256 << 20

// ScanOptions sets a Scanner's bounds.
type ScanOptions struct {
	MaxObject int64 // largest inflated entry, bytes; 0: DefaultMaxObject
}

// Scanned is one whole entry.
type Scanned struct {
	Offset int64 // where the entry begins
	End    int64 // where the next one would
	Header EntryHeader
	Data   []byte // inflated: the object, or the delta; the caller's to keep
	CRC    uint32 // of the entry's bytes, as an index holds it
}

// Scanner reads a pack's entries in order without an index, as one must after a
// crash: the count may not be set, the tail may be zeros, a trailer may be
// there or not. Memory: one entry. For one goroutine.
type Scanner struct {
	r     io.ReaderAt
	size  int64
	max   int64
	in    *inflater
	br    *bufio.Reader
	src   *fileReader
	pos   int64 // of the next entry
	count uint32
	err   error
}

// scanWindow is how much a Scanner reads at a time, in bytes.
const scanWindow = 128 << 10

// NewScanner scans the first size bytes of r.
func NewScanner(r io.ReaderAt, size int64, opt ScanOptions) *Scanner {
	s := &Scanner{r: r, size: size, max: opt.MaxObject, pos: HeaderSize}
	if s.max <= 0 {
		s.max = DefaultMaxObject
	}
	return s
}

// Count gives the number of entries read so far.
func (s *Scanner) Count() uint32 { return s.count }

// Pos gives where the entries read so far end.
func (s *Scanner) Pos() int64 { return s.pos }

// Next gives the next entry. At a clean end (zeros up to the size, or the right
// trailer and then zeros; and as many entries as the header says, if it says)
// the error is io.EOF; at any other end ErrTorn, joined with ErrTooLarge
// if MaxObject was the reason. After an error the same one is returned again.
func (s *Scanner) Next() (Scanned, error) {
	if s.err != nil {
		return Scanned{}, s.err
	}
	e, err := s.next()
	if err != nil {
		s.err = err
	}
	return e, err
}

func (s *Scanner) next() (Scanned, error) {
	if s.br == nil {
		if done, err := s.start(); done || err != nil {
			return Scanned{}, orEOF(err)
		}
	}
	if done, err := s.atEnd(); done || err != nil {
		return Scanned{}, orEOF(err)
	}
	e, err := s.entry()
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrTooLarge) {
		err = fmt.Errorf("%w: at byte %d: %w", ErrTorn, s.pos, err)
	}
	if err != nil {
		return Scanned{}, err
	}
	s.pos = e.End
	s.count++
	return e, nil
}

func orEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// start checks the pack's header. A file that was made and never written, or
// not even its header, is an empty pack.
func (s *Scanner) start() (done bool, err error) {
	s.src = &fileReader{r: s.r, end: s.size}
	s.br = bufio.NewReaderSize(s.src, int(max(256, min(s.size, scanWindow))))
	head, err := s.br.Peek(HeaderSize)
	if err != nil && err != io.EOF {
		return false, err
	}
	want := Header(0)
	if bytes.Equal(head, want[:len(head)]) && len(head) < HeaderSize {
		return true, nil
	}
	if allZero(head) {
		return true, s.zeroFrom(0)
	}
	if len(head) < HeaderSize || !bytes.Equal(head[:8], want[:8]) {
		return false, fmt.Errorf("%w: no pack header", ErrTorn)
	}
	_, err = s.br.Discard(HeaderSize)
	return false, err
}

// atEnd reports whether the entries end at s.pos, and end well.
func (s *Scanner) atEnd() (bool, error) {
	next, err := s.br.Peek(TrailerSize + 1)
	if err != nil && err != io.EOF {
		return false, err
	}
	if len(next) > 0 && next[0] != 0 {
		// A trailer can look like an entry, but nothing comes after it.
		if len(next) > TrailerSize && next[TrailerSize] != 0 {
			return false, nil
		}
		if s.zeroFrom(s.pos+TrailerSize) != nil {
			return false, nil
		}
		ok, err := s.trailer(next[:min(len(next), TrailerSize)])
		if !ok || err != nil {
			return false, err
		}
		return true, s.counted()
	}
	// A trailer may begin with a zero byte as well.
	if err := s.zeroFrom(s.pos); err != nil {
		if !errors.Is(err, ErrTorn) || s.zeroFrom(s.pos+TrailerSize) != nil {
			return true, err
		}
		ok, terr := s.trailer(next[:min(len(next), TrailerSize)])
		if terr != nil {
			return true, terr
		}
		if !ok {
			return true, err
		}
	}
	return true, s.counted()
}

// counted compares the number of entries with the header's, which is 0 until
// the pack is finished.
func (s *Scanner) counted() error {
	var b [4]byte
	if err := readAt(s.r, b[:], 8); err != nil {
		return err
	}
	if n := binary.BigEndian.Uint32(b[:]); n != 0 && n != s.count {
		return fmt.Errorf("%w: %d entries, the header says %d", ErrTorn, s.count, n)
	}
	return nil
}

// trailer reports whether these bytes at s.pos are the checksum of a finished
// pack of the entries so far. After a power cut part of it, or the count in the
// header, may be zeros still: pages reach the disk in any order.
func (s *Scanner) trailer(got []byte) (bool, error) {
	sum, err := packSum(s.r, s.pos, s.count)
	if err != nil {
		return false, err
	}
	for i, c := range got {
		if c != sum[i] && c != 0 {
			return false, nil
		}
	}
	return true, nil
}

// zeroFrom gives ErrTorn where [off,size) holds anything but zeros.
func (s *Scanner) zeroFrom(off int64) error {
	if off >= s.size {
		return nil
	}
	buf := make([]byte, min(s.size-off, scanWindow))
	for off < s.size {
		b := buf[:min(int64(len(buf)), s.size-off)]
		if err := readAt(s.r, b, off); err != nil {
			return err
		}
		if !allZero(b) {
			return fmt.Errorf("%w: more than zeros after byte %d", ErrTorn, off)
		}
		off += int64(len(b))
	}
	return nil
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// entry reads the entry at s.pos, where br is.
func (s *Scanner) entry() (Scanned, error) {
	head, err := s.br.Peek(maxHeader)
	if err != nil && err != io.EOF {
		return Scanned{}, err
	}
	h, err := ParseHeader(head)
	if err == io.ErrUnexpectedEOF {
		return Scanned{}, corrupt("file ends within an entry's header")
	}
	if err != nil {
		return Scanned{}, err
	}
	if h.Kind == OfsDelta && h.BaseDistance > uint64(s.pos-HeaderSize) {
		return Scanned{}, corrupt("base before the first entry")
	}
	if _, err := s.br.Discard(h.HeaderLen); err != nil {
		return Scanned{}, err
	}
	if h.Size/maxRatio > s.size-s.pos {
		return Scanned{}, corrupt("entry of %d bytes cannot fit", h.Size)
	}
	if h.Size > s.max {
		return Scanned{}, fmt.Errorf("%w: %d bytes", ErrTooLarge, h.Size)
	}
	if s.in == nil {
		s.in = &inflater{}
	}
	data, err := s.in.readAll(s.br, h.Size)
	if err != nil {
		return Scanned{}, err
	}
	end := s.src.off - int64(s.br.Buffered())
	crc, err := crcOf(s.r, s.pos, end)
	if err != nil {
		return Scanned{}, err
	}
	return Scanned{Offset: s.pos, End: end, Header: h, Data: data, CRC: crc}, nil
}

// crcOf gives the checksum that an index holds for the entry at [off,end).
func crcOf(r io.ReaderAt, off, end int64) (uint32, error) {
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, &fileReader{r: r, off: off, end: end}); err != nil {
		return 0, err
	}
	return sum.Sum32(), nil
}

// packSum gives the SHA-1 of [0,end), with this count in the header.
func packSum(r io.ReaderAt, end int64, count uint32) ([TrailerSize]byte, error) {
	var sum [TrailerSize]byte
	h := sha1.New()
	head := Header(count)
	h.Write(head[:])
	n, err := io.CopyBuffer(h, &fileReader{r: r, off: HeaderSize, end: end}, make([]byte, max(1, min(end, scanWindow))))
	if err != nil {
		return sum, err
	}
	if n != end-HeaderSize {
		return sum, corrupt("file ends at byte %d", n+HeaderSize)
	}
	h.Sum(sum[:0])
	return sum, nil
}
