package revert

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"umbra/gitstore/message"
)

// lineWriter changes files at random; no two lines are equal.
type lineWriter struct {
	r      *rand.Rand
	number int
	apart  bool
	log    []string
}

func (x *lineWriter) step(g *rig) {
	g.t.Helper()
	who := []string{"a", "b"}[x.r.IntN(2)]
	files := g.disk()
	names := slices.Sorted(maps.Keys(files))
	x.number++
	own := fmt.Sprintf("%s%d", who, x.number)
	switch n := x.r.IntN(12); {
	case n == 0 || len(names) == 0:
		line := "put " + own + " " + own + `\n`
		x.log = append(x.log, who+": "+line)
		g.do(who, line)
		return
	case n == 1 && len(names) > 2:
		line := "del " + names[x.r.IntN(len(names))]
		x.log = append(x.log, who+": "+line)
		g.do(who, line)
		return
	}
	name := names[x.r.IntN(len(names))]
	lines := slices.Collect(strings.Lines(strings.TrimPrefix(files[name], "*")))
	for range 1 + x.r.IntN(3) {
		at := x.r.IntN(len(lines) + 1)
		if x.apart {
			at = min(len(lines), at/4*4+map[string]int{"a": 0, "b": 2}[who])
		}
		what := x.r.IntN(3)
		if what > 0 && at < len(lines) {
			lines = slices.Delete(lines, at, at+1)
		}
		if what < 2 {
			x.number++
			lines = slices.Insert(lines, at, fmt.Sprintf("%s%d\n", who, x.number))
		}
	}
	line := "put " + name + " " + strings.ReplaceAll(strings.Join(lines, ""), "\n", `\n`)
	x.log = append(x.log, who+": "+line)
	g.do(who, line)
}

// all reverts tasks in an order, until nothing is left of them to undo; false if others'
// work is in the way of one.
func (g *rig) all(tasks ...string) (done []*Result, ok bool) {
	g.t.Helper()
	for again := true; again; {
		again = false
		for _, task := range tasks {
			res, err := g.revert(Request{Task: task})
			if codeOf(err) == "revert_conflict" {
				return done, false
			}
			if err != nil {
				g.t.Fatal(err)
			}
			if !res.Commit.IsZero() {
				done, again = append(done, res), true
			}
		}
	}
	return done, true
}

// TestOrderOfReverts makes the same random history in several workspaces and reverts two
// tasks in either order: what is left is the same, and what was there before. What a
// revert of the first of these reverts brings back is what the other's revert alone
// leaves.
func TestOrderOfReverts(t *testing.T) {
	rounds, seed := uint64(40), uint64(3)
	if n, err := strconv.ParseUint(os.Getenv("UMBRA_SEED"), 10, 64); err == nil {
		rounds, seed = 400, n
	}
	if testing.Short() {
		rounds = 15
	}
	same, back := 0, 0
	for round := range rounds {
		base := map[string]string{}
		for _, name := range []string{"f", "g"} {
			base[name] = ""
			for i := range 24 {
				base[name] += fmt.Sprintf("%s%d\n", name, i)
			}
		}
		made := func() (*rig, *lineWriter) {
			g := newRig(t, base)
			g.task("a")
			g.task("b")
			x := &lineWriter{r: rand.New(rand.NewPCG(seed, round))}
			x.apart = x.r.IntN(2) == 0
			for range 2 + x.r.IntN(8) {
				x.step(g)
			}
			return g, x
		}
		g, x := made()
		first, ok := g.all("a", "b")
		h, _ := made()
		_, and := h.all("b", "a")
		if ok && and {
			same++
			if one, other := g.disk(), h.disk(); !maps.Equal(one, other) || !maps.Equal(one, base) {
				t.Errorf("seed %d, round %d: a then b leaves %s, b then a %s\n%s", seed, round, show(one), show(other), strings.Join(x.log, "\n"))
			}
		}
		if ok && len(first) == 2 {
			res, err := g.revert(Request{Scope: Scope{Commit: &Commit{ID: first[0].Commit.String(), Seq: first[0].Seq, Source: message.Revert}}})
			i, _ := made()
			if _, alone := i.all("b"); alone && err == nil && !res.Commit.IsZero() {
				back++
				if one, other := g.disk(), i.disk(); !maps.Equal(one, other) {
					t.Errorf("seed %d, round %d: a then b, and a brought back: %s, b alone: %s\n%s", seed, round, show(one), show(other), strings.Join(x.log, "\n"))
				}
			}
		}
	}
	t.Logf("%d rounds were the same, %d after one was brought back", same, back)
	if same < int(rounds)/4 || back < int(rounds)/8 {
		t.Error("too little was tried")
	}
}
