package httpapi

import (
	"strings"
	"testing"
)

func TestValidActor(t *testing.T) {
	for s, want := range map[string]bool{"claude": true, "Jörg 張": true, "": false, " ": false, "a<b": false, "a>b": false, "a\n": false,
		"a\x00": false, "a\u2028": false, "a\u202e": false, "\xff": false, strings.Repeat("ü", 128): true,
		strings.Repeat("ü", 129): false} {
		if ValidActor(s) != want {
			t.Errorf("ValidActor(%q) is not %v", s, want)
		}
	}
}
