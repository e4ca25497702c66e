package records

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"umbra/gitstore/message"
)

// TestMayTouch has commits of all sizes: each path of an entry may have been touched,
// before and after a rename. Of other paths most were not.
func TestMayTouch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	name := func() string { return fmt.Sprintf("dir%d/file%d", r.IntN(9), r.IntN(400)) }
	passed, asked := 0, 0
	for range 20_000 {
		m := message.Message{Source: message.API}
		named := make(map[string]bool)
		for range r.IntN(9) {
			e := message.Entry{Operation: message.Modify, Path: name()}
			if r.IntN(3) == 0 {
				e.Operation, e.OldPath = message.Rename, name()
				named[e.OldPath] = true
			}
			named[e.Path] = true
			m.Entries = append(m.Entries, e)
		}
		rec := Record{paths: pathFilter(&m)}
		for p := range named {
			if !rec.MayTouch(p) {
				t.Fatalf("%v: %s was not touched", m.Entries, p)
			}
		}
		if len(m.Entries) == 0 || len(m.Entries) > filterPaths {
			continue
		}
		for range 8 {
			if p := name(); !named[p] {
				asked++
				if rec.MayTouch(p) {
					passed++
				}
			}
		}
	}
	// 3.5 entries with 4.7 paths fill about a quarter of the filter.
	if passed*3 > asked {
		t.Errorf("%d of %d other paths pass", passed, asked)
	}
	for _, m := range []message.Message{
		{Source: message.Baseline, Entries: []message.Entry{{Path: "a"}}},
		{Source: message.API, Condensed: true, Entries: []message.Entry{{Path: "a"}}},
		{Source: message.API}, // what it did is not said
	} {
		if rec := (Record{paths: pathFilter(&m)}); !rec.MayTouch("b") {
			t.Errorf("%v %v: does not touch what it does not list", m.Source, m.Entries)
		}
	}
}
