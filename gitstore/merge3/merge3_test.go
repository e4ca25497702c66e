package merge3_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"umbra/gitstore/diff"
	"umbra/gitstore/merge3"
	"umbra/internal/need"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name               string
		base, ours, theirs string
		want               string // merged, or with markers if there are conflicts
		conflicts          int
	}{
		{"all empty", "", "", "", "", 0},
		{"only ours", "a\n", "b\n", "a\n", "b\n", 0},
		{"only theirs", "a\n", "a\n", "", "", 0},
		{"the same change", "a\n", "b\n", "b\n", "b\n", 0},
		{"apart", "a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n", 0},
		{"side by side", "a\nb\n", "A\nb\n", "a\nB\n", "<<<<<<< o\nA\nb\n=======\na\nB\n>>>>>>> t\n", 1},
		{"both at the end", "a\n", "a\nb\n", "a\nc\n", "a\n<<<<<<< o\nb\n=======\nc\n>>>>>>> t\n", 1},
		{"both append the same", "a\n", "a\nb\n", "a\nb\n", "a\nb\n", 0},
		{"deleted and changed", "a\nb\nc\n", "a\nc\n", "a\nB\nc\n", "a\n<<<<<<< o\n=======\nB\n>>>>>>> t\nc\n", 1},
		{"newline added and line changed", "a\nb\nc", "a\nb\nc\n", "A\nb\nc", "A\nb\nc\n", 0},
		{"newline lost on both sides", "a\nb\n", "a\nb", "a\nb", "a\nb", 0},
		{"no newline at a conflict", "a", "b", "c", "<<<<<<< o\nb\n=======\nc\n>>>>>>> t\n", 1},
		{"crlf kept", "a\r\nb\r\nc\r\n", "A\r\nb\r\nc\r\n", "a\r\nb\r\nC\r\n", "A\r\nb\r\nC\r\n", 0},
		{"crlf markers", "a\r\n", "b\r\n", "c\r\n", "<<<<<<< o\r\nb\r\n=======\r\nc\r\n>>>>>>> t\r\n", 1},
		{"line ends against a change", "a\nb\n", "a\r\nb\r\n", "a\nB\n", "<<<<<<< o\na\r\nb\r\n=======\na\nB\n>>>>>>> t\n", 1},
		{"from nothing", "", "a\n", "b\n", "<<<<<<< o\na\n=======\nb\n>>>>>>> t\n", 1},
		{"cut down", "x\n", "1\n2\n3\n4\n5\n6\n7\n", "1\n2\nC\n4\n5\n6\n7\n", "1\n2\n<<<<<<< o\n3\n=======\nC\n>>>>>>> t\n4\n5\n6\n7\n", 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, err := merge3.Merge([]byte(c.base), []byte(c.ours), []byte(c.theirs), merge3.Options{})
			need.NoError(t, err)
			got := r.Render(merge3.Labels{Ours: "o", Theirs: "t"}, merge3.TwoSided)
			if string(got) != c.want || r.Clean != (c.conflicts == 0) || len(r.Conflicts) != c.conflicts {
				t.Errorf("clean %v, %v\n%q\nwant\n%q", r.Clean, r.Conflicts, got, c.want)
			}
			if r.Clean && string(r.Merged) != c.want || !r.Clean && r.Merged != nil {
				t.Errorf("merged %q", r.Merged)
			}
		})
	}
}

