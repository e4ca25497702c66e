package pack

import (
	"io"
	"sync"
)

// nearbySize is how much of a file a nearby holds, in bytes. Versions of a directory
// are a few hundred bytes apart, so a chain of them is read with few calls.
const nearbySize = 32 << 10

// nearby is a part of a file, read in one call for a chain of deltas, whose bases are
// before them and mostly close. Not safe for concurrent use.
type nearby struct {
	r    io.ReaderAt
	from int64
	data []byte
	buf  *[]byte
}

var nearbys = sync.Pool{New: func() any {
	b := make([]byte, nearbySize)
	return &b
}}

// cover reads the part of the file that ends a little behind off, where an entry
// begins; next is the entry whose base it is. An entry that is far before next is not
// covered: the bytes between them would be read for nothing.
func (w *nearby) cover(off, next int64) error {
	const tail = 1 << 10
	if next-off > nearbySize/8 || off >= w.from && off < w.from+int64(len(w.data)) {
		return nil
	}
	if w.buf == nil {
		w.buf = nearbys.Get().(*[]byte)
	}
	w.from = max(0, off+tail-nearbySize)
	n, err := w.r.ReadAt(*w.buf, w.from)
	w.data = (*w.buf)[:n]
	if err == io.EOF {
		err = nil
	}
	if err != nil {
		return &fileError{err: err}
	}
	return nil
}

// ReadAt is like io.ReaderAt's, but it may read a part of p without an error.
func (w *nearby) ReadAt(p []byte, off int64) (int, error) {
	if held := w.at(off); held != nil {
		return copy(p, held), nil
	}
	return w.r.ReadAt(p, off)
}

// at returns what is held of the file from a place on.
func (w *nearby) at(off int64) []byte {
	if at := off - w.from; at >= 0 && at < int64(len(w.data)) {
		return w.data[at:]
	}
	return nil
}

func (w *nearby) free() {
	if w.buf != nil {
		nearbys.Put(w.buf)
	}
}
