package merge3

import (
	"bytes"

	"umbra/gitstore/diff"
)

// take says where the merged text of a part comes from.
type take uint8

const (
	conflict take = iota
	fromOurs
	fromTheirs
	agreed // an overlap in which both sides came to the same text
)

// part is a stretch of the three texts that at least one side changed. Between
// two parts all three texts are the same, or ours and theirs made the same
// change.
type part struct {
	Hunk
	take take
}

type merger struct {
	table        *diff.Table
	work         *diff.Work
	ours, theirs diff.Lines
	touching     bool // Options.Touching
}

// combine walks the two lists of changes, ordered by their place in the base.
// Two changes that overlap or touch there meet; the others stay separate.
func (m *merger) combine(ours, theirs []diff.Change) []part {
	var parts []part
	// How far a base line number is shifted in ours and theirs behind the last
	// change passed.
	var shiftO, shiftT int
	i, j := 0, 0
	for i < len(ours) || j < len(theirs) {
		switch {
		case j == len(theirs) || i < len(ours) && m.apart(ours[i], theirs[j]):
			c := ours[i]
			parts = m.appendPart(parts, part{Hunk{c.Old, c.New, shifted(c.Old, shiftT)}, fromOurs})
			shiftO = c.New.End - c.Old.End
			i++
			continue
		case i == len(ours) || m.apart(theirs[j], ours[i]):
			c := theirs[j]
			parts = m.appendPart(parts, part{Hunk{c.Old, shifted(c.Old, shiftO), c.New}, fromTheirs})
			shiftT = c.New.End - c.Old.End
			j++
			continue
		}
		a, b := ours[i], theirs[j]
		if !m.same(a, b) {
			// The base range that covers both; each side's range grows by the
			// unchanged lines that this adds.
			base := diff.Range{Start: min(a.Old.Start, b.Old.Start), End: max(a.Old.End, b.Old.End)}
			parts = m.appendPart(parts, part{Hunk{base, cover(a, base), cover(b, base)}, conflict})
		}
		// What ends first is done with; the other may meet the next one too.
		if a.Old.End <= b.Old.End {
			shiftO = a.New.End - a.Old.End
			i++
		}
		if b.Old.End <= a.Old.End {
			shiftT = b.New.End - b.Old.End
			j++
		}
	}
	return parts
}

// apart reports whether a change is before another side's, with a line between them. It
// need not be with Options.Touching where one of them only deletes lines.
func (m *merger) apart(a, b diff.Change) bool {
	return a.Old.End < b.Old.Start ||
		m.touching && a.Old.End == b.Old.Start && (deletes(a) || deletes(b))
}

// deletes reports whether a change deletes lines and adds none.
func deletes(c diff.Change) bool { return c.New.Len() == 0 && c.Old.Len() > 0 }

func shifted(r diff.Range, by int) diff.Range {
	return diff.Range{Start: r.Start + by, End: r.End + by}
}

// cover returns the new lines that replace the base range, which contains c.Old.
func cover(c diff.Change, base diff.Range) diff.Range {
	return diff.Range{
		Start: c.New.Start - (c.Old.Start - base.Start),
		End:   c.New.End + (base.End - c.Old.End),
	}
}

// same reports whether both sides made the same change at the same place.
func (m *merger) same(a, b diff.Change) bool {
	return a.Old == b.Old && a.New.Len() == b.New.Len() &&
		bytes.Equal(m.ours.Bytes(a.New.Start, a.New.End), m.theirs.Bytes(b.New.Start, b.New.End))
}

// appendPart adds a part, or widens the last one by it where they touch in ours
// or in theirs: without a common line between them they are one part. With
// Options.Touching those of different sides stay apart.
func (m *merger) appendPart(parts []part, p part) []part {
	if len(parts) == 0 {
		return append(parts, p)
	}
	last := &parts[len(parts)-1]
	if p.Ours.Start > last.Ours.End && p.Theirs.Start > last.Theirs.End ||
		m.touching && last.take != p.take && last.take != conflict && p.take != conflict {
		return append(parts, p)
	}
	if last.take != p.take {
		last.take = conflict
	}
	last.Base.End = p.Base.End
	last.Ours.End = p.Ours.End
	last.Theirs.End = p.Theirs.End
	return parts
}

// cutDown compares the two sides of each conflict with each other: what they
// have in common is no conflict, and may split one in several, or leave none.
func (m *merger) cutDown(parts []part) []part {
	out := make([]part, 0, len(parts))
	for _, p := range parts {
		if p.take != conflict || p.Ours.Len() == 0 || p.Theirs.Len() == 0 {
			out = append(out, p)
			continue
		}
		ours := m.ours.Sub(p.Ours.Start, p.Ours.End)
		theirs := m.theirs.Sub(p.Theirs.Start, p.Theirs.End)
		changes := m.table.Compare(ours, theirs, m.work)
		if len(changes) == 0 {
			p.take = agreed
			out = append(out, p)
		}
		for _, c := range changes {
			out = append(out, part{Hunk{p.Base, shifted(c.Old, p.Ours.Start), shifted(c.New, p.Theirs.Start)}, conflict})
		}
	}
	return out
}

// Conflicts with at most this many lines between them are shown as one: so many
// markers around so few lines are harder to read.
const nearLines = 3

// joinNear joins neighboring conflicts that only a few lines, or only lines
// without a letter or digit, keep apart.
func (m *merger) joinNear(parts []part) []part {
	out := parts[:0]
	for _, p := range parts {
		if n := len(out); n > 0 && p.take == conflict && out[n-1].take == conflict {
			last := &out[n-1]
			between := diff.Range{Start: last.Ours.End, End: p.Ours.Start}
			if between.Len() <= nearLines || !hasAlnum(m.ours.Bytes(between.Start, between.End)) {
				last.Base.End = max(last.Base.End, p.Base.End)
				last.Ours.End = p.Ours.End
				last.Theirs.End = p.Theirs.End
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

func hasAlnum(text []byte) bool {
	for _, c := range text {
		if c-'0' < 10 || c|0x20 >= 'a' && c|0x20 <= 'z' {
			return true
		}
	}
	return false
}
