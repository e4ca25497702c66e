package pack

import "umbra/gitstore/object"

// AddEncoded writes an entry that AppendEntry made of a whole object. The
// caller answers for it being that object: so that several goroutines can hash
// and compress for one Writer.
func (w *Writer) AddEncoded(id object.ID, entry []byte) error {
	if err := w.ready(); err != nil || w.Has(id) {
		return err
	}
	start := len(w.buf)
	w.buf = append(w.buf, entry...)
	return w.added(id, start, 0)
}

// AddEncodedDelta writes object id as a delta of base, which this pack holds:
// stream is the zlib stream of a delta of size bytes, as another pack has it.
// The caller answers for the delta giving that object.
func (w *Writer) AddEncodedDelta(id, base object.ID, size int64, stream []byte) error {
	if err := w.ready(); err != nil || w.Has(id) {
		return err
	}
	return w.addDelta(id, base, size, stream)
}
