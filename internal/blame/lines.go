package blame

import (
	"bytes"

	"umbra/gitstore/diff"
)

// segment is a run of lines that one version wrote, in the order in which it
// wrote them.
type segment struct {
	n    int32 // lines, at least 1
	from int32 // index of the version that wrote them
	line int32 // of the first, in that version, counted from 0
	via  int32 // index of the revert that brought them back; -1: none
}

// segmentSize is the memory that a segment takes, in bytes.
const segmentSize = 16

// appendSegment adds a segment, joined to the last one where it continues that.
func appendSegment(list []segment, s segment) []segment {
	if s.n == 0 {
		return list
	}
	if k := len(list) - 1; k >= 0 {
		if l := &list[k]; l.from == s.from && l.via == s.via && l.line+l.n == s.line {
			l.n += s.n
			return list
		}
	}
	return append(list, s)
}

// reader copies segments of a list, in order.
type reader struct {
	list []segment
	at   int   // index in list
	used int32 // lines of list[at] that were read
}

// skip passes over n lines.
func (r *reader) skip(n int) { r.copy(nil, n) }

// copy appends the next n lines to dst.
func (r *reader) copy(dst []segment, n int) []segment {
	for n > 0 && r.at < len(r.list) {
		s := r.list[r.at]
		k := min(int32(n), s.n-r.used)
		if dst != nil {
			dst = appendSegment(dst, segment{n: k, from: s.from, line: s.line + r.used, via: s.via})
		}
		r.used += k
		n -= int(k)
		if r.used == s.n {
			r.at, r.used = r.at+1, 0
		}
	}
	return dst
}

// carry returns the segments of a version from those of the one before: changed
// lines are the version's own.
func carry(before []segment, lines int, changes []diff.Change, version int32) []segment {
	r := reader{list: before}
	out := make([]segment, 0, len(before)+2*len(changes)+1)
	old, now := 0, 0
	for _, c := range changes {
		out = r.copy(out, c.Old.Start-old)
		r.skip(c.Old.Len())
		out = appendSegment(out, segment{n: int32(c.New.Len()), from: version, line: int32(c.New.Start), via: -1})
		old, now = c.Old.End, c.New.End
	}
	out = r.copy(out, lines-now)
	if has := total(out); has < lines { // white space that made a line of its own
		out = appendSegment(out, segment{n: int32(lines - has), from: version, line: int32(has), via: -1})
	}
	return out
}

func total(list []segment) (n int) {
	for _, s := range list {
		n += int(s.n)
	}
	return n
}

// restore gives those of a version's own lines that an older version has, too,
// the segments which they have there. It reports how many there were.
func restore(list, older []segment, lines int, changes []diff.Change, version int32) (out []segment, found int) {
	a, b := reader{list: list}, reader{list: older}
	out = make([]segment, 0, len(list)+len(older))
	one := make([]segment, 0, 8)
	common := func(n int) {
		for n > 0 && a.at < len(a.list) {
			s := a.list[a.at]
			k := int(min(int32(n), s.n-a.used))
			if s.from != version || s.via >= 0 {
				out = a.copy(out, k)
				b.skip(k)
			} else {
				a.skip(k)
				one = b.copy(one[:0], k)
				for _, s := range one {
					s.via = version
					out = appendSegment(out, s)
					found += int(s.n)
				}
			}
			n -= k
		}
	}
	old, now := 0, 0
	for _, c := range changes {
		common(c.Old.Start - old)
		b.skip(c.Old.Len())
		out = a.copy(out, c.New.Len())
		old, now = c.Old.End, c.New.End
	}
	common(lines - now)
	return out, found
}

// count returns the number of lines of a text.
func count(data []byte) int {
	n := bytes.Count(data, []byte{'\n'})
	if len(data) > 0 && data[len(data)-1] != '\n' {
		n++
	}
	return n
}

// tailBlock is the step in which git passes over a common end before it compares
// without context (xdiff-interface.c, trim_common_tail).
const tailBlock = 1024

