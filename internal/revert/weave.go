package revert

import (
	"bytes"
	"iter"
	"math"
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
	first   int  // the first version that had it
	last    int  // of one that the newest version does not have: the last one that had it
}

// weave follows the lines of a file through versions. Those that are put in where the
// same ones were taken out are these again.
type weave struct {
	strands []strand
	newest  []byte // version
	version int    // its number
}

func newWeave(text []byte) *weave {
	w := &weave{newest: text}
	for line := range bytes.Lines(text) {
		w.strands = append(w.strands, strand{line: line, now: true, without: true})
	}
	return w
}

// next goes on to another version, by the undone work (mine) or by others.
func (w *weave) next(text []byte, mine bool) {
	var t diff.Table
	a, b := t.Cut(w.newest), t.Cut(text)
	w.newest = text
	w.version++
	out := make([]strand, 0, len(w.strands)+b.Len())
	rest, line := w.strands, 0 // line: of the old version, the first in rest
	gone := w.gone()
	lost := make(map[string]bool) // with this version
	pass := func(to int, keep bool) {
		for line < to {
			s := rest[0]
			if rest = rest[1:]; s.now {
				line++
				if !keep {
					lost[string(s.line)] = true
					s.now, s.taken, s.without, s.last = false, mine, s.without && mine, w.version-1
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
		for i := c.New.Start; i < c.New.End; i++ {
			l, moved := b.Line(i), []strand(nil)
			s := strand{line: l, mine: mine, without: !mine, first: w.version}
			at := -1
			if gone[string(l)] || lost[string(l)] {
				at = slices.IndexFunc(gap, func(s strand) bool { return bytes.Equal(s.line, l) })
			}
			if at >= 0 {
				s = gap[at].back(mine)
				out, gap = append(out, gap[:at]...), gap[at+1:]
			} else if gone[string(l)] {
				if list := loose(slices.Backward(out), l); list != nil {
					slices.Reverse(list)
					out, moved = remove(out, list)
					s, moved = moved[0].back(mine), moved[1:]
				} else if list := loose(slices.All(rest), l); list != nil {
					out, gap = append(out, gap...), nil
					rest, moved = remove(rest, list)
					k := len(moved) - 1
					out, s, moved = append(out, moved[:k]...), moved[k].back(mine), nil
				}
			}
			s.now = true
			out = append(append(out, s), moved...)
		}
		out = append(out, gap...)
	}
	w.strands = append(out, rest...)
}

// back is a line that is put in again.
func (s strand) back(mine bool) strand {
	s.mine = s.mine && (mine || !s.taken) // another's own line
	s.without = s.without || !mine && !s.mine
	return s
}

// gone returns the lines that the newest version does not have.
func (w *weave) gone() map[string]bool {
	out := make(map[string]bool)
	for _, s := range w.strands {
		if !s.now {
			out[string(s.line)] = true
		}
	}
	return out
}

// maxLoose bounds the strands that are searched for one that comes back elsewhere.
const maxLoose = 1 << 10

// loose finds a line that is gone and that may as well be before some strands, the nearest
// first: those that the newest version has were put in after it was taken out. It returns
// the numbers of the gone strands that move there with it, and its own, which is the last;
// nil where there is none.
func loose(near iter.Seq2[int, strand], line []byte) (list []int) {
	first, n := math.MaxInt, 0 // first: of the strands that stay
	for i, s := range near {
		if s.now || s.last >= first {
			first = min(first, s.first)
		} else if list = append(list, i); bytes.Equal(s.line, line) {
			return list
		}
		if n++; first == 0 || n == maxLoose {
			break
		}
	}
	return nil
}

// remove takes strands out of a list; their numbers ascend.
func remove(list []strand, numbers []int) (left, taken []strand) {
	left = make([]strand, 0, len(list))
	for i, s := range list {
		if len(numbers) > 0 && numbers[0] == i {
			numbers, taken = numbers[1:], append(taken, s)
		} else {
			left = append(left, s)
		}
	}
	return left, taken
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
