package records

import (
	"hash/fnv"

	"umbra/gitstore/message"
)

// A record's filter of the paths that its commit touched, before and after: 0 if
// they are not known; with the highest bit set the hash of a single path; else one
// of 15 bits for each path.
const (
	onePath     = 0x8000
	filterBits  = 15
	filterPaths = 6 // above that almost every path would pass
)

func hashPath(path string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(path)) // returns no error
	return h.Sum32()
}

func pathFilter(m *message.Message) uint16 {
	if m.Source == message.Baseline || m.Condensed || len(m.Entries) == 0 || len(m.Entries) > filterPaths {
		return 0
	}
	if len(m.Entries) == 1 && m.Entries[0].OldPath == "" {
		return onePath | uint16(hashPath(m.Entries[0].Path)&(onePath-1))
	}
	var bits uint16
	for i := range m.Entries {
		bits |= 1 << (hashPath(m.Entries[i].Path) % filterBits)
		if old := m.Entries[i].OldPath; old != "" {
			bits |= 1 << (hashPath(old) % filterBits)
		}
	}
	return bits
}

// touched is a path as filters have it.
type touched struct{ one, bit uint16 }

func touchedBy(path string) touched {
	h := hashPath(path)
	return touched{onePath | uint16(h&(onePath-1)), 1 << (h % filterBits)}
}

// in reports whether the commit of a filter may have changed the path.
func (t touched) in(filter uint16) bool {
	switch {
	case filter == 0:
		return true
	case filter&onePath != 0:
		return filter == t.one
	}
	return filter&t.bit != 0
}

// MayTouch reports whether the commit may have changed a path, by its entries;
// false means that it did not.
func (rec *Record) MayTouch(path string) bool { return touchedBy(path).in(rec.paths) }
