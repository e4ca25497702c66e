package diff

import "sort"

// alignByAnchors marks the changed lines of a box in about linear time, for
// when the search may not go on. Lines that occur just once on either side of
// the box are paired, the longest run of pairs in the same order is kept (as in
// patience diff), each pair is grown over its equal neighbors, and what lies
// between is changed. With no such lines all but the common ends is.
func (t *Table) alignByAnchors(a, b *partaking, ra, rb Range) {
	i, j := ra.Start, rb.Start
	for _, p := range t.anchors(a.ids, b.ids, ra, rb) {
		if p.x < i || p.y < j {
			continue // swallowed by the growth of the one before
		}
		x, y := p.x, p.y
		for x > i && y > j && a.ids[x-1] == b.ids[y-1] {
			x, y = x-1, y-1
		}
		for i < x && j < y && a.ids[i] == b.ids[j] {
			i, j = i+1, j+1
		}
		a.mark(i, x)
		b.mark(j, y)
		i, j = p.x+1, p.y+1
		for i < ra.End && j < rb.End && a.ids[i] == b.ids[j] {
			i, j = i+1, j+1
		}
	}
	x, y := ra.End, rb.End
	for x > i && y > j && a.ids[x-1] == b.ids[y-1] {
		x, y = x-1, y-1
	}
	a.mark(i, x)
	b.mark(j, y)
}

type anchor struct{ x, y int }

// anchors gives the longest sequence of lines that are unique on both sides of
// the box, rising on both.
func (t *Table) anchors(x, y []int32, rx, ry Range) []anchor {
	cx, cy, px, py := t.count[0], t.count[1], t.place[0], t.place[1]
	for i := rx.Start; i < rx.End; i++ {
		cx[x[i]]++
		px[x[i]] = int32(i)
	}
	for j := ry.Start; j < ry.End; j++ {
		cy[y[j]]++
		py[y[j]] = int32(j)
	}
	var pairs []anchor
	for i := rx.Start; i < rx.End; i++ {
		if id := x[i]; cx[id] == 1 && cy[id] == 1 {
			pairs = append(pairs, anchor{i, int(py[id])})
		}
	}
	for i := rx.Start; i < rx.End; i++ {
		cx[x[i]] = 0
	}
	for j := ry.Start; j < ry.End; j++ {
		cy[y[j]] = 0
	}
	return longestRising(pairs)
}

// longestRising keeps the longest subsequence whose y rises; x rises already.
func longestRising(pairs []anchor) []anchor {
	if len(pairs) == 0 {
		return nil
	}
	ends := make([]int, 0, 64) // ends[k]: the pair with the least y that ends a run of k+1
	before := make([]int, len(pairs))
	for p, pair := range pairs {
		k := sort.Search(len(ends), func(k int) bool { return pairs[ends[k]].y >= pair.y })
		before[p] = -1
		if k > 0 {
			before[p] = ends[k-1]
		}
		if k == len(ends) {
			ends = append(ends, p)
		} else {
			ends[k] = p
		}
	}
	out := make([]anchor, len(ends))
	for k, p := len(ends)-1, ends[len(ends)-1]; k >= 0; k, p = k-1, before[p] {
		out[k] = pairs[p]
	}
	return out
}
