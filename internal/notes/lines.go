package notes

import (
	"bytes"

	"umbra/gitstore/diff"
)

// Lines are the lines of a text with who wrote them, in runs.
type Lines []stretch

// stretch is a run of lines.
type stretch struct {
	n   int32 // at least 1
	who int32 // index of the writer; -1: none of those that are known
	via int32 // index of the writer that brought them back; -1: none
}

func (l Lines) add(s stretch) Lines {
	if s.n == 0 {
		return l
	}
	if k := len(l) - 1; k >= 0 && l[k].who == s.who && l[k].via == s.via {
		l[k].n += s.n
		return l
	}
	return append(l, s)
}

type cursor struct {
	list Lines
	used int32
}

// next returns up to n lines that one writer wrote.
func (c *cursor) next(n int) stretch {
	s := c.list[0]
	s.n = min(int32(n), s.n-c.used)
	if c.used += s.n; c.used == c.list[0].n {
		c.list, c.used = c.list[1:], 0
	}
	return s
}

func (c *cursor) skip(n int) {
	for n > 0 && len(c.list) > 0 {
		n -= int(c.next(n).n)
	}
}

// Whole gives all lines of a text to one writer.
func Whole(text []byte, who int32) Lines {
	return Lines(nil).add(stretch{n: int32(count(text)), who: who, via: -1})
}

// Carry returns the lines of a text from those of the one before it: what changed
// is the writer's.
func Carry(before Lines, old, now []byte, who int32) Lines {
	c := cursor{list: before}
	out := make(Lines, 0, len(before)+2)
	keep := func(n int) {
		for n > 0 && len(c.list) > 0 {
			s := c.next(n)
			out = out.add(s)
			n -= int(s.n)
		}
	}
	at := 0
	for _, ch := range changes(old, now) {
		keep(ch.Old.Start - at)
		c.skip(ch.Old.Len())
		out = out.add(stretch{n: int32(ch.New.Len()), who: who, via: -1})
		at = ch.Old.End
	}
	keep(count(old) - at)
	return out
}

// Restore gives those of a writer's lines of a text that an older text has, too,
// to those who wrote them there.
func Restore(list Lines, now []byte, older Lines, old []byte, who int32) Lines {
	a, b := cursor{list: list}, cursor{list: older}
	out := make(Lines, 0, len(list))
	keep := func(n int) {
		for n > 0 && len(a.list) > 0 {
			s := a.next(n)
			out = out.add(s)
			n -= int(s.n)
		}
	}
	common := func(n int) {
		for n > 0 && len(a.list) > 0 {
			s := a.next(n)
			n -= int(s.n)
			if s.who != who || s.via >= 0 {
				b.skip(int(s.n))
				out = out.add(s)
				continue
			}
			for left := s.n; left > 0 && len(b.list) > 0; {
				o := b.next(int(left))
				left -= o.n
				o.via = who
				out = out.add(o)
			}
		}
	}
	at := 0
	for _, ch := range changes(old, now) {
		common(ch.Old.Start - at)
		b.skip(ch.Old.Len())
		keep(ch.New.Len())
		at = ch.Old.End
	}
	common(count(old) - at)
	return out
}

// Added returns the runs of lines that a text has beyond an older one, each with
// the index of its writer; those of none are left out. Writers from first on wrote
// between the two texts. Where lines are alike the difference may say of another
// one that it is new than the one which was written: it belongs to the writer of
// the lines next to it.
func (l Lines) Added(old, now []byte, first int32, writer func(int32) *Writer) []Run {
	c := cursor{list: l}
	var out []Run
	at := 0
	for _, ch := range changes(old, now) {
		c.skip(ch.New.Start - at)
		at = ch.New.End
		var part Lines
		for n := ch.New.Len(); n > 0 && len(c.list) > 0; {
			s := c.next(n)
			n -= int(s.n)
			part = append(part, s)
		}
		known := func(s stretch) bool { return s.who >= first || s.via >= first }
		line := ch.New.Start + 1
		for i, s := range part {
			for k := i; !known(s) && k >= 0; k-- {
				s.who, s.via = part[k].who, part[k].via
			}
			for k := i; !known(s) && k < len(part); k++ {
				s.who, s.via = part[k].who, part[k].via
			}
			if known(s) && s.who >= 0 {
				out = append(out, Run{line, line + int(s.n) - 1, writer(s.who)})
			}
			line += int(s.n)
		}
	}
	return merge(out)
}

func changes(old, now []byte) []diff.Change {
	if bytes.Equal(old, now) {
		return nil
	}
	var t diff.Table
	return t.Compare(t.Cut(old), t.Cut(now), &diff.Work{})
}

// count returns the number of lines of a text.
func count(text []byte) int {
	n := bytes.Count(text, []byte{'\n'})
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}
