package diff

// A block of changed lines can often be moved: if the line before it equals its
// last line, the block one line further up is equally correct. It is moved where
// git puts it: as far down as possible, or, where it can be next to a block of the
// other side, to the lowest such place, so that a deletion and an addition become
// one change; else to where it reads best (indent.go). Blocks that touch while
// moving become one. This changes which lines are called changed, never how many.

// block is a run of changed lines, perhaps an empty one between two unchanged
// lines. The blocks of both sides correspond one to one, since the unchanged
// lines between them do.
type block struct {
	s          *side
	start, end int
}

func firstBlock(s *side) block {
	b := block{s: s}
	for s.changed(b.end) {
		b.end++
	}
	return b
}

func (b *block) empty() bool { return b.start == b.end }

// next moves on to the next block; false at the last one.
func (b *block) next() bool {
	if b.end == len(b.s.ids) {
		return false
	}
	b.start = b.end + 1
	b.end = b.start
	for b.s.changed(b.end) {
		b.end++
	}
	return true
}

// prev moves back to the block before; false at the first one.
func (b *block) prev() bool {
	if b.start == 0 {
		return false
	}
	b.end = b.start - 1
	b.start = b.end
	for b.s.changed(b.start - 1) {
		b.start--
	}
	return true
}

// up moves the block's lines one up, and takes in a block that it then touches.
func (b *block) up() bool {
	ids := b.s.ids
	if b.start == 0 || ids[b.start-1] != ids[b.end-1] {
		return false
	}
	b.start--
	b.end--
	b.s.set(b.start, true)
	b.s.set(b.end, false)
	for b.s.changed(b.start - 1) {
		b.start--
	}
	return true
}

// down moves the block's lines one down, and takes in a block that it then touches.
func (b *block) down() bool {
	ids := b.s.ids
	if b.end == len(ids) || ids[b.start] != ids[b.end] {
		return false
	}
	b.s.set(b.start, false)
	b.s.set(b.end, true)
	b.start++
	b.end++
	for b.s.changed(b.end) {
		b.end++
	}
	return true
}

// slide settles every block of s. Its work has a bound of its own, a few times the number of lines; ordinary
// texts stay far below it. Stopping early leaves blocks where they are as right
// as anywhere.
func slide(s, other *side) {
	left := 16*(len(s.ids)+len(other.ids)) + 1024
	b, o := firstBlock(s), firstBlock(other)
	for left > 0 {
		if !b.empty() {
			left -= settle(&b, &o, left)
		}
		if !b.next() {
			return
		}
		o.next()
	}
}

// settle moves one block to its place and gives the number of moves it took.
func settle(b, o *block, left int) int {
	moves := 0
	for {
		size := b.end - b.start
		for b.up() {
			o.prev()
			moves++
		}
		top := b.end
		beside := -1
		if !o.empty() {
			beside = b.end
		}
		for b.down() {
			o.next()
			moves++
			if !o.empty() {
				beside = b.end
			}
		}
		if size != b.end-b.start && moves < left {
			continue // it took in another block, and may now move further
		}
		switch {
		case b.end == top:
		case beside != -1:
			for o.empty() && b.up() {
				o.prev()
				moves++
			}
		case b.s.text != nil:
			for best := bestEnd(*b.s.text, b.end-b.start, top, b.end); b.end > best && b.up(); moves++ {
				o.prev()
			}
		}
		return moves
	}
}