// TestTouching merges changes without a line between them, of which one deletes.
func TestTouching(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ base, ours, theirs, want string }{
		"deleted above":        {"a\nb\nc\nd\n", "a\nc\nd\n", "a\nb\nC\nd\n", "a\nC\nd\n"},
		"deleted below":        {"a\nb\nc\nd\n", "a\nb\nd\n", "a\nB\nB2\nc\nd\n", "a\nB\nB2\nd\n"},
		"above and below":      {"a\nb\nc\nd\ne\n", "a\nc\ne\n", "a\nb\nC\nd\ne\n", "a\nC\ne\n"},
		"both delete":          {"a\nb\nc\nd\n", "a\nc\nd\n", "a\nb\nd\n", "a\nd\n"},
		"added below":          {"a\nb\nc\n", "a\nc\n", "a\nb\nnew\nc\n", "a\nnew\nc\n"},
		"added above":          {"a\nb\nc\n", "a\nc\n", "a\nnew\nb\nc\n", "a\nnew\nc\n"},
		"all":                  {"a\nb\n", "a\n", "B\nb\n", "B\n"},
		"deleted and changed":  {"a\nb\nc\n", "a\nc\n", "a\nB\nc\n", ""},
		"both change":          {"a\nb\n", "A\nb\n", "a\nB\n", ""},
		"both add":             {"a\n", "a\nb\n", "a\nc\n", ""},
		"next to a conflict":   {"a\nb\nc\nd\n", "a\nC\nd\n", "a\nb\nC2\nd\n", ""},
		"a conflict and below": {"a\nb\nc\nd\n", "A\nb\nd\n", "A2\nB\nc\nd\n", ""},
	} {
		for range 2 {
			r, err := merge3.Merge([]byte(c.base), []byte(c.ours), []byte(c.theirs), merge3.Options{Touching: true})
			if err != nil || r.Clean != (c.want != "") || string(r.Merged) != c.want {
				t.Errorf("%s: %v, clean %v, %q, not %q", name, err, r.Clean, r.Merged, c.want)
			}
			if git, err := merge3.Merge([]byte(c.base), []byte(c.ours), []byte(c.theirs), merge3.Options{}); err != nil || git.Clean {
				t.Errorf("%s: %v, git has no conflict", name, err)
			}
			c.ours, c.theirs = c.theirs, c.ours
		}
	}
}

func TestConflictRanges(t *testing.T) {
	t.Parallel()
	r, err := merge3.Merge([]byte("a\nb\nc\nd\n"), []byte("a\nx\ny\nc\nd\n"), []byte("0\na\nz\nc\nd\n"), merge3.Options{})
	want := merge3.Hunk{Base: diff.Range{Start: 1, End: 2}, Ours: diff.Range{Start: 1, End: 3}, Theirs: diff.Range{Start: 2, End: 3}}
	if err != nil || len(r.Conflicts) != 1 || r.Conflicts[0] != want {
		t.Errorf("%v, %v", r.Conflicts, err)
	}
	const marked = "0\na\n<<<<<<<\nx\ny\n||||||| was\nb\n=======\nz\n>>>>>>>\nc\nd\n"
	if got := r.Render(merge3.Labels{Base: "was"}, merge3.Diff3); string(got) != marked {
		t.Errorf("%s", got)
	}
}

func TestBinary(t *testing.T) {
	t.Parallel()
	text, bin, other := []byte("text\n"), []byte("bin\x00\n"), []byte("b\x00\n")
	for _, c := range [][3][]byte{{text, bin, other}, {bin, text, other}, {bin, other, text}} {
		if _, err := merge3.Merge(c[0], c[1], c[2], merge3.Options{}); !errors.Is(err, merge3.ErrBinary) {
			t.Errorf("%q: %v", c, err)
		}
	}
	if r, err := merge3.Merge(bin, bin, other, merge3.Options{}); err != nil || !bytes.Equal(r.Merged, other) {
		t.Errorf("one side unchanged: %+v, %v", r, err)
	}
}

// TestSmallAllowance holds that a merge that is cut short still gives a whole
// result.
func TestSmallAllowance(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	var base, ours, theirs bytes.Buffer
	for i := range 3000 {
		line := fmt.Sprintln(r.IntN(40))
		base.WriteString(line)
		if i%7 != 0 {
			ours.WriteString(line)
		}
		if i%11 == 0 {
			line = "theirs\n"
		}
		theirs.WriteString(line)
	}
	theirs.WriteString("end\n")
	for _, work := range []int64{1, 100, 10_000, 1 << 30} {
		m, err := merge3.Merge(base.Bytes(), ours.Bytes(), theirs.Bytes(), merge3.Options{Work: work})
		if err != nil || m.Coarse != (work < 1<<30) {
			t.Fatalf("work %d: coarse %v, %v", work, m.Coarse, err)
		}
		checkResult(t, m, base.Bytes(), ours.Bytes(), theirs.Bytes())
	}
}

