package claims

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func ids(v Verdict) string {
	if v.Call != nil {
		return v.Call.ID
	}
	var out []string
	for _, c := range v.Claimants {
		out = append(out, c.ID)
	}
	return strings.Join(out, "+")
}

func TestRules(t *testing.T) {
	shell := func(id string) *Call { return &Call{ID: id} }
	edit := func(id string, paths ...string) *Call {
		c := &Call{ID: id, OnlyPaths: true, Paths: map[string]string{}}
		for _, p := range paths {
			path, sum, _ := strings.Cut(p, "=")
			c.Paths[path] = sum
		}
		return c
	}
	for _, x := range []struct {
		name      string
		open      []*Call
		found     Found
		owner     string
		certainty Certainty
	}{
		{"nobody", nil, Found{Path: "a"}, "", ""},
		{"one shell", []*Call{shell("s")}, Found{Path: "a"}, "s", Window},
		{"two shells", []*Call{shell("s"), shell("t")}, Found{Path: "a"}, "s+t", Shared},
		{"an edit and a shell", []*Call{shell("s"), edit("e", "a")}, Found{Path: "a"}, "e", Declared},
		{"beside the edit's path", []*Call{shell("s"), edit("e", "a")}, Found{Path: "b"}, "s", Window},
		{"only an edit of another path", []*Call{edit("e", "a")}, Found{Path: "b"}, "", ""},
		{"two edits", []*Call{edit("e", "a"), edit("f", "a")}, Found{Path: "a"}, "e+f", Shared},
		{"two edits and a shell", []*Call{edit("e", "a"), shell("s"), edit("f", "a")}, Found{Path: "a"}, "e+s+f", Shared},
		{"two edits, one content", []*Call{edit("e", "a=1"), edit("f", "a=2")}, Found{Path: "a", Sum: "2"}, "f", Exact},
		{"two edits, the same content", []*Call{edit("e", "a=1"), edit("f", "a=1")}, Found{Path: "a", Sum: "1"}, "e+f", Shared},
		{"another content", []*Call{edit("e", "a=1")}, Found{Path: "a", Sum: "2"}, "e", Declared},
		{"deleted", []*Call{edit("e", "a=1")}, Found{Path: "a"}, "e", Declared},
		{"a layer", []*Call{{ID: "l", Layer: true}}, Found{Path: "a"}, "", ""},
		{"a layer and a shell", []*Call{{ID: "l", Layer: true, Paths: map[string]string{"a": ""}}, shell("s")}, Found{Path: "a"}, "s", Window},
	} {
		b := &Book{}
		for _, c := range x.open {
			b.Begin(c)
		}
		if v := b.Judge(x.found); ids(v) != x.owner || v.Certainty != x.certainty {
			t.Errorf("%s: %q %q, want %q %q", x.name, ids(v), v.Certainty, x.owner, x.certainty)
		}
	}
}

// What no event told of may be as old as the last scan.
func TestUntold(t *testing.T) {
	b := &Book{}
	b.Begin(&Call{ID: "a"})
	mark := b.Scanning()
	b.Scanned(mark)
	if v := b.Judge(Found{Path: "f", Unreported: true}); ids(v) != "a" {
		t.Errorf("open since before the scan: %q", ids(v))
	}
	b.Begin(&Call{ID: "b"})
	b.End("b")
	if v := b.Judge(Found{Path: "f", Unreported: true}); ids(v) != "a+b" {
		t.Errorf("one that ended since the scan: %q", ids(v))
	}
	if v := b.Judge(Found{Path: "f"}); ids(v) != "a" {
		t.Errorf("reported: %q", ids(v))
	}
	b.Scanned(b.Scanning())
	if v := b.Judge(Found{Path: "f", Unreported: true}); ids(v) != "a" {
		t.Errorf("after another scan: %q", ids(v))
	}
	b.End("a")
	b.Begin(&Call{ID: "c"})
	b.Scanned(mark)
	if v := b.Judge(Found{Path: "f", Unreported: true}); v.Call != nil {
		t.Errorf("one that was not open all the while: %q", ids(v))
	}
}

// A call whose command goes into a layer is a candidate for what it may have made
// before, and for nothing after.
func TestLayerOfAnOpenCall(t *testing.T) {
	b := &Book{}
	b.Begin(&Call{ID: "a"})
	b.Scanned(b.Scanning())
	b.Layer("a", true)
	b.Begin(&Call{ID: "b"})
	if v := b.Judge(Found{Path: "f"}); ids(v) != "b" {
		t.Errorf("reported: %q", ids(v))
	}
	if v := b.Judge(Found{Path: "f", Unreported: true}); ids(v) != "a+b" {
		t.Errorf("as old as the scan: %q", ids(v))
	}
	b.Scanned(b.Scanning())
	if v := b.Judge(Found{Path: "f", Unreported: true}); ids(v) != "b" {
		t.Errorf("after another scan: %q", ids(v))
	}
	b.End("b")
	b.Layer("a", false)
	if v := b.Judge(Found{Path: "f"}); ids(v) != "a" {
		t.Errorf("without the layer again: %q", ids(v))
	}
	if v := b.Judge(Found{Path: "f", Unreported: true}); v.Call != nil {
		t.Errorf("as old as the layer: %q", ids(v))
	}
}

func TestDeclareAtTheEnd(t *testing.T) {
	b := &Book{}
	b.Begin(&Call{ID: "a", Paths: map[string]string{"x": ""}})
	b.Begin(&Call{ID: "b"})
	b.Declare("a", map[string]string{"y": "sha256:1"})
	for _, p := range []string{"x", "y"} {
		if v := b.Judge(Found{Path: p}); ids(v) != "a" || v.Certainty != Declared {
			t.Errorf("%s: %q %s", p, ids(v), v.Certainty)
		}
	}
	b.End("a")
	if v := b.Judge(Found{Path: "x"}); ids(v) != "b" {
		t.Errorf("after its end: %q", ids(v))
	}
}

// Random calls and changes: nothing is given to one that was not open, and
// nothing to one alone while another could have made it too.
func TestNeverGuesses(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := &Book{}
		open := map[string]*Call{}
		for i := range 30 {
			switch r.IntN(3) {
			case 0:
				c := &Call{ID: string(rune('a' + i)), OnlyPaths: r.IntN(2) == 0, Layer: r.IntN(8) == 0, Paths: map[string]string{}}
				for range r.IntN(3) {
					c.Paths[string(rune('0'+r.IntN(4)))] = ""
				}
				b.Begin(c)
				open[c.ID] = c
			case 1:
				for id := range open {
					b.End(id)
					delete(open, id)
					break
				}
			default:
				p := string(rune('0' + r.IntN(4)))
				v := b.Judge(Found{Path: p})
				var able, declared int
				for _, c := range open {
					if c.couldMake(p) {
						able++
						if c.declares(p) {
							declared++
						}
					}
				}
				switch {
				case v.Call != nil && (open[v.Call.ID] == nil || v.Call.Layer):
					t.Fatalf("given to %s, which was not open", v.Call.ID)
				case v.Certainty == Window && able != 1, v.Certainty == Declared && declared != 1,
					v.Certainty == Shared && (len(v.Claimants) != able || declared == 1), v.Certainty == "" && able != 0:
					t.Fatalf("%q of %d, %d declared", v.Certainty, able, declared)
				}
			}
		}
	}
}
