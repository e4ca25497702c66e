package pack

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/adler32"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zlib"
)

// maxRatio is the most that deflate makes of one byte. A size that the bytes at
// hand cannot give is a lie, found before memory is taken for it.
const maxRatio = 1032

// window is how much of a pack is read at a time, in bytes.
const window = 8 << 10

// inflater is a decompressor with what it reads from.
type inflater struct {
	br  *bufio.Reader // of a file; nil until it is needed
	mem bytes.Reader  // of bytes at hand, which is faster than through a buffer
	z   io.ReadCloser
}

// The pool holds idle decompressors, some ten KB each.
var inflaters sync.Pool

// getInflater gives one that reads from br, which reads from r.
func getInflater(r io.Reader) *inflater {
	in := pooledInflater()
	if in.br == nil {
		in.br = bufio.NewReaderSize(r, window)
	} else {
		in.br.Reset(r)
	}
	return in
}

// getMemInflater gives one that reads from mem, which reads b.
func getMemInflater(b []byte) *inflater {
	in := pooledInflater()
	in.mem.Reset(b)
	return in
}

func pooledInflater() *inflater {
	if in, ok := inflaters.Get().(*inflater); ok {
		return in
	}
	return &inflater{}
}

func putInflater(in *inflater) {
	if in.br != nil {
		in.br.Reset(nil)
	}
	in.mem.Reset(nil)
	inflaters.Put(in)
}

// begin starts on the zlib stream at br's position. It reads from br no byte
// beyond the stream's end.
func (in *inflater) begin(br flate.Reader) error {
	if in.z == nil {
		z, err := zlib.NewReader(br)
		if err != nil {
			return inflateError(err)
		}
		in.z = z
		return nil
	}
	return inflateError(in.z.(zlib.Resetter).Reset(br, nil))
}

// readAll inflates a stream that must hold exactly size bytes.
func (in *inflater) readAll(br flate.Reader, size int64) ([]byte, error) {
	if err := in.begin(br); err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(in.z, data); err != nil {
		return nil, inflateError(err)
	}
	return data, in.end()
}

// storedOverhead is what a zlib stream of one stored block takes besides its content, in
// bytes: two headers and the checksum.
const storedOverhead = 2 + 5 + 4

// storedContent returns the size bytes of the zlib stream at the front of b if that is
// one stored block, as appendStored writes it; they are a part of b. All other streams,
// and what is not sound, are left to an inflater: ok is false.
func storedContent(b []byte, size int64) (data []byte, ok bool) {
	if size >= storedBelow || int64(len(b)) < size+storedOverhead {
		return nil, false
	}
	n := uint16(size)
	if b[0] != 0x78 || b[1] != 0x01 || b[2] != 1 || binary.LittleEndian.Uint16(b[3:]) != n || binary.LittleEndian.Uint16(b[5:]) != ^n {
		return nil, false
	}
	data = b[7 : 7+size]
	return data, adler32.Checksum(data) == binary.BigEndian.Uint32(b[7+size:])
}

// deltaTarget inflates the beginning of a delta of size bytes, and gives the size
// of what it makes.
func (in *inflater) deltaTarget(br flate.Reader, size int64) (int64, error) {
	if err := in.begin(br); err != nil {
		return 0, err
	}
	head := make([]byte, min(size, 2*binary.MaxVarintLen64))
	if _, err := io.ReadFull(in.z, head); err != nil {
		return 0, inflateError(err)
	}
	_, target, err := DeltaSizes(head)
	return target, err
}

// end checks that the stream ends here, and its checksum.
func (in *inflater) end() error {
	var one [1]byte
	n, err := io.ReadFull(in.z, one[:])
	switch {
	case n > 0:
		return corrupt("entry is longer than its header says")
	case err != io.EOF:
		return inflateError(err)
	}
	return nil
}

// inflateError turns what zlib and flate say of bad bytes into ErrCorrupt, and
// lets an error of the file pass.
func inflateError(err error) error {
	if err == nil || errors.Is(err, ErrCorrupt) {
		return err
	}
	if _, ok := errors.AsType[*fileError](err); ok {
		return err
	}
	return corrupt("%v", err)
}

// fileError marks an error that came from the file and not from its bytes.
type fileError struct{ err error }

func (e *fileError) Error() string { return e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// fileReader reads [off,end) of a file in order, and marks its errors.
type fileReader struct {
	r        io.ReaderAt
	off, end int64
}

func (f *fileReader) Read(p []byte) (int, error) {
	if f.off >= f.end {
		return 0, io.EOF
	}
	if left := f.end - f.off; int64(len(p)) > left {
		p = p[:left]
	}
	n, err := f.r.ReadAt(p, f.off)
	f.off += int64(n)
	if n > 0 {
		return n, nil
	}
	if err == nil || err == io.EOF {
		// The file is shorter than it was said to be.
		return 0, io.EOF
	}
	return 0, &fileError{err: err}
}

// readAt fills p from off. A file that ends before is corrupt.
func readAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || err == io.EOF:
		return corrupt("file ends at byte %d", off+int64(n))
	}
	return err
}
