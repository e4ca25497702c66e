package diff

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// compare runs the engine with an allowance of steps.
func compare(old, new []byte, limit int64) (Lines, Lines, []Change, Work) {
	var t Table
	w := Work{Limit: limit}
	a, b := t.Cut(old), t.Cut(new)
	return a, b, t.Compare(a, b, &w), w
}

// check holds what every result must be: in order, apart, complete.
func check(t interface{ Fatalf(string, ...any) }, a, b Lines, changes []Change) {
	i, j := 0, 0
	same := func(n int) {
		if i+n > a.Len() || j+n > b.Len() || !bytes.Equal(a.Bytes(i, i+n), b.Bytes(j, j+n)) {
			t.Fatalf("unchanged lines differ: %d from %d and %d", n, i, j)
		}
		i, j = i+n, j+n
	}
	for k, c := range changes {
		n := c.Old.Start - i
		if n < 0 || k > 0 && n == 0 || c.New.Start-j != n || c.Old.Len() < 0 || c.New.Len() < 0 || c.Old.Len()+c.New.Len() == 0 {
			t.Fatalf("change %d is no change: %v", k, changes)
		}
		same(n)
		i, j = c.Old.End, c.New.End
	}
	if a.Len()-i != b.Len()-j {
		t.Fatalf("the ends do not pair up: %v", changes)
	}
	same(a.Len() - i)
}

// TestCompareRandom holds that a result is right whatever the allowance is.
func TestCompareRandom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "\n", "d", "e\r\n", "a"})
		old := strings.Join(rapid.SliceOfN(line, 0, 60).Draw(t, "old"), "")
		new := strings.Join(rapid.SliceOfN(line, 0, 60).Draw(t, "new"), "")
		limit := rapid.SampledFrom([]int64{0, 1, 10, 40, 200}).Draw(t, "limit")
		a, b, changes, w := compare([]byte(old), []byte(new), limit)
		check(t, a, b, changes)
		if limit == 0 && w.Coarse {
			t.Fatalf("coarse after %d steps", w.Spent)
		}
		if (old == new) != (len(changes) == 0) {
			t.Fatalf("%d changes", len(changes))
		}
	})
}

func FuzzCompare(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("a\nc\nb"), int64(0))
	f.Add([]byte("a\n\n\na\n"), []byte("\n\na"), int64(1))
	f.Add([]byte(nil), []byte("\x00\r\n\r"), int64(3))
	f.Fuzz(func(t *testing.T, old, new []byte, limit int64) {
		a, b, changes, _ := compare(old, new, max(limit, 0))
		check(t, a, b, changes)
	})
}

func TestCutKeepsBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "\n": 1, "a": 1, "a\n": 1, "a\nb": 2, "\r\n\r": 2, "\n\n": 2} {
		var table Table
		l := table.Cut([]byte(text))
		if l.Len() != want || string(l.Bytes(0, l.Len())) != text {
			t.Errorf("%q: %d lines, %q", text, l.Len(), l.Bytes(0, l.Len()))
		}
		for i := range l.Len() {
			if s := l.Sub(i, l.Len()); string(s.Line(0)) != string(l.Line(i)) || s.Len() != l.Len()-i {
				t.Errorf("%q: Sub(%d) begins with %q", text, i, s.Line(0))
			}
		}
	}
}

// TestFullTable holds that texts too long to be numbered are compared still.
func TestFullTable(t *testing.T) {
	t.Parallel()
	table := Table{lines: maxInterned}
	a, b := table.Cut([]byte("same\none\nsame\nend")), table.Cut([]byte("same\ntwo\nthree\nsame\nend"))
	var w Work
	changes := table.Compare(a, b, &w)
	check(t, a, b, changes)
	if len(changes) != 1 || changes[0] != (Change{Range{1, 2}, Range{1, 3}}) || !w.Coarse {
		t.Errorf("%v, %+v", changes, w)
	}

	n := bytes.Repeat([]byte("\n"), maxInterned)
	a, b = table.Cut(append([]byte("a\n"), n...)), table.Cut(append([]byte("b\nb\n"), append(n, "end"...)...))
	changes = table.Compare(a, b, &w)
	check(t, a, b, changes)
	if len(changes) != 1 {
		t.Errorf("%v", changes)
	}
}

