package merge3

import (
	"bytes"

	"umbra/gitstore/diff"
)

// Style says what is between the conflict markers (git-merge(1), "HOW
// CONFLICTS ARE PRESENTED").
type Style uint8

// The styles.
const (
	TwoSided Style = iota // ours and theirs
	Diff3                 // ours, base and theirs
)

// Labels follow the markers; an empty one leaves the marker bare.
type Labels struct{ Ours, Base, Theirs string }

// Render gives the text with the conflicts marked, as `git merge-file -p`
// prints it; for a clean merge the merged text.
func (r *Result) Render(labels Labels, style Style) []byte {
	if r.Clean {
		return r.Merged
	}
	parts := r.parts
	if style == Diff3 {
		// The base's lines belong to an overlap as a whole, so none is cut down.
		parts = r.whole
	}
	var out bytes.Buffer
	at := 0
	for _, p := range parts {
		out.Write(r.ours.Bytes(at, p.Ours.Start))
		switch p.take {
		case fromOurs, agreed:
			out.Write(r.ours.Bytes(p.Ours.Start, p.Ours.End))
		case fromTheirs:
			out.Write(r.theirs.Bytes(p.Theirs.Start, p.Theirs.End))
		case conflict:
			r.mark(&out, p, labels, style)
		}
		at = p.Ours.End
	}
	out.Write(r.ours.Bytes(at, r.ours.Len()))
	return out.Bytes()
}

func (r *Result) mark(out *bytes.Buffer, p part, labels Labels, style Style) {
	eol := "\n"
	if r.crlf(p) {
		eol = "\r\n"
	}
	side := func(marker, label string, l diff.Lines, lines diff.Range) {
		out.WriteString(marker)
		if label != "" {
			out.WriteString(" " + label)
		}
		out.WriteString(eol)
		text := l.Bytes(lines.Start, lines.End)
		out.Write(text)
		if len(text) > 0 && text[len(text)-1] != '\n' {
			out.WriteString(eol)
		}
	}
	side("<<<<<<<", labels.Ours, r.ours, p.Ours)
	if style == Diff3 {
		side("|||||||", labels.Base, r.base, p.Base)
	}
	side("=======", "", r.theirs, p.Theirs)
	out.WriteString(">>>>>>>")
	if labels.Theirs != "" {
		out.WriteString(" " + labels.Theirs)
	}
	out.WriteString(eol)
}

// crlf reports whether the markers of a part end in CR LF: if the base's first
// line does, and the lines before the part in ours and in theirs do, as far as
// there are any.
func (r *Result) crlf(p part) bool {
	return lineEnd(r.ours, max(p.Ours.Start-1, 0)) != lf &&
		lineEnd(r.theirs, max(p.Theirs.Start-1, 0)) != lf &&
		lineEnd(r.base, 0) == crlf
}

type eol uint8

const (
	unknown eol = iota
	lf
	crlf
)

// lineEnd returns the end of line i, or of the line before if i is the last one
// and has none.
func lineEnd(l diff.Lines, i int) eol {
	for ; i >= 0 && i < l.Len(); i-- {
		switch line := l.Line(i); {
		case bytes.HasSuffix(line, []byte("\r\n")):
			return crlf
		case bytes.HasSuffix(line, []byte("\n")):
			return lf
		}
	}
	return unknown
}
