package revert

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestWeave writes random versions of a file by two writers, of whom one now and then
// takes some of its own work back, as a reviewer who rejects hunks does, in any place that
// the order of the lines allows. No two lines are equal, so that it is known of each
// whether it is there without that writer.
func TestWeave(t *testing.T) {
	loosened := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 4))
		var lines []string
		for i := range 4 + r.IntN(6) {
			lines = append(lines, fmt.Sprintf("base %d\n", i))
		}
		// after has the lines that a line was seen above.
		after := make(map[string]map[string]bool)
		see := func() {
			for i, l := range lines {
				if after[l] == nil {
					after[l] = make(map[string]bool)
				}
				for _, x := range lines[i+1:] {
					after[l][x] = true
				}
			}
		}
		see()
		// above reports whether a line is above another one, by what was seen of others
		// between them as well.
		above := func(x, y string) bool {
			known, next := map[string]bool{x: true}, []string{x}
			for len(next) > 0 && !known[y] {
				for z := range after[next[0]] {
					if !known[z] {
						known[z], next = true, append(next, z)
					}
				}
				next = next[1:]
			}
			return known[y]
		}
		without, gone := make(map[string]bool), []string{}
		for _, l := range lines {
			without[l] = true
		}
		w := newWeave([]byte(strings.Join(lines, "")))
		var log []string
		for number := range 3 + r.IntN(8) {
			mine, before := r.IntN(2) == 0, slices.Clone(lines)
			take := func(at int) {
				l := lines[at]
				if mine && !strings.HasPrefix(l, "mine") {
					gone = append(gone, l)
				}
				without[l] = without[l] && mine
				lines = slices.Delete(lines, at, at+1)
			}
			if mine && len(gone) > 0 && r.IntN(2) == 0 {
				k := r.IntN(len(gone))
				l := gone[k]
				low, high := 0, len(lines)
				for i, x := range lines {
					if above(x, l) {
						low = i + 1
					}
					if above(l, x) {
						high = min(high, i)
					}
				}
				if low > high {
					continue
				}
				lines = slices.Insert(lines, low+r.IntN(high-low+1), l)
				gone = slices.Delete(gone, k, k+1)
			} else {
				for i := range 1 + r.IntN(2) {
					at := r.IntN(len(lines) + 1)
					what := r.IntN(3)
					if what > 0 && at < len(lines) && slices.Contains(before, lines[at]) {
						take(at)
					}
					if what < 2 {
						l := fmt.Sprintf("%s %d.%d\n", map[bool]string{true: "mine", false: "other"}[mine], number, i)
						without[l] = !mine
						lines = slices.Insert(lines, at, l)
					}
				}
			}
			see()
			w.next([]byte(strings.Join(lines, "")), mine)
			log = append(log, fmt.Sprintf("%t: %q", mine, lines))
		}
		got := slices.Collect(strings.Lines(string(w.text())))
		for _, l := range got {
			if !without[l] {
				t.Fatalf("seed %d: %q is the undone work's: %q\n%s", seed, l, got, strings.Join(log, "\n"))
			}
			delete(without, l)
		}
		for l, is := range without {
			if is {
				t.Fatalf("seed %d: %q is missing: %q\n%s", seed, l, got, strings.Join(log, "\n"))
			}
		}
		both := func(a, b []string) []string {
			return slices.DeleteFunc(slices.Clone(a), func(l string) bool { return !slices.Contains(b, l) })
		}
		if x, y := both(got, lines), both(lines, got); !slices.Equal(x, y) {
			t.Fatalf("seed %d: the order is %q, not %q\n%s", seed, x, y, strings.Join(log, "\n"))
		}
		if !bytes.Equal(w.text(), []byte(strings.Join(lines, ""))) {
			loosened++
		}
	}
	if loosened < 1000 {
		t.Errorf("only %d texts differ from the newest", loosened)
	}
}

// BenchmarkWeaveRewritten follows a file of which each version has other lines, as after a
// change of all line ends or of the indentation.
func BenchmarkWeaveRewritten(b *testing.B) {
	var versions [4][]byte
	for v := range versions {
		for i := range 20_000 {
			versions[v] = fmt.Appendf(versions[v], "line %d of version %d\n", i, v)
		}
	}
	for b.Loop() {
		w := newWeave(versions[0])
		for v, text := range versions[1:] {
			w.next(text, v%2 == 0)
		}
	}
}

// TestBroughtBackNextToDeleted reverts a task that deleted a line next to one that it
// changed, and brought it back after another had changed the file. A third task deletes
// that line: it does not come back, also where changes that touch could not be merged.
func TestBroughtBackNextToDeleted(t *testing.T) {
	const base = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	for name, own := range map[string]string{"one line": "of a", "two lines": `of a\nand a`} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, map[string]string{"f": base})
			for _, id := range []string{"a", "b", "c"} {
				g.task(id)
			}
			g.do("a", `put f 1\n2\n3\n`+own+`\n5\n6\n7\n8\n9\n`, `put f 1\n2\n`+own+`\n5\n6\n7\n8\n9\n`)
			g.do("c", `put f 1\n2\n`+own+`\n5\n6\n7\n8\nof c\n`)
			g.do("a", `put f 1\n2\n3\n`+own+`\n5\n6\n7\n8\nof c\n`)
			g.do("b", `put f 1\n2\nof b\n`+own+`\n5\n6\n7\n8\nof c\n`, `put f 1\n2\n`+own+`\n5\n6\n7\n8\nof c\n`)
			g.mustRevert(Request{Task: "a"})
			if got := g.disk()["f"]; got != "1\n2\n4\n5\n6\n7\n8\nof c\n" {
				t.Errorf("%q", got)
			}
		})
	}
}
