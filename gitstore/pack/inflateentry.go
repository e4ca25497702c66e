package pack

// InflateEntry gives what one whole entry in memory holds: an object's bytes,
// or a delta's. Bytes after the entry are ignored.
func InflateEntry(b []byte) (EntryHeader, []byte, error) {
	h, data, _, err := inflateMem(b)
	return h, data, err
}

// InflateWhole is InflateEntry for bytes that must be that entry and no more:
// it may be copied as it is.
func InflateWhole(b []byte) (EntryHeader, []byte, error) {
	h, data, rest, err := inflateMem(b)
	if err == nil && rest > 0 {
		err = corrupt("bytes after the entry")
	}
	return h, data, err
}

// inflateMem also reports how many bytes are left after the entry.
func inflateMem(b []byte) (h EntryHeader, data []byte, rest int, err error) {
	if h, err = parseWhole(b); err != nil {
		return h, nil, 0, err
	}
	in := getMemInflater(b[h.HeaderLen:])
	defer putInflater(in)
	data, err = in.readAll(&in.mem, h.Size)
	return h, data, in.mem.Len(), err
}

// parseWhole is ParseHeader for an entry whose stream follows in b, so that a
// size that cannot be is found before memory is taken for it.
func parseWhole(b []byte) (EntryHeader, error) {
	h, err := ParseHeader(b)
	if err == nil && h.Size/maxRatio > int64(len(b)) {
		err = corrupt("entry of %d bytes cannot fit", h.Size)
	}
	return h, err
}

// ResultSize gives the size in bytes of the object that an entry in memory makes:
// of a delta its beginning is inflated, which reports that (gitformat-pack(5)).
func ResultSize(b []byte) (int64, error) {
	h, err := parseWhole(b)
	if err != nil || h.Kind != OfsDelta && h.Kind != RefDelta {
		return h.Size, err
	}
	in := getMemInflater(b[h.HeaderLen:])
	defer putInflater(in)
	return in.deltaTarget(&in.mem, h.Size)
}
