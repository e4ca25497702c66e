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
