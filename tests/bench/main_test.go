package main

import "testing"

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args  []string
		scale string
		wrong bool
	}{
		{nil, "normal", false},
		{[]string{"-full", "-run", "^write"}, "full", false},
		{[]string{"-quick", "-docs", "x.md"}, "quick", false},
		{[]string{"-quick", "-full"}, "", true},
		{[]string{"-run", "("}, "", true},
		{[]string{"word"}, "", true},
		{[]string{"-unknown"}, "", true},
	} {
		o, err := parse(c.args)
		if (err != nil) != c.wrong || err == nil && o.scale.Name != c.scale {
			t.Errorf("%q: %s, %v", c.args, o.scale.Name, err)
		}
	}
	if o, err := parse([]string{"-quick", "-docs", "x.md"}); err != nil || o.document != "" {
		t.Errorf("a smoke run writes %q (%v)", o.document, err)
	}
}
