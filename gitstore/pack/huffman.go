package pack

import (
	"math/bits"
	"slices"
)

// huffman makes the codes of one alphabet after the other.
type huffman struct {
	order  [litSymbols]uint16 // the symbols that occur, the rarest first
	weight [litSymbols]uint32 // how often, in that order; then the lengths of their codes
	starts [fewTimes + 1]uint16
}

// fewTimes is how often a symbol has to occur to be sorted by comparing.
const fewTimes = 64

// codes gives each symbol that occurs a code of at most so many bits, by how
// often it does. There are always at least two codes, as decoders of old expect.
func (h *huffman) codes(out []symbol, times []uint32, longest int) {
	n := h.sort(times)
	clear(out)
	if n < 2 {
		other := 0 // the second one
		if n == 1 {
			out[h.order[0]].len = 1
			if h.order[0] == 0 {
				other = 1
			}
		} else {
			out[1].len = 1
		}
		out[other].len = 1
		canonical(out)
		return
	}
	depths(h.weight[:n])
	var count [longestCode + 1]int // codes by their length
	for _, d := range h.weight[:n] {
		count[min(int(d), longest)]++
	}
	shorten(count[:longest+1])
	i := n
	for length := 1; length <= longest; length++ {
		for range count[length] {
			i--
			out[h.order[i]].len = uint8(length)
		}
	}
	canonical(out)
}

// sort puts the symbols that occur into order, and gives how many there are.
func (h *huffman) sort(times []uint32) int {
	clear(h.starts[:])
	for _, t := range times {
		if t > 0 {
			h.starts[min(t, fewTimes)]++
		}
	}
	n := uint16(0)
	for i, c := range h.starts {
		h.starts[i] = n
		n += c
	}
	often := h.starts[fewTimes]
	for sym, t := range times {
		if t > 0 {
			at := &h.starts[min(t, fewTimes)]
			h.order[*at] = uint16(sym)
			*at++
		}
	}
	slices.SortFunc(h.order[often:n], func(a, b uint16) int { return int(times[a]) - int(times[b]) })
	for i, sym := range h.order[:n] {
		h.weight[i] = times[sym]
	}
	return int(n)
}

// depths replaces weights, the smallest first, by the lengths of their codes: A.
// Moffat and J. Katajainen, In-Place Calculation of Minimum-Redundancy Codes
// (1995). There are at least two.
func depths(a []uint32) {
	n := len(a)
	// Each inner node's weight is put together; a node that is used up becomes
	// the number of the one above it.
	leaf, root := 0, 0
	for next := range n - 1 {
		take := func() uint32 {
			if leaf < n && (root >= next || a[leaf] <= a[root]) {
				leaf++
				return a[leaf-1]
			}
			w := a[root]
			a[root] = uint32(next)
			root++
			return w
		}
		first := take()
		a[next] = first + take()
	}
	// Depths of the inner nodes, from the top down.
	a[n-2] = 0
	for next := n - 3; next >= 0; next-- {
		a[next] = a[a[next]] + 1
	}
	// What is not an inner node at a depth is a leaf.
	free, depth, root, next := 1, uint32(0), n-2, n-1
	for free > 0 {
		inner := 0
		for root >= 0 && a[root] == depth {
			inner++
			root--
		}
		for ; free > inner; free-- {
			a[next] = depth
			next--
		}
		free = 2 * inner
		depth++
	}
}

// shorten makes a code whose longest ones were cut off whole again: count is how
// many there are by length.
func shorten(count []int) {
	longest := len(count) - 1
	total := 0 // in units of the longest code's share
	for length := 1; length <= longest; length++ {
		total += count[length] << (longest - length)
	}
	for ; total > 1<<longest; total-- {
		// One of the longest goes beside another one, which gets a bit longer.
		count[longest]--
		for length := longest - 1; length > 0; length-- {
			if count[length] > 0 {
				count[length]--
				count[length+1] += 2
				break
			}
		}
	}
}

// canonical gives codes to lengths (RFC 1951 3.2.2), in the order of writing.
func canonical(out []symbol) {
	var next [longestCode + 2]uint16
	for _, s := range out {
		next[s.len+1]++
	}
	next[1] = 0 // symbols without a code
	for i := 2; i < len(next); i++ {
		next[i] = (next[i-1] + next[i]) << 1
	}
	// next[l] is now the first code of length l.
	for i := range out {
		if l := out[i].len; l > 0 {
			out[i].code = bits.Reverse16(next[l]) >> (16 - l)
			next[l]++
		}
	}
}

// header is what tells a block's codes (RFC 1951 3.2.7).
type header struct {
	lit, dist, pre int // how many lengths are told of each alphabet
	items          []item
	times          [lenSymbols]uint32
}

// item is a length, or a repetition with its count.
type item struct{ symbol, extra uint8 }

// preOrder is the order in which the lengths of the last code are told.
var preOrder = [lenSymbols]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// extraOf is how many bits an item's count takes.
func extraOf(sym uint8) uint {
	switch sym {
	case 16:
		return 2
	case 17:
		return 3
	case 18:
		return 7
	}
	return 0
}

// make puts the header together, and gives its bits.
func (h *header) make(lit, dist []symbol, build *huffman, pre *[lenSymbols]symbol) int {
	h.items = h.items[:0]
	clear(h.times[:])
	h.lit, h.dist = told(lit, 257), told(dist, 1)
	var all [litSymbols + distSymbols]uint8
	n := 0
	for _, list := range [][]symbol{lit[:h.lit], dist[:h.dist]} {
		for _, s := range list {
			all[n] = s.len
			n++
		}
	}
	for i := 0; i < n; {
		same := i + 1
		for same < n && all[same] == all[i] {
			same++
		}
		h.run(all[i], same-i)
		i = same
	}
	build.codes(pre[:], h.times[:], 7)
	h.pre = lenSymbols
	for h.pre > 4 && pre[preOrder[h.pre-1]].len == 0 {
		h.pre--
	}
	size := 5 + 5 + 4 + 3*h.pre
	for sym, times := range h.times {
		size += int(times) * (int(pre[sym].len) + int(extraOf(uint8(sym))))
	}
	return size
}

// told gives how many symbols have to be told of, at least some.
func told(list []symbol, least int) int {
	n := len(list)
	for n > least && list[n-1].len == 0 {
		n--
	}
	return n
}

// run notes a length that stands several times in a row.
func (h *header) run(length uint8, n int) {
	add := func(sym uint8, extra int) {
		h.items = append(h.items, item{sym, uint8(extra)})
		h.times[sym]++
	}
	if length == 0 {
		for n >= 11 {
			k := min(n, 138)
			add(18, k-11)
			n -= k
		}
		if n >= 3 {
			add(17, n-3)
			n = 0
		}
	} else {
		add(length, 0)
		n--
		for n >= 3 {
			k := min(n, 6)
			add(16, k-3)
			n -= k
		}
	}
	for ; n > 0; n-- {
		add(length, 0)
	}
}

func (h *header) write(w *bitWriter, pre *[lenSymbols]symbol) {
	w.put(uint64(h.lit-257), 5)
	w.put(uint64(h.dist-1), 5)
	w.put(uint64(h.pre-4), 4)
	for _, sym := range preOrder[:h.pre] {
		w.put(uint64(pre[sym].len), 3)
	}
	for _, it := range h.items {
		c := pre[it.symbol]
		w.put(uint64(c.code)|uint64(it.extra)<<c.len, uint(c.len)+extraOf(it.symbol))
	}
}
