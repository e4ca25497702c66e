package revert

import (
	"bytes"
	"slices"

	"umbra/gitstore/diff"
)

// strand is one line of a file through its versions: what was there, and is in none
// of the later ones, keeps its place.
type strand struct {
	line    []byte
	mine    bool // the undone work put it in
	taken   bool // the undone work took it out last
	now     bool // the newest version has it
	without bool // it would be there without the undone work
}

// weave follows the lines of a file through versions. Those that are put in where the
// same ones were taken out are these again.
type weave struct {
	strands []strand
	last    []byte
}

func newWeave(text []byte) *weave {
	w := &weave{last: text}
	for line := range bytes.Lines(text) {
		w.strands = append(w.strands, strand{line: line, now: true, without: true})
	}
	return w
}

// next goes on to another version, by the undone work (mine) or by others.
func (w *weave) next(text []byte, mine bool) {
	var t diff.Table
	a, b := t.Cut(w.last), t.Cut(text)
	w.last = text
	out := make([]strand, 0, len(w.strands)+b.Len())
	rest, line := w.strands, 0 // line: of the old version, the first in rest
	pass := func(to int, keep bool) {
		for line < to {
			s := rest[0]
			if rest = rest[1:]; s.now {
				line++
				if !keep {
					s.now, s.taken, s.without = false, mine, s.without && mine
				}
			}
			out = append(out, s)
		}
	}
	for _, c := range t.Compare(a, b, &diff.Work{}) {
		pass(c.Old.Start, true)
		from := len(out)
		for from > 0 && !out[from-1].now {
			from--
		}
		pass(c.Old.End, false)
		to := slices.IndexFunc(rest, func(s strand) bool { return s.now })
		if to < 0 {
			to = len(rest)
		}
		gap := slices.Concat(out[from:], rest[:to])
		out, rest = out[:from], rest[to:]
		var put []strand
		for i := c.New.Start; i < c.New.End; i++ {
			l := b.Line(i)
			at := slices.IndexFunc(gap, func(s strand) bool { return bytes.Equal(s.line, l) })
			if at < 0 {
				put = append(put, strand{line: l, mine: mine, now: true, without: !mine})
				continue
			}
			s := gap[at]
			s.mine = s.mine && (mine || !s.taken) // another's own line
			s.now, s.without = true, s.without || !mine && !s.mine
			put = append(append(put, gap[:at]...), s)
			gap = gap[at+1:]
		}
		out = append(append(out, put...), gap...)
	}
	w.strands = append(out, rest...)
}

// text gives the newest version without the undone work.
func (w *weave) text() []byte {
	out := []byte{}
	for _, s := range w.strands {
		if s.without {
			out = append(out, s.line...)
		}
	}
	return out
}
