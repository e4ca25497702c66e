package pack

import (
	"cmp"
	"slices"

	"umbra/gitstore/object"
)

// Located is where an entry lies in its pack.
type Located struct {
	ID     object.ID
	Offset int64
	End    int64 // where the next begins
	CRC    uint32
}

// Layout gives the pack's entries in the order of the file. Only the index is
// read; memory is 40 bytes an entry.
func (p *Pack) Layout() ([]Located, error) {
	all := make([]Located, 0, p.Count())
	for e, err := range p.Entries() {
		if err != nil {
			return nil, err
		}
		if e.Offset < HeaderSize || e.Offset >= uint64(p.end) {
			return nil, corrupt("index leads outside the pack for %v", e.ID)
		}
		all = append(all, Located{ID: e.ID, Offset: int64(e.Offset), CRC: e.CRC})
	}
	slices.SortFunc(all, func(a, b Located) int { return cmp.Compare(a.Offset, b.Offset) })
	for i := range all {
		if i+1 < len(all) {
			all[i].End = all[i+1].Offset
		} else {
			all[i].End = p.end
		}
		if all[i].End == all[i].Offset {
			return nil, corrupt("two entries at byte %d", all[i].Offset)
		}
	}
	return all, nil
}

// Raw gives an entry's header and its zlib stream as it is in the file. The
// stream's length is e's; MaxObject bounds it.
func (p *Pack) Raw(e Located) (EntryHeader, []byte, error) {
	h, err := p.header(e.Offset)
	if err != nil {
		return h, nil, err
	}
	n := e.End - e.Offset - int64(h.HeaderLen)
	if n < 0 || e.End > p.end {
		return h, nil, corrupt("entry of %v runs into the next", e.ID)
	}
	if n > p.max {
		return h, nil, ErrTooLarge
	}
	stream := make([]byte, n)
	return h, stream, readAt(p.f, stream, e.Offset+int64(h.HeaderLen))
}

// Span reads entries that lie together, from the beginning of one to the end of
// another: their headers and zlib streams as they are in the file.
func (p *Pack) Span(first, last Located) ([]byte, error) {
	n := last.End - first.Offset
	if n <= 0 || first.Offset < HeaderSize || last.End > p.end {
		return nil, corrupt("no entries from byte %d to %d", first.Offset, last.End)
	}
	if n > p.max+maxSpanSlack {
		return nil, ErrTooLarge
	}
	b := make([]byte, n)
	return b, readAt(p.f, b, first.Offset)
}

// maxSpanSlack is what a span may hold in addition to one object of the largest size.
const maxSpanSlack = 1 << 20
