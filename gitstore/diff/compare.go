package diff

import (
	"encoding/binary"
	"math/bits"
	"sort"
)

// DefaultWork is the allowance of steps for one file: with it no input keeps a
// processor for more than a few tenths of a second beyond reading it.
const DefaultWork = 1 << 25

// Work counts the steps of one or several comparisons. A step is one cell of
// the edit graph, a few nanoseconds.
type Work struct {
	Limit int64 // 0: DefaultWork
	Spent int64
	// Plain ignores how lines are indented when a change could be at several
	// places, as git does in merges.
	Plain bool
	// Coarse is set when the limit, or the size of a text, made some part of
	// an alignment coarser than the algorithm would have found it.
	Coarse bool
}

func (w *Work) spend(n int) bool {
	limit := w.Limit
	if limit == 0 {
		limit = DefaultWork
	}
	if w.Spent >= limit {
		w.Coarse = true
		return false
	}
	w.Spent += int64(n)
	return true
}

// Change says that the lines Old of the old text became the lines New of the
// new one. One of both may be empty, not both.
type Change struct{ Old, New Range }

// Compare gives the changes that turn old into new, in order, with at least
// one common line between two of them. Both were cut by t. Work is charged to
// w; the lines themselves are read a small constant number of times besides.
func (t *Table) Compare(old, new Lines, w *Work) []Change {
	return t.CompareAs(old, new, old, new, w)
}

// CompareAs is like Compare, and takes the lines' indentation from other texts
// with as many lines: those of which only a part is compared.
func (t *Table) CompareAs(old, new, oldText, newText Lines, w *Work) []Change {
	head, tail := commonEnds(old, new)
	n1, n2 := old.Len()-tail, new.Len()-tail
	if head == n1 && head == n2 {
		return nil
	}
	if !old.numbered() || !new.numbered() {
		return compareMiddle(old, new, Range{head, n1}, Range{head, n2}, w)
	}
	a, b := newSide(old.ids), newSide(new.ids)
	if head == n1 || head == n2 {
		a.mark(head, n1)
		b.mark(head, n2)
	} else {
		t.align(a, b, Range{head, n1}, Range{head, n2}, w)
	}
	if !w.Plain {
		a.text, b.text = &oldText, &newText
	}
	slide(a, b)
	slide(b, a)
	return changes(a, b)
}

// compareMiddle compares parts of texts that a table was too full to number:
// with a table of their own if they fit one, else as one change.
func compareMiddle(old, new Lines, ro, rn Range, w *Work) []Change {
	w.Coarse = true
	if ro.Len()+rn.Len() > maxInterned {
		return []Change{{ro, rn}}
	}
	var t Table
	changes := t.Compare(t.Cut(old.Bytes(ro.Start, ro.End)), t.Cut(new.Bytes(rn.Start, rn.End)), w)
	for i := range changes {
		c := &changes[i]
		c.Old = Range{c.Old.Start + ro.Start, c.Old.End + ro.Start}
		c.New = Range{c.New.Start + rn.Start, c.New.End + rn.Start}
	}
	return changes
}

// commonEnds gives the number of lines that both begin and end with. The two
// do not overlap.
func commonEnds(a, b Lines) (head, tail int) {
	if !a.numbered() || !b.numbered() {
		return commonLines(a, b)
	}
	n := min(a.Len(), b.Len())
	for head < n && a.Equal(head, b, head) {
		head++
	}
	for tail < n-head && a.Equal(a.Len()-1-tail, b, b.Len()-1-tail) {
		tail++
	}
	return head, tail
}

// commonLines is commonEnds for texts of very many lines: what is common is
// found by its bytes, whose lines are the same on both sides.
func commonLines(a, b Lines) (head, tail int) {
	n := min(a.Len(), b.Len())
	if n == 0 {
		return 0, 0
	}
	x, y := a.Bytes(0, a.Len()), b.Bytes(0, b.Len())
	same := commonPrefix(x, y)
	// Only the last line may end without a line feed: there the other text's line
	// may go on.
	head = sort.Search(n, func(i int) bool {
		end := int(a.ends[i] - a.start(0))
		return end > same || end != int(b.ends[i]-b.start(0))
	})
	same = commonSuffix(x, y)
	tail = sort.Search(n-head, func(i int) bool {
		rest := len(x) - int(a.start(a.Len()-1-i)-a.start(0))
		return rest > same || rest != len(y)-int(b.start(b.Len()-1-i)-b.start(0))
	})
	return head, tail
}