// TestAnchors holds that a spent allowance still finds what is unique.
func TestAnchors(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	var old, new []string
	for i := range 300 {
		for range 5 {
			old = append(old, fmt.Sprintln("x", r.IntN(3)))
			new = append(new, fmt.Sprintln("x", r.IntN(3)))
		}
		old = append(old, fmt.Sprintln("unique", i))
		new = append(new, fmt.Sprintln("unique", i))
	}
	new[5], new[11] = new[11], new[5]
	a, b, changes, w := compare([]byte(strings.Join(old, "")), []byte(strings.Join(new, "")), 1)
	check(t, a, b, changes)
	if !w.Coarse || len(changes) < 290 {
		t.Errorf("%d changes, %+v", len(changes), w)
	}
}

func TestLongestRising(t *testing.T) {
	t.Parallel()
	var pairs []anchor
	for x, y := range []int{3, 1, 4, 0, 5, 9, 2, 6, 8, 7} {
		pairs = append(pairs, anchor{x, y})
	}
	got := longestRising(pairs)
	if len(got) != 5 {
		t.Errorf("%v", got)
	}
	for i := 1; i < len(got); i++ {
		if got[i].x <= got[i-1].x || got[i].y <= got[i-1].y {
			t.Errorf("%v does not rise", got)
		}
	}
}

// TestDelta holds that every delta gives back its target.
func TestDelta(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SliceOfN(rapid.ByteRange(0, 3), 0, 80)
		from := bytes.Join(rapid.SliceOfN(piece, 0, 20).Draw(t, "from"), nil)
		to := bytes.Join(rapid.SliceOfN(piece, 0, 5).Draw(t, "to"), nil)
		for range rapid.IntRange(0, 8).Draw(t, "copies") {
			at := rapid.IntRange(0, len(from)).Draw(t, "at")
			to = append(to, from[at:rapid.IntRange(at, len(from)).Draw(t, "end")]...)
		}
		if rapid.Bool().Draw(t, "large") {
			from = bytes.Repeat(append(from, 1), 3000)
			to = append(bytes.Repeat(from, 2), to...)
		}
		if d := delta(from, to, len(to)); d != nil {
			if len(d) > len(to) {
				t.Fatalf("%d bytes over the limit", len(d)-len(to))
			}
			if got, ok := undelta(from, d); !ok || !bytes.Equal(got, to) {
				t.Fatalf("the delta gives something else")
			}
		}
	})
}

// undelta follows gitformat-pack(5).
func undelta(from, d []byte) (out []byte, ok bool) {
	varint := func() (n int) {
		for shift := 0; ; shift += 7 {
			c := d[0]
			d = d[1:]
			n |= int(c&0x7f) << shift
			if c < 0x80 {
				return n
			}
		}
	}
	source, target := varint(), varint()
	for len(d) > 0 {
		op := d[0]
		d = d[1:]
		if op < 0x80 {
			out = append(out, d[:op]...)
			d = d[op:]
			continue
		}
		var v [7]int
		for bit := range v {
			if op>>bit&1 != 0 {
				v[bit] = int(d[0])
				d = d[1:]
			}
		}
		at, n := v[0]|v[1]<<8|v[2]<<16|v[3]<<24, v[4]|v[5]<<8|v[6]<<16
		if n == 0 {
			n = 1 << 16
		}
		out = append(out, from[at:at+n]...)
	}
	return out, source == len(from) && target == len(out)
}

// TestCommonLines holds the ends that are found by bytes against those found
// line by line.
func TestCommonLines(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	text := func(n int) []byte {
		var out []byte
		for range n {
			out = append(out, "\n\nab"[r.IntN(4)])
		}
		return out
	}
	for range 20_000 {
		head, tail := text(r.IntN(24)), text(r.IntN(24))
		old := slices.Concat(head, text(r.IntN(6)), tail)
		now := slices.Concat(head, text(r.IntN(6)), tail)
		if r.IntN(4) == 0 {
			now = now[:r.IntN(len(now)+1)]
		}
		var table Table
		a, b := table.Cut(old), table.Cut(now)
		wantHead, wantTail := commonEnds(a, b)
		a.ids, b.ids = nil, nil
		if gotHead, gotTail := commonLines(a, b); gotHead != wantHead || gotTail != wantTail {
			t.Fatalf("%q and %q have %d and %d lines in common, not %d and %d", old, now, wantHead, wantTail, gotHead, gotTail)
		}
		if n := a.Len(); n > 2 {
			x := a.Sub(1, n)
			y := table.Cut(old).Sub(1, n)
			y.ids = nil
			if gotHead, gotTail := commonLines(x, y); gotHead != n-1 || gotTail != 0 {
				t.Fatalf("a part of %q and itself have %d and %d lines in common", old, gotHead, gotTail)
			}
		}
	}
}