// trimTail cuts what git does not compare from the ends of two texts.
func trimTail(a, b []byte) ([]byte, []byte) {
	ea, eb, trimmed := len(a), len(b), 0
	for trimmed+tailBlock <= min(len(a), len(b)) && bytes.Equal(a[ea-tailBlock:ea], b[eb-tailBlock:eb]) {
		ea, eb, trimmed = ea-tailBlock, eb-tailBlock, trimmed+tailBlock
	}
	if trimmed == 0 {
		return a, b
	}
	recovered := trimmed
	if i := bytes.IndexByte(a[ea:], '\n'); i >= 0 {
		recovered = i + 1
	}
	return a[:ea+recovered], b[:eb+recovered]
}

// compare returns the changes from one text to another, as `git blame` finds
// them.
func compare(old, now []byte, whitespace bool) []diff.Change {
	if bytes.Equal(old, now) {
		return nil
	}
	old, now = trimTail(old, now)
	if !whitespace {
		if c, ok := quick(old, now); ok {
			return c
		}
	}
	var t diff.Table
	a, b := t.Cut(old), t.Cut(now)
	if !whitespace {
		return t.Compare(a, b, &diff.Work{})
	}
	var bare diff.Table
	return bare.CompareAs(bare.Cut(dropSpace(old)), bare.Cut(dropSpace(now)), a, b, &diff.Work{})
}

// quickLines bounds the changed lines of a side that quick judges.
const quickLines = 32

// quick finds the one change between two texts whose common ends leave lines
// that the other side does not have, and that cannot slide. Any line difference
// finds just that; the usual edit of a large file is one.
func quick(old, now []byte) ([]diff.Change, bool) {
	short := min(len(old), len(now))
	head := commonPrefix(old[:short], now[:short])
	head = bytes.LastIndexByte(old[:head], '\n') + 1
	a, b := old[head:], now[head:]
	tail := commonSuffix(a, b)
	if !begins(a, len(a)-tail) || !begins(b, len(b)-tail) {
		if i := bytes.IndexByte(a[len(a)-tail:], '\n'); i >= 0 {
			tail -= i + 1
		} else {
			tail = 0
		}
	}
	a, b = a[:len(a)-tail], b[:len(b)-tail]
	na, nb := count(a), count(b)
	if na > quickLines || nb > quickLines || len(old) > 0 && old[len(old)-1] != '\n' || len(now) > 0 && now[len(now)-1] != '\n' {
		return nil, false
	}
	la, lb := bytes.SplitAfter(a, []byte{'\n'}), bytes.SplitAfter(b, []byte{'\n'})
	la, lb = la[:na], lb[:nb]
	for _, x := range la {
		for _, y := range lb {
			if bytes.Equal(x, y) {
				return nil, false
			}
		}
	}
	if slides(old, head, a, la) || slides(now, head, b, lb) {
		return nil, false
	}
	first := bytes.Count(old[:head], []byte{'\n'})
	return []diff.Change{{Old: diff.Range{Start: first, End: first + na}, New: diff.Range{Start: first, End: first + nb}}}, true
}

// begins reports whether a line begins at a place in a text.
func begins(text []byte, at int) bool { return at == 0 || text[at-1] == '\n' }

// slides reports whether changed lines could as well be a line higher or lower.
func slides(text []byte, head int, part []byte, lines [][]byte) bool {
	if len(lines) == 0 {
		return false
	}
	before := text[bytes.LastIndexByte(text[:max(0, head-1)], '\n')+1 : head]
	after := text[head+len(part):]
	if i := bytes.IndexByte(after, '\n'); i >= 0 {
		after = after[:i+1]
	}
	return len(before) > 0 && bytes.Equal(before, lines[len(lines)-1]) || len(after) > 0 && bytes.Equal(after, lines[0])
}

// compareBlock is the step in which common ends are found.
const compareBlock = 512

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+compareBlock <= n && bytes.Equal(a[i:i+compareBlock], b[i:i+compareBlock]) {
		i += compareBlock
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

func commonSuffix(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for i+compareBlock <= n && bytes.Equal(a[len(a)-i-compareBlock:len(a)-i], b[len(b)-i-compareBlock:len(b)-i]) {
		i += compareBlock
	}
	for i < n && a[len(a)-i-1] == b[len(b)-i-1] {
		i++
	}
	return i
}

// dropSpace removes the white space within lines, as `git blame -w` does
// (git-blame(1)).
func dropSpace(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for _, c := range data {
		switch c {
		case ' ', '\t', '\r', '\v', '\f':
		default:
			out = append(out, c)
		}
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		out = append(out, '\n') // a line end is white space, too
	}
	return out
}
