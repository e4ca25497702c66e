package diff

// Where a block could be at several places, git takes the one that reads best,
// by how the lines around its two ends are indented (diff.indentHeuristic, on by
// default since git 2.14; the scores are those of git's xdiff).

const (
	maxSliding = 100 // how many lines of a block are considered
	maxIndent  = 200
	maxBlanks  = 20 // in a row that are counted

	startOfFile              = 1
	endOfFile                = 21
	totalBlank               = -30
	postBlank                = 6
	relativeIndent           = -4
	relativeIndentBlank      = 10
	relativeOutdent          = 24
	relativeOutdentBlank     = 17
	relativeDedent           = 23
	relativeDedentBlank      = 17
	indentWeight             = 60
	blankLine            int = -1
)

// indentOf gives how far a line is indented, in columns; blankLine for one of
// white space alone.
func indentOf(line []byte) int {
	n := 0
	for _, c := range line {
		switch c {
		case ' ':
			n++
		case '\t':
			n += 8 - n%8
		case '\n', '\r':
		default:
			return n
		}
		if n >= maxIndent {
			return maxIndent
		}
	}
	return blankLine
}

// splitScore rates how well a text reads if it is split at some places; less is
// better.
type splitScore struct{ indent, penalty int }

// add takes in a split before line at.
func (s *splitScore) add(l Lines, at int) {
	indent, end := blankLine, at >= l.Len()
	if !end {
		indent = indentOf(l.Line(at))
	}
	before, blanksBefore := nearest(l, at-1, -1)
	after, blanksAfter := nearest(l, at+1, 1)
	if before == blankLine && blanksBefore == 0 {
		s.penalty += startOfFile
	}
	if end {
		s.penalty += endOfFile
	}
	blanks := 0
	if indent == blankLine {
		blanks = 1 + blanksAfter
	}
	s.penalty += totalBlank*(blanksBefore+blanks) + postBlank*blanks
	any := blanksBefore+blanks != 0
	if indent == blankLine {
		indent = after
	}
	s.indent += indent
	penalty := func(with, without int) {
		if any {
			s.penalty += with
		} else {
			s.penalty += without
		}
	}
	switch {
	case indent == blankLine, before == blankLine, indent == before:
	case indent > before:
		penalty(relativeIndentBlank, relativeIndent)
	case after != blankLine && after > indent:
		penalty(relativeOutdentBlank, relativeOutdent)
	default:
		penalty(relativeDedentBlank, relativeDedent)
	}
}

// nearest gives the indent of the nearest line that is not blank, and how many
// blank ones come before it.
func nearest(l Lines, at, step int) (indent, blanks int) {
	for ; at >= 0 && at < l.Len(); at += step {
		if indent := indentOf(l.Line(at)); indent != blankLine {
			return indent, blanks
		}
		if blanks++; blanks == maxBlanks {
			return 0, blanks
		}
	}
	return blankLine, blanks
}

// atMost reports whether a score is as good as another, or better.
func (s splitScore) atMost(o splitScore) bool {
	c := 0
	switch {
	case s.indent > o.indent:
		c = 1
	case s.indent < o.indent:
		c = -1
	}
	return indentWeight*c+s.penalty-o.penalty <= 0
}

// bestEnd gives where a block of so many lines reads best that may end anywhere
// between two lines.
func bestEnd(l Lines, size, lowest, highest int) int {
	best, score := -1, splitScore{}
	for end := max(lowest, highest-size-1, highest-maxSliding); end <= highest; end++ {
		var s splitScore
		s.add(l, end)
		s.add(l, end-size)
		if best < 0 || s.atMost(score) {
			best, score = end, s
		}
	}
	return best
}
