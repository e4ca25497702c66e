package diff

import (
	"bytes"
	"strconv"
)

// headingMax is how much of a line follows "@@" at most, in bytes.
const headingMax = 80

// hunks writes the changes with their context. Changes with at most twice the
// context between them share a hunk.
func (w *writer) hunks(a, b Lines, changes []Change) {
	context := max(w.opts.Context, 0)
	if w.opts.Context == 0 {
		context = DefaultContext
	}
	context = min(context, a.Len()+b.Len())
	heading, searched := []byte(nil), 0
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Old.Start-changes[n-1].Old.End <= 2*context {
			n++
		}
		first, last := changes[0], changes[n-1]
		before := min(context, first.Old.Start)
		after := min(context, a.Len()-last.Old.End)
		old := Range{first.Old.Start - before, last.Old.End + after}
		new := Range{first.New.Start - before, last.New.End + after}

		for i := old.Start - 1; i >= searched; i-- {
			if h := headingOf(a.Line(i)); h != nil {
				heading = h
				break
			}
		}
		searched = max(searched, old.Start)
		w.hunkHeader(old, new, heading)

		at := old.Start
		for _, c := range changes[:n] {
			w.lines(' ', a, at, c.Old.Start)
			w.lines('-', a, c.Old.Start, c.Old.End)
			w.lines('+', b, c.New.Start, c.New.End)
			at = c.Old.End
		}
		w.lines(' ', a, at, old.End)
		changes = changes[n:]
	}
}

func (w *writer) hunkHeader(old, new Range, heading []byte) {
	text := append(w.patch.Text, "@@ -"...)
	text = appendRange(text, old)
	text = append(text, " +"...)
	text = appendRange(text, new)
	text = append(text, " @@"...)
	if heading != nil {
		text = append(text, ' ')
		text = append(text, heading...)
	}
	w.patch.Text = append(text, '\n')
}

// appendRange writes "start,length", counted from 1. A length of 1 is left
// out; an empty range starts at the line before it.
func appendRange(text []byte, r Range) []byte {
	start := r.Start + 1
	if r.Len() == 0 {
		start--
	}
	text = strconv.AppendInt(text, int64(start), 10)
	if r.Len() != 1 {
		text = append(text, ',')
		text = strconv.AppendInt(text, int64(r.Len()), 10)
	}
	return text
}

// headingOf gives what a hunk below this line is headed with: the line, if it
// begins like a declaration in most languages, at its left edge.
func headingOf(line []byte) []byte {
	c := line[0]
	if c != '_' && c != '$' && (c|0x20 < 'a' || c|0x20 > 'z') {
		return nil
	}
	return bytes.TrimRight(line[:min(len(line), headingMax)], " \t\r\n")
}

func (w *writer) lines(prefix byte, l Lines, from, to int) {
	text := w.patch.Text
	for i := from; i < to; i++ {
		text = append(text, prefix)
		text = append(text, l.Line(i)...)
	}
	if from < to && text[len(text)-1] != '\n' {
		text = append(text, "\n\\ No newline at end of file\n"...)
	}
	w.patch.Text = text
}
