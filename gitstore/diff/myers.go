package diff

import "math"

// The search is Myers' linear-space algorithm (E. Myers, "An O(ND) Difference
// Algorithm and Its Variations", 1986): the shortest paths from both corners of
// a box of the edit graph are grown in turn until they meet; the meeting point
// splits the box in two.
//
// The choice among equally short paths decides which of several right answers
// comes out. It is git's: diagonals from the highest down, a deletion preferred
// going forward. Merges are compared with git's, so that matters.
//
// Where the paths have not met after `cutoff` rounds, the box is split at the
// point that got furthest. Where the allowance of work is used up, the box is
// left to alignByAnchors.

// minCutoff is the least number of rounds before a box is split without the
// paths having met.
const minCutoff = 256

type searcher struct {
	table  *Table
	a, b   *partaking
	fwd    []int32 // furthest a-position on each diagonal, from the upper left
	back   []int32 // and from the lower right
	origin int     // index of diagonal 0
	cutoff int
	work   *Work
}

// search marks the changed ones among the partaking lines.
func search(t *Table, a, b *partaking, w *Work) {
	n1, n2 := len(a.ids), len(b.ids)
	diagonals := n1 + n2 + 3
	v := make([]int32, 2*diagonals)
	s := &searcher{
		table: t, a: a, b: b,
		fwd: v[:diagonals], back: v[diagonals:], origin: n2 + 1,
		cutoff: max(roughRoot(diagonals), minCutoff),
		work:   w,
	}
	s.box(0, n1, 0, n2, false)
}

// box handles the lines lo1..hi1 of a against lo2..hi2 of b. Where exact is
// true the paths are known to be short, and are followed to their meeting.
func (s *searcher) box(lo1, hi1, lo2, hi2 int, exact bool) {
	for {
		x, y := s.a.ids, s.b.ids
		for lo1 < hi1 && lo2 < hi2 && x[lo1] == y[lo2] {
			lo1, lo2 = lo1+1, lo2+1
		}
		for lo1 < hi1 && lo2 < hi2 && x[hi1-1] == y[hi2-1] {
			hi1, hi2 = hi1-1, hi2-1
		}
		if lo1 == hi1 || lo2 == hi2 {
			s.a.mark(lo1, hi1)
			s.b.mark(lo2, hi2)
			return
		}
		p, ok := s.split(lo1, hi1, lo2, hi2, exact)
		if !ok {
			s.table.alignByAnchors(s.a, s.b, Range{lo1, hi1}, Range{lo2, hi2})
			return
		}
		s.box(lo1, p.x, lo2, p.y, p.exactBefore)
		lo1, lo2, exact = p.x, p.y, p.exactAfter
	}
}

// meeting is where a box is split, and whether the halves have short paths.
type meeting struct {
	x, y                    int
	exactBefore, exactAfter bool
}

// split finds where to split the box; false if the allowance of work is spent.
func (s *searcher) split(lo1, hi1, lo2, hi2 int, exact bool) (meeting, bool) {
	var (
		x, y       = s.a.ids, s.b.ids
		fwd, back  = s.fwd, s.back
		o          = s.origin
		dmin, dmax = lo1 - hi2, hi1 - lo2
		fmid, bmid = lo1 - lo2, hi1 - hi2
		fmin, fmax = fmid, fmid
		bmin, bmax = bmid, bmid
		odd        = (fmid-bmid)&1 != 0
	)
	fwd[o+fmid], back[o+bmid] = int32(lo1), int32(hi1)
	for round := 1; ; round++ {
		steps := fmax - fmin + bmax - bmin + 4

		// Each round reaches one diagonal further on either side, or, at the
		// box's edge, one less.
		if fmin > dmin {
			fmin--
			fwd[o+fmin-1] = -1
		} else {
			fmin++
		}
		if fmax < dmax {
			fmax++
			fwd[o+fmax+1] = -1
		} else {
			fmax--
		}
		for d := fmax; d >= fmin; d -= 2 {
			i := int(fwd[o+d+1])
			if left := int(fwd[o+d-1]); left >= i {
				i = left + 1
			}
			from := i
			for j := i - d; i < hi1 && j < hi2 && x[i] == y[j]; i, j = i+1, j+1 {
			}
			steps += i - from
			fwd[o+d] = int32(i)
			if odd && bmin <= d && d <= bmax && int(back[o+d]) <= i {
				s.work.spend(steps)
				return meeting{i, i - d, true, true}, true
			}
		}

		if bmin > dmin {
			bmin--
			back[o+bmin-1] = math.MaxInt32
		} else {
			bmin++
		}
		if bmax < dmax {
			bmax++
			back[o+bmax+1] = math.MaxInt32
		} else {
			bmax--
		}
		for d := bmax; d >= bmin; d -= 2 {
			i := int(back[o+d+1]) - 1
			if right := int(back[o+d-1]); right <= i {
				i = right
			}
			from := i
			for j := i - d; i > lo1 && j > lo2 && x[i-1] == y[j-1]; i, j = i-1, j-1 {
			}
			steps += from - i
			back[o+d] = int32(i)
			if !odd && fmin <= d && d <= fmax && i <= int(fwd[o+d]) {
				s.work.spend(steps)
				return meeting{i, i - d, true, true}, true
			}
		}

		if !s.work.spend(steps) {
			return meeting{}, false
		}
		if !exact && round >= s.cutoff {
			break
		}
	}

	// The furthest point of either direction, by the sum of its coordinates.
	var bestF, bestB meeting
	sumF, sumB := -1, math.MaxInt
	for d := fmax; d >= fmin; d -= 2 {
		i := min(int(fwd[o+d]), hi1, hi2+d)
		if sum := i + i - d; sum > sumF {
			sumF, bestF = sum, meeting{x: i, y: i - d, exactBefore: true}
		}
	}
	for d := bmax; d >= bmin; d -= 2 {
		i := max(int(back[o+d]), lo1, lo2+d)
		if sum := i + i - d; sum < sumB {
			sumB, bestB = sum, meeting{x: i, y: i - d, exactAfter: true}
		}
	}
	if hi1+hi2-sumB < sumF-lo1-lo2 {
		return bestF, true
	}
	return bestB, true
}
