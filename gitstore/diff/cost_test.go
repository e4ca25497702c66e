package diff

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
)

// hard gives pairs of texts that are known to cost a search most.
func hard(lines int) map[string][2][]byte {
	r := rand.New(rand.NewPCG(3, 3))
	text := func(n int, line func(i int) string) []byte {
		var b bytes.Buffer
		for i := range n {
			b.WriteString(line(i))
			b.WriteByte('\n')
		}
		return b.Bytes()
	}
	word := func(words int) func(int) string {
		return func(int) string { return strconv.Itoa(r.IntN(words)) }
	}
	number := func(i int) string { return "line " + strconv.Itoa(i) }
	perm := r.Perm(lines)
	return map[string][2][]byte{
		"rewritten":   {text(lines, number), text(lines, func(i int) string { return "other " + strconv.Itoa(i) })},
		"all equal":   {text(lines, func(int) string { return "" }), text(lines/2, func(int) string { return "" })},
		"reversed":    {text(lines, number), text(lines, func(i int) string { return number(lines - 1 - i) })},
		"shuffled":    {text(lines, number), text(lines, func(i int) string { return number(perm[i]) })},
		"alternating": {text(lines, func(i int) string { return "ab"[i%2 : i%2+1] }), text(lines, func(i int) string { return "ba"[i/2%2 : i/2%2+1] })},
		"two words":   {text(lines, word(2)), text(lines, word(2))},
		"ten words":   {text(lines, word(10)), text(lines, word(10))},
		"many words":  {text(lines, word(lines/4)), text(lines, word(lines/4))},
		"interleaved": {text(lines, func(i int) string { return number(i / 2 * (i % 2)) }), text(lines, func(i int) string { return number(i / 3 * (i % 3)) })},
		"odd lines":   {text(lines, number), text(lines, func(i int) string { return number(i + i%2*lines) })},
	}
}

// TestCostIsBounded counts steps, not seconds.
func TestCostIsBounded(t *testing.T) {
	t.Parallel()
	for _, lines := range []int{1000, 30_000, 200_000} {
		for name, texts := range hard(lines) {
			const limit = 1 << 21
			a, b, changes, w := compare(texts[0], texts[1], limit)
			check(t, a, b, changes)
			// One round of the search may still go over: as wide as the box.
			if most := int64(limit + 8*lines); w.Spent > most {
				t.Errorf("%s, %d lines: %d steps", name, lines, w.Spent)
			}
			if lines == 1000 && w.Coarse {
				t.Errorf("%s: a thousand lines are coarse", name)
			}
		}
	}
}

// TestSlideIsBounded counts the moves of the blocks.
func TestSlideIsBounded(t *testing.T) {
	t.Parallel()
	for name, texts := range hard(20_000) {
		var table Table
		a, b := table.Cut(texts[0]), table.Cut(texts[1])
		x, y := newSide(a.ids), newSide(b.ids)
		x.mark(0, a.Len()/2)
		y.mark(0, b.Len()-(a.Len()-a.Len()/2))
		bx, by := firstBlock(x), firstBlock(y)
		const left = 50_000
		if moves := settle(&bx, &by, left); moves > left+4*20_000 {
			t.Errorf("%s: %d moves", name, moves)
		}
	}
}

func BenchmarkFormat(b *testing.B) {
	run := func(name string, old, new []byte) {
		from := File{Path: "f", Mode: 0o100644, Data: old}.identified()
		to := File{Path: "f", Mode: 0o100644, Data: new}.identified()
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(old) + len(new)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Format(from, to, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	text := func(lines, every int) (old, new []byte) {
		for i := range lines {
			line := fmt.Appendf(nil, "this is line %d of a text\n", i)
			old = append(old, line...)
			if i%every == every/2 {
				new = append(new, "edited "...)
			}
			new = append(new, line...)
		}
		return old, new
	}
	old, new := text(40, 40)
	run("1KB", old, new)
	old, new = text(10_000, 1)
	run("10k-lines-rewritten", old, new)
	old, new = text(100_000, 100)
	run("100k-lines", old, new)
	old, new = text(170_000, 5)
	run("5MB", old, new)
	r := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 5<<20)
	r.Read(noise)
	noise[0] = 0
	run("5MB-binary-edited", noise, append(append([]byte{0}, noise[100:1<<20]...), noise[1<<20:]...))
	other := make([]byte, 5<<20)
	r.Read(other)
	run("5MB-binary-new", noise, other)
	for name, texts := range hard(10_000) {
		run("hard-10k/"+name, texts[0], texts[1])
	}
	for name, texts := range hard(500_000) {
		run("hard-500k/"+name, texts[0], texts[1])
	}
	run("5MB-of-newlines", bytes.Repeat([]byte("\n"), 5<<20), bytes.Repeat([]byte("\n"), 5<<20-7))
	short := func() []byte {
		out := make([]byte, 5<<20)
		r.Read(out)
		for i := range out {
			out[i] = "\n\nab\n\nba"[out[i]&7]
		}
		return out
	}
	run("5MB-of-short-lines", short(), short())
}
