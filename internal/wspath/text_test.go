package wspath

import (
	"encoding/json"
	"testing"
)

func TestText(t *testing.T) {
	for _, p := range []string{"", "a", "\n\u00e9/\u2028", "a\xffb", "\xff", "\xc3/\\xff\"", "\"a\""} {
		raw, err := json.Marshal(Text(p))
		var back string
		if err == nil {
			err = json.Unmarshal(raw, &back)
		}
		if got := OfText(back); err != nil || got != p {
			t.Errorf("%q: %q %v", p, got, err)
		}
	}
}
