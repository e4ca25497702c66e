package diff

import (
	"bytes"
	"fmt"
	"testing"
)

// TestTextTakesWhatItNeeds: a patch is made in one piece of memory, which goes by
// what changed and not by what the file has.
func TestTextTakesWhatItNeeds(t *testing.T) {
	t.Parallel()
	var old, edited []byte
	for i := range 100_000 {
		line := fmt.Appendf(nil, "line %d\n", i)
		old, edited = append(old, line...), append(edited, line...)
		if i == 50_000 {
			edited = append(edited, "one more\n"...)
		}
	}
	for _, c := range []struct {
		name     string
		old, new []byte
		most     int
	}{
		{"one line of many", old, edited, 2 << 10},
		{"only line ends", bytes.Repeat([]byte("\n"), 1<<20), bytes.Repeat([]byte("a\n"), 1<<20), 2*(1<<20) + 3*(1<<20) + 2<<10},
		{"all lines", old, bytes.ToUpper(old), 2*len(old) + 2*100_000 + 2<<10},
	} {
		p, err := Format(File{Path: "f", Mode: 0o100644, Data: c.old}, File{Path: "f", Mode: 0o100644, Data: c.new}, Options{})
		if err != nil || len(p.Text) == 0 || p.Binary {
			t.Fatalf("%s: %v", c.name, err)
		}
		if cap(p.Text) > c.most {
			t.Errorf("%s: %d bytes are held for %d, not %d at most", c.name, cap(p.Text), len(p.Text), c.most)
		}
	}
}

// TestTooManyLines: where each line would cost more than it holds, the patch is
// one without lines.
func TestTooManyLines(t *testing.T) {
	t.Parallel()
	for lines, want := range map[int]bool{maxLines - 1: false, maxLines + 1: true} {
		if got := tooManyLines(bytes.Repeat([]byte("\n"), lines), []byte("no line end")); got != want {
			t.Errorf("%d lines: %v", lines, got)
		}
	}
	p, err := Format(File{Path: "f", Mode: 0o100644, Data: bytes.Repeat([]byte("\n"), maxLines)}, File{Path: "f", Mode: 0o100644, Data: []byte("\n\n")}, Options{MaxBinary: 1 << 30})
	if err != nil || !p.Binary || p.Truncated || !bytes.Contains(p.Text, []byte("GIT binary patch")) {
		t.Errorf("binary %v, truncated %v, %d bytes, %v", p.Binary, p.Truncated, len(p.Text), err)
	}
}

// TestSeriesLeavesItsPatches joins patches whose texts have room behind them.
func TestSeriesLeavesItsPatches(t *testing.T) {
	t.Parallel()
	text := func(s string) Patch { return Patch{Text: append(make([]byte, 0, 100), s...)} }
	one, two := text("one\n"), text("two\n")
	var a, b Series
	a.Add(one)
	a.Add(two)
	b.Add(one)
	b.Add(text("three\n"))
	if got := string(a.Bytes()) + string(b.Bytes()); got != "one\ntwo\none\nthree\n" {
		t.Errorf("%q", got)
	}
	if got := string(one.Text[:8:8]); got != "one\n\x00\x00\x00\x00" {
		t.Errorf("a series wrote behind a patch: %q", got)
	}
}
