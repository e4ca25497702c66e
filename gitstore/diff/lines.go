// Package diff compares two versions of a file line by line and writes the
// result as a patch that `git apply` takes.
//
// Two halves. The engine (Table, Lines, Compare) finds the changed line ranges
// of two texts; gitstore/merge3 uses it too. The writer (Format, Stat) turns
// two sides of a file into git's patch text: headers, hunks, binary patches.
//
// It does no I/O and keeps no state between calls.
//
// Invariants:
//   - A line is the bytes up to and including "\n"; the last line may lack it.
//     Nothing else is interpreted: CR, NUL and invalid UTF-8 are plain bytes.
//   - Compare never returns a wrong answer, only a coarser one: its work is
//     counted, and when the allowance is used up what is left is aligned by
//     a linear method.
//   - While the allowance lasts, the ranges are those that git's default
//     (Myers) algorithm gives up to 65,536 lines that take part; see myers.go.
package diff

import (
	"bytes"
	"hash/maphash"
)

// MaxText is the greatest number of bytes that is handled as text, as in git:
// larger files are compared as binary ones.
const MaxText = 1 << 30

// maxInterned bounds the lines of all texts in one table, and so its memory and
// time (about 30 bytes and 50 ns a line). Of a text beyond it only what is left
// between the common ends is aligned, if that is small enough.
const maxInterned = 2 << 20

// maxLines bounds the lines of both sides of a patch: where each one ends takes
// four bytes, and a line may be a single one. Beyond it a patch is binary, as
// that of larger files is.
const maxLines = 32 << 20

// tooManyLines reports whether two texts have more than maxLines lines.
func tooManyLines(a, b []byte) bool {
	if len(a)+len(b) <= maxLines {
		return false
	}
	return bytes.Count(a, []byte{'\n'})+bytes.Count(b, []byte{'\n'}) > maxLines
}

// shortLine is the length of lines, in bytes, below which looking at each byte
// is faster than a search for each line's end.
const shortLine = 10

// Range is a half-open range of line numbers, counted from 0.
type Range struct{ Start, End int }

// Len gives the number of lines.
func (r Range) Len() int { return r.End - r.Start }

// Lines is a text cut into lines. The zero value is the empty text. It shares
// the bytes it was cut from.
type Lines struct {
	data  []byte
	first uint32   // offset of line 0
	ends  []uint32 // offset behind each line
	ids   []int32  // class of each line; nil if the table was full
}

// Len gives the number of lines.
func (l Lines) Len() int { return len(l.ends) }

// Line gives line i with its line end.
func (l Lines) Line(i int) []byte { return l.Bytes(i, i+1) }

// Bytes gives lines from up to, without, to.
func (l Lines) Bytes(from, to int) []byte {
	if from >= to {
		return nil
	}
	return l.data[l.start(from):l.ends[to-1]]
}

// Sub gives the part of lines from up to, without, to.
func (l Lines) Sub(from, to int) Lines {
	s := Lines{data: l.data, first: l.start(from), ends: l.ends[from:to]}
	if l.ids != nil {
		s.ids = l.ids[from:to]
	}
	return s
}

// Equal reports whether line i has the same bytes as line j of m, which was
// cut by the same table.
func (l Lines) Equal(i int, m Lines, j int) bool {
	if l.ids != nil && m.ids != nil {
		return l.ids[i] == m.ids[j]
	}
	return bytes.Equal(l.Line(i), m.Line(j))
}

// numbered reports whether the table had room for the text's lines.
func (l Lines) numbered() bool { return l.ids != nil || len(l.ends) == 0 }

func (l Lines) start(i int) uint32 {
	if i == 0 {
		return l.first
	}
	return l.ends[i-1]
}

// Table cuts texts into lines and gives equal lines the same number, so that
// the engine compares numbers. Texts to be compared with each other are cut by
// the same table. Not safe for concurrent use. The zero value is ready.
type Table struct {
	seed    maphash.Seed
	texts   [][]byte
	classes []class
	slots   []int32 // open addressing; class number + 1
	lines   int

	count [2][]int32 // per class, all zero between uses
	place [2][]int32 // per class, no meaning between uses
}

// class is one distinct line, by where it was seen first.
type class struct {
	hash       uint32
	text       int32
	start, end uint32
}

// Cut cuts data, at most MaxText bytes, into lines.
func (t *Table) Cut(data []byte) Lines {
	if len(data) == 0 {
		return Lines{}
	}
	n := bytes.Count(data, []byte{'\n'})
	if data[len(data)-1] != '\n' {
		n++
	}
	l := Lines{data: data, ends: make([]uint32, 0, n)}
	if n > len(data)/shortLine {
		for i, c := range data {
			if c == '\n' {
				l.ends = append(l.ends, uint32(i+1))
			}
		}
		if len(l.ends) < n {
			l.ends = append(l.ends, uint32(len(data)))
		}
	} else {
		for pos := 0; pos < len(data); {
			if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
				pos += i + 1
			} else {
				pos = len(data)
			}
			l.ends = append(l.ends, uint32(pos))
		}
	}
	if t.lines += n; t.lines <= maxInterned {
		t.intern(&l)
	}
	return l
}

func (t *Table) intern(l *Lines) {
	if t.slots == nil {
		t.seed = maphash.MakeSeed()
	}
	text := int32(len(t.texts))
	t.texts = append(t.texts, l.data)
	l.ids = make([]int32, len(l.ends))
	start := uint32(0)
	for i, end := range l.ends {
		if 2*(len(t.classes)+1) > len(t.slots) {
			// The first text is a good guess of how many classes there will be.
			t.grow(max(4*len(t.slots), min(len(l.ends), 1<<16)*2, 64))
		}
		line := l.data[start:end]
		hash := uint32(maphash.Bytes(t.seed, line))
		mask := uint32(len(t.slots) - 1)
		for s := hash & mask; ; s = (s + 1) & mask {
			slot := t.slots[s]
			if slot == 0 {
				t.classes = append(t.classes, class{hash, text, start, end})
				slot = int32(len(t.classes))
				t.slots[s] = slot
				l.ids[i] = slot - 1
				break
			}
			c := &t.classes[slot-1]
			if c.hash == hash && bytes.Equal(t.texts[c.text][c.start:c.end], line) {
				l.ids[i] = slot - 1
				break
			}
		}
		start = end
	}
}

// grow makes room for at least want slots, a power of two.
func (t *Table) grow(want int) {
	size := 64
	for size < want {
		size *= 2
	}
	t.slots = make([]int32, size)
	mask := uint32(size - 1)
	for i := range t.classes {
		s := t.classes[i].hash & mask
		for t.slots[s] != 0 {
			s = (s + 1) & mask
		}
		t.slots[s] = int32(i + 1)
	}
}

// scratch makes the per-class arrays long enough.
func (t *Table) scratch() {
	for side := range t.count {
		if n := len(t.classes); len(t.count[side]) < n {
			t.count[side] = make([]int32, n)
			t.place[side] = make([]int32, n)
		}
	}
}
