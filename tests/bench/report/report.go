// Package report writes the results of the benchmarks: a table a row, as text, as
// JSON, and as the generated part of a document.
package report

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Result is what one row found on one disk.
type Result struct {
	Row, Disk string // the key, with Disk
	Title     string
	// About says what was measured, in a sentence or two.
	About string
	// Conditions are of this run: date, machine, file system, scale.
	Conditions string
	Columns    []string
	Lines      [][]string
	Checks     []Check
	Notes      []string
	// Data is what the lines were made of, for programs.
	Data any `json:",omitempty"`
}

// Key names the result in a document.
func (r *Result) Key() string { return r.Row + " on " + r.Disk }

// Check is a target and what was found.
type Check struct {
	Target, Got string
	Verdict     Verdict
}

// Verdict says whether a target was met.
type Verdict string

// The verdicts. NotMeasured: a peer is missing, or too few samples.
const (
	Met         Verdict = "met"
	Missed      Verdict = "missed"
	NotMeasured Verdict = "not measured"
)

// AtMost checks a ratio or figure that is to be limit or less.
func AtMost(target string, got, limit float64, format string) Check {
	return check(target, got, format, got <= limit)
}

// AtLeast checks a ratio or figure that is to be limit or more.
func AtLeast(target string, got, limit float64, format string) Check {
	return check(target, got, format, got >= limit)
}

func check(target string, got float64, format string, met bool) Check {
	switch {
	case math.IsNaN(got):
		return Check{Target: target, Got: "–", Verdict: NotMeasured}
	case met:
		return Check{Target: target, Got: fmt.Sprintf(format, got), Verdict: Met}
	}
	return Check{Target: target, Got: fmt.Sprintf(format, got), Verdict: Missed}
}

// Line adds a line to the table.
func (r *Result) Line(cells ...string) { r.Lines = append(r.Lines, cells) }

// Note adds a sentence below the table.
func (r *Result) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Markdown writes the result as a section.
func (r *Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s\n\n*%s*\n\n", r.Title, r.About, r.Conditions)
	if len(r.Lines) > 0 {
		table(&b, r.Columns, r.Lines)
	}
	if len(r.Checks) > 0 {
		lines := make([][]string, len(r.Checks))
		for i, c := range r.Checks {
			verdict := string(c.Verdict)
			if c.Verdict == Missed {
				verdict = "**missed**"
			}
			lines[i] = []string{c.Target, c.Got, verdict}
		}
		table(&b, []string{"target", "found", ""}, lines)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "%s\n\n", n)
	}
	return b.String()
}

// table writes a table whose columns are padded, so that it can be read as text
// too. Columns but the first are set right where they hold figures.
func table(b *strings.Builder, columns []string, lines [][]string) {
	width := make([]int, len(columns))
	for _, l := range append([][]string{columns}, lines...) {
		for i, cell := range l {
			width[i] = max(width[i], len([]rune(cell)), 3)
		}
	}
	row := func(cells []string) {
		for i, cell := range cells {
			fmt.Fprintf(b, "| %s%s ", cell, strings.Repeat(" ", width[i]-len([]rune(cell))))
		}
		b.WriteString("|\n")
	}
	row(columns)
	for _, w := range width {
		b.WriteString("|" + strings.Repeat("-", w+2))
	}
	b.WriteString("|\n")
	for _, l := range lines {
		row(l)
	}
	b.WriteString("\n")
}

// Millis formats a time in milliseconds, three digits of it; "–" for none.
func Millis(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return Number(float64(d)/1e6, "")
}

// Seconds formats a time in seconds, three digits of it.
func Seconds(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return Number(d.Seconds(), "")
}

// Times formats a ratio: "0.47×".
func Times(ratio float64) string { return Number(ratio, "×") }

// Number formats a figure in three digits or its whole part; "–" for none.
func Number(v float64, unit string) string {
	var text string
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case a == 0:
		text = "0"
	case a < 0.0995:
		text = fmt.Sprintf("%.3f", v)
	case a < 9.95:
		text = fmt.Sprintf("%.2f", v)
	case a < 99.5:
		text = fmt.Sprintf("%.1f", v)
	default:
		text = fmt.Sprintf("%.0f", v)
	}
	return text + unit
}

// Count formats a number of things: "10k", "1000", "0".
func Count(n int) string {
	if n >= 1000 && n%1000 == 0 {
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}
