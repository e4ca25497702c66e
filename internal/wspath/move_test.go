package wspath

import (
	"slices"
	"testing"
)

func TestMove(t *testing.T) {
	m := Move{From: "d/e", To: "f"}
	for p, want := range map[Path]Path{"d/e": "f", "d/e/x/y": "f/x/y", "d": "", "d/ex": "", "f": ""} {
		if at, ok := m.Follow(p); at != want || ok != (want != "") {
			t.Errorf("%s comes to %s, %v", p, at, ok)
		}
	}
	if was, ok := m.Back().Follow("f/x"); was != "d/e/x" || !ok {
		t.Errorf("f/x was %s, %v", was, ok)
	}
	both := []Move{{"d", "g"}, {"d/e", "f"}}
	for p, want := range map[Path]Path{"d/x": "g/x", "d/e": "f", "d/e/x": "f/x", "x": ""} {
		if at, ok := Moved(both, p); at != want || ok != (want != "") {
			t.Errorf("of two, %s comes to %s, %v", p, at, ok)
		}
	}
}

func TestNetMoves(t *testing.T) {
	for _, c := range []struct{ in, want []Move }{
		{[]Move{{"a", "b"}}, []Move{{"a", "b"}}},
		{[]Move{{"a", "t"}, {"b", "a"}, {"t", "b"}}, []Move{{"a", "b"}, {"b", "a"}}},
		{[]Move{{"a", "t"}, {"t", "a"}}, nil},
		{[]Move{{"d", "e"}, {"e/s", "s"}}, []Move{{"d", "e"}, {"d/s", "s"}}},
		{[]Move{{"d/sub", "t"}, {"d", "t/d"}, {"t", "d"}}, []Move{{"d/sub", "d"}, {"d", "d/d"}}},
	} {
		if got := NetMoves(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.in, got, c.want)
		}
	}
}
