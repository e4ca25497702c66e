package hunkwise

import (
	"bytes"
	"strings"
	"testing"
)

func TestAsk(t *testing.T) {
	hunks := func() []Hunk {
		return []Hunk{{ID: "1", Path: "a", Text: "one\n", By: "x", Parts: []Hunk{{ID: "1a", Text: "first\n"}, {ID: "1b", Text: "second\n"}}}, {ID: "2", Path: "a", Text: "two\n"},
			{ID: "3", Path: "b", Text: "three\n", Mixed: true}, {ID: "4", Path: "b", Text: "four\n"}}
	}
	for _, x := range []struct{ keys, accept, reject, says string }{
		{"", "", "", "(1/4) Accept this hunk [y,n,q,a,d,j,k,s,?]? "},
		{"y n y n", "1 3", "2 4", ""},
		{"y q", "1", "", ""},
		{"a y y", "1 2 3 4", "", ""},
		{"d q", "", "1 2", ""},
		{"j k y q", "1", "", ""},
		{"k q", "", "", "No earlier hunk is undecided."},
		{"j j j j q", "", "", "No later hunk is undecided."},
		{"s y n q", "1a", "1b", "Split into 2 hunks.\na  (x)\nfirst\n(1/5) "},
		{"j s q", "", "", "This hunk cannot be split."},
		{"? q", "", "", "q - quit"},
		{"what q", "", "", "q - quit"},
		{"j j n q", "", "", "cannot be rejected alone"},
		{"j j d", "", "4", ""},
		{"j y y q", "2 3", "", "(4/4)"},
		{"y y j y", "1 2 4", "", "(3/4)"}, // back to what was left
	} {
		var out bytes.Buffer
		a, err := Ask(strings.NewReader(strings.ReplaceAll(x.keys, " ", "\n")+"\n"), &out, hunks(), func(text string) error { _, err := out.WriteString(text); return err })
		if err != nil || strings.Join(a.Accept, " ") != x.accept || strings.Join(a.Reject, " ") != x.reject || !strings.Contains(out.String(), x.says) {
			t.Errorf("%q: %v %v\n%s", x.keys, a, err, out.String())
		}
	}
}
