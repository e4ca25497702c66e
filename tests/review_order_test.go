package tests

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// newReviewed makes the files and tasks of a round, each in a directory of its own.
func newReviewed(t *testing.T, seed, round uint64) (m *reviewed, base map[string]string) {
	t.Helper()
	m = &reviewed{p: newProject(t, map[string]string{"x": "x\n"}), r: rand.New(rand.NewPCG(seed, round)), tasks: map[string]*taskOf{}}
	return m, m.begin(t)
}

// begin makes two files of lines, and two tasks.
func (m *reviewed) begin(t *testing.T) (base map[string]string) {
	t.Helper()
	base, m.files, m.gone = make(map[string]string), make(map[string][]string), make(map[string]string)
	for _, name := range []string{"f", "g"} {
		for range 12 + m.r.IntN(20) {
			m.files[name] = append(m.files[name], m.line("base"))
		}
		base[name] = strings.Join(m.files[name], "")
	}
	m.p.fill(t, base)
	m.tasks["a"], m.tasks["b"] = m.p.task(t), m.p.task(t)
	m.tasks["a"].sync(t)
	return base
}

// TestReviewOrder makes the same random history twice and decides on the same hunks of
// two tasks, in another order: what is left is the same. Then all of both tasks is
// rejected, in another order as well: what is left is what was there before.
func TestReviewOrder(t *testing.T) {
	rounds, began := uint64(25), time.Now()
	seed := uint64(7)
	if soaking() {
		rounds, seed = 1<<62, uint64(began.UnixNano())
	}
	if n, err := strconv.ParseUint(os.Getenv("UMBRA_SEED"), 10, 64); err == nil {
		seed = n
	}
	type decision struct {
		writer string
		id     string
		accept bool
	}
	same, refused, whole := 0, 0, 0
	first, _ := newReviewed(t, seed, 0)
	second, _ := newReviewed(t, seed, 0)
	for round := uint64(0); round < rounds && (!soaking() || time.Since(began) < 20*time.Minute); round++ {
		both := []*reviewed{first, second}
		var base map[string]string
		var picked []decision
		r := rand.New(rand.NewPCG(seed, round+1))
		steps, apart := 3+r.IntN(12), r.IntN(3) > 0
		for i, m := range both {
			m.r = rand.New(rand.NewPCG(seed, round))
			m.number, m.apart, m.log = int(round)*1000, apart, nil
			base = m.begin(t)
			for range steps {
				m.step(t)
			}
			var list []decision
			for _, writer := range []string{"a", "b"} {
				hunks, _ := m.tasks[writer].hunks(t, "")
				for _, h := range hunks {
					if h.Mixed {
						continue
					}
					list = append(list, decision{writer, h.ID, false})
				}
			}
			if i == 0 {
				picked = list
			} else if !slices.Equal(list, picked) {
				t.Fatalf("seed %d, round %d: the same history has other hunks: %v, %v", seed, round, list, picked)
			}
		}
		picked = slices.DeleteFunc(picked, func(decision) bool { return r.IntN(2) == 0 })
		for i := range picked {
			picked[i].accept = r.IntN(3) == 0
		}
		// One by one, in two orders; what another decision made into another hunk is refused.
		done := [2]map[decision]bool{{}, {}}
		orders := [2][]decision{slices.Clone(picked), slices.Clone(picked)}
		for i := range orders {
			r.Shuffle(len(picked), func(x, y int) { orders[i][x], orders[i][y] = orders[i][y], orders[i][x] })
		}
		for i, m := range both {
			for _, d := range orders[i] {
				body := map[string]any{"reject": []string{d.id}}
				if d.accept {
					body = map[string]any{"accept": []string{d.id}}
				}
				k := m.tasks[d.writer]
				switch a := m.p.post(t, k.url("/review"), body); a.Status {
				case 200:
					done[i][d] = true
				case 409:
				default:
					t.Fatalf("%d %s", a.Status, a.Body)
				}
			}
		}
		text := func(m *reviewed) string {
			out := ""
			for _, name := range m.names() {
				out += fmt.Sprintf("%s: %q\n", name, strings.Join(m.disk(t, name), ""))
			}
			return out
		}
		if maps.Equal(done[0], done[1]) {
			same++
			if x, y := text(first), text(second); x != y {
				t.Fatalf("seed %d, round %d: %v gives\n%s%v gives\n%s%s", seed, round, orders[0], x, orders[1], y, strings.Join(first.log, "\n"))
			}
		} else {
			refused++
		}
		// All of both.
		orderly := true
		for i, m := range both {
			writers := []string{"a", "b"}
			if i == 1 {
				slices.Reverse(writers)
			}
			for _, writer := range writers {
				k := m.tasks[writer]
				hunks, _ := k.hunks(t, "")
				var ids []string
				for _, h := range hunks {
					ids, orderly = append(ids, h.ID), orderly && !h.Mixed
				}
				if !orderly {
					break
				}
				m.p.post(t, k.url("/review"), map[string]any{"reject": ids, "reject_rest": true}).want(t, 200)
			}
			if orderly {
				whole++
				for name, want := range base {
					if got := strings.Join(m.disk(t, name), ""); got != want {
						t.Fatalf("seed %d, round %d: all rejected in the order %v, %s is %q, was %q\n%v\n%s", seed, round, writers, name, got, want, orders[i], strings.Join(m.log, "\n"))
					}
				}
			}
			orderly = true
		}
		for _, m := range both {
			for _, k := range m.tasks {
				m.p.call(t, "PATCH", k.url(""), map[string]any{"status": "completed"}).want(t, 200)
			}
			for name := range m.files {
				if err := os.Remove(m.p.dir + "/" + name); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
		}
	}
	t.Logf("%d rounds gave the same in two orders, in %d another decision was refused; %d times all was rejected", same, refused, whole)
	if os.Getenv("UMBRA_SEED") == "" && (same < 10 || whole < 10) {
		t.Error("too little was tried")
	}
}