// checkResult holds what every result must be: conflicts in order and within
// the texts, and renderings that agree with them.
func checkResult(t *testing.T, m merge3.Result, base, ours, theirs []byte) {
	t.Helper()
	var table diff.Table
	lines := [3]diff.Lines{table.Cut(base), table.Cut(ours), table.Cut(theirs)}
	end := [3]int{}
	for _, h := range m.Conflicts {
		for i, r := range []diff.Range{h.Base, h.Ours, h.Theirs} {
			if i > 0 && r.Start < end[i] || r.Len() < 0 || r.End > lines[i].Len() {
				t.Fatalf("conflict %v behind %v of %v", h, end, []int{lines[0].Len(), lines[1].Len(), lines[2].Len()})
			}
			end[i] = r.End
		}
	}
	if m.Clean != (len(m.Conflicts) == 0) || !m.Clean && m.Merged != nil {
		t.Fatalf("clean %v with %d conflicts", m.Clean, len(m.Conflicts))
	}
	for _, style := range []merge3.Style{merge3.TwoSided, merge3.Diff3} {
		text := m.Render(merge3.Labels{Ours: "o", Theirs: "t"}, style)
		if m.Clean && !bytes.Equal(text, m.Merged) || !m.Clean && !bytes.Contains(text, []byte("<<<<<<< o")) {
			t.Fatalf("clean %v, rendered %q", m.Clean, text)
		}
	}
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("a\nc\n"), []byte("a\nb\nd\nc"), int64(0))
	f.Add([]byte(""), []byte("\r\n"), []byte("\n\n"), int64(1))
	f.Add([]byte("\n\na\n\n"), []byte("\na\n\n\n"), []byte("a\n\n\na"), int64(7))
	f.Fuzz(func(t *testing.T, base, ours, theirs []byte, work int64) {
		m, err := merge3.Merge(base, ours, theirs, merge3.Options{Work: max(work, 0)})
		if err != nil {
			if !errors.Is(err, merge3.ErrBinary) {
				t.Fatal(err)
			}
			return
		}
		checkResult(t, m, base, ours, theirs)
	})
}

func BenchmarkMerge(b *testing.B) {
	run := func(name string, base, ours, theirs []byte) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(base)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := merge3.Merge(base, ours, theirs, merge3.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	text := func(lines, every int, mark string) []byte {
		var out []byte
		for i := range lines {
			if i%every == every/2 {
				out = append(out, mark...)
			}
			out = fmt.Appendf(out, "this is line %d of a text\n", i)
		}
		return out
	}
	run("1KB", text(40, 100, ""), text(40, 40, "our\n"), text(40, 16, "their\n"))
	run("5MB", text(170_000, 1000, ""), text(170_000, 1000, "our\n"), text(170_000, 700, "their\n"))
	run("5MB-all-conflicts", text(170_000, 4, ""), text(170_000, 4, "our\n"), text(170_000, 4, "their\n"))
	run("5MB-rewritten", text(170_000, 4, ""), text(170_000, 1, "our "), text(170_000, 1, "their "))
	r := rand.New(rand.NewPCG(1, 1))
	words := func(lines, words int) []byte {
		var b strings.Builder
		for range lines {
			b.WriteString(strconv.Itoa(r.IntN(words)) + "\n")
		}
		return []byte(b.String())
	}
	run("5MB-two-words", words(2_500_000, 2), words(2_500_000, 2), words(2_500_000, 2))
	run("500k-ten-words", words(500_000, 10), words(500_000, 10), words(500_000, 10))
	run("600k-thousands-of-words", words(600_000, 10_000), words(600_000, 10_000), words(600_000, 10_000))
	run("5MB-newlines", bytes.Repeat([]byte("\n"), 5<<20), bytes.Repeat([]byte("\n"), 5<<20-9), bytes.Repeat([]byte("\n"), 5<<20+9))
}