// commonSuffix gives how many bytes both end with.
func commonSuffix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		x := binary.LittleEndian.Uint64(a[len(a)-i-8:]) ^ binary.LittleEndian.Uint64(b[len(b)-i-8:])
		if x != 0 {
			return i + bits.LeadingZeros64(x)/8
		}
	}
	for i < n && a[len(a)-1-i] == b[len(b)-1-i] {
		i++
	}
	return i
}

// side is one text during a comparison: the classes of its lines, and which of
// them are changed (deleted from the old text, added in the new one).
type side struct {
	ids   []int32
	flags []bool // of line i at i+1; both ends are guards that stay false
	text  *Lines // nil: how lines are indented plays no part
}

func newSide(ids []int32) *side {
	return &side{ids: ids, flags: make([]bool, len(ids)+2)}
}

func (s *side) changed(i int) bool { return s.flags[i+1] }
func (s *side) set(i int, v bool)  { s.flags[i+1] = v }

func (s *side) mark(from, to int) {
	for i := from; i < to; i++ {
		s.flags[i+1] = true
	}
}

// changes reads the marks of both sides: the unchanged lines pair up in order.
func changes(a, b *side) []Change {
	var out []Change
	i, j := 0, 0
	for i < len(a.ids) || j < len(b.ids) {
		if !a.changed(i) && !b.changed(j) {
			i, j = i+1, j+1
			continue
		}
		c := Change{Range{i, i}, Range{j, j}}
		for a.changed(i) {
			i++
		}
		for b.changed(j) {
			j++
		}
		c.Old.End, c.New.End = i, j
		out = append(out, c)
	}
	return out
}

// align marks the changed lines of the two ranges, which neither begin nor end
// with a common line and are not empty.
//
// Lines without a partner on the other side are changed whatever the rest is,
// so they are marked first and the search sees only the others. Lines with very
// many partners, inside a run of lines without one, are marked too: they would
// cost most and help least.
func (t *Table) align(a, b *side, ra, rb Range, w *Work) {
	t.scratch()
	for _, id := range a.ids {
		t.count[0][id]++
	}
	for _, id := range b.ids {
		t.count[1][id]++
	}
	pa := t.partake(a, ra, t.count[1])
	pb := t.partake(b, rb, t.count[0])
	for _, id := range a.ids {
		t.count[0][id] = 0
	}
	for _, id := range b.ids {
		t.count[1][id] = 0
	}
	search(t, pa, pb, w)
}

// partaking is the subset of a side's lines that the search works on.
type partaking struct {
	side *side
	at   []int32 // line number of each
	ids  []int32 // class of each
}

func (p *partaking) mark(from, to int) {
	for _, i := range p.at[from:to] {
		p.side.set(int(i), true)
	}
}

// How often a line's partners make it "frequent": about the square root of the
// text's length, at most frequentMax. How far around a frequent line is looked
// for lines without partner.
const (
	frequentMax    = 1024
	frequentWindow = 100
)

const (
	alone    = 0 // no partner
	ordinary = 1
	frequent = 2
)

func (t *Table) partake(s *side, r Range, partners []int32) *partaking {
	limit := int32(min(roughRoot(len(s.ids)), frequentMax))
	kind := make([]uint8, r.Len())
	keep := 0
	for i := range kind {
		switch n := partners[s.ids[r.Start+i]]; {
		case n >= limit:
			kind[i] = frequent
			keep++
		case n > 0:
			kind[i] = ordinary
			keep++
		}
	}
	p := &partaking{side: s, at: make([]int32, 0, keep), ids: make([]int32, 0, keep)}
	for i, k := range kind {
		line := r.Start + i
		if k == alone || k == frequent && inLonelyRun(kind, i) {
			s.set(line, true)
			continue
		}
		p.at = append(p.at, int32(line))
		p.ids = append(p.ids, s.ids[line])
	}
	return p
}

// inLonelyRun reports whether the frequent line i is among frequent and
// lonely lines, lonely ones on both sides of it, and these make up more than
// three quarters.
func inLonelyRun(kind []uint8, i int) bool {
	lonely, often := 0, 0
	look := func(k uint8) bool {
		switch k {
		case alone:
			lonely++
		case frequent:
			often++
		default:
			return false
		}
		return true
	}
	for j := i - 1; j >= max(0, i-frequentWindow) && look(kind[j]); j-- {
	}
	if lonely == 0 {
		return false
	}
	before := lonely
	for j := i + 1; j <= min(len(kind)-1, i+frequentWindow) && look(kind[j]); j++ {
	}
	if lonely == before {
		return false
	}
	// The line itself counts once from each direction.
	return 4*(often+2) < often+2+lonely
}

// roughRoot gives the power of two next above the square root, cheaply: it only
// scales limits.
func roughRoot(n int) int {
	r := 1
	for ; n > 0; n >>= 2 {
		r <<= 1
	}
	return r
}
