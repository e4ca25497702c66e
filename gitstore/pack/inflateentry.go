package pack

import "bytes"

// InflateEntry gives what one whole entry in memory holds: an object's bytes,
// or a delta's. Bytes after the entry are not looked at.
func InflateEntry(b []byte) (EntryHeader, []byte, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return h, nil, err
	}
	if h.Size/maxRatio > int64(len(b)) {
		return h, nil, corrupt("entry of %d bytes cannot fit", h.Size)
	}
	in := getInflater(bytes.NewReader(b[h.HeaderLen:]))
	defer putInflater(in)
	data, err := in.readAll(in.br, h.Size)
	return h, data, err
}

// InflateWhole is InflateEntry for bytes that must be that entry and no more:
// it may be copied as it is.
func InflateWhole(b []byte) (EntryHeader, []byte, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return h, nil, err
	}
	if h.Size/maxRatio > int64(len(b)) {
		return h, nil, corrupt("entry of %d bytes cannot fit", h.Size)
	}
	src := bytes.NewReader(b[h.HeaderLen:])
	in := getInflater(src)
	defer putInflater(in)
	data, err := in.readAll(in.br, h.Size)
	if err == nil && (src.Len() > 0 || in.br.Buffered() > 0) {
		err = corrupt("bytes after the entry")
	}
	return h, data, err
}
