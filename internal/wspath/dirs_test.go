package wspath

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// A walk over a plain map is the oracle.
func TestDirs(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	var d Dirs[int]
	want := map[Path]int{}
	for step := range 5000 {
		p := Root
		for range rnd.IntN(5) {
			p = p.Join(string(rune('a' + rnd.IntN(3))))
		}
		switch rnd.IntN(6) {
		case 0:
			d.Delete(p)
			delete(want, p)
		case 1:
			cut := d.Cut(p)
			below := map[Path]int{}
			for dir, v := range want {
				if dir.Within(p) {
					below[dir] = v
					delete(want, dir)
				}
			}
			if !maps.Equal(cut, below) {
				t.Fatalf("step %d: cut %v below %q, want %v", step, cut, p, below)
			}
		default:
			d.Put(p, step)
			want[p] = step
		}
		if !maps.Equal(d.All(), want) || d.Len() != len(want) || d.Get(p) != want[p] {
			t.Fatalf("step %d: %v, want %v", step, d.All(), want)
		}
	}
	if d.Cut(Root); d.Len() > 0 || len(d.subs) > 0 {
		t.Errorf("left: %v, %v", d.m, d.subs)
	}
}
