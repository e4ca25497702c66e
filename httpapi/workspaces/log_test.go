package workspaces

import (
	"testing"

	"umbra/internal/task"
)

// A cursor comes from outside: whatever it is, it is refused or is a place.
func FuzzParsePlace(f *testing.F) {
	for _, seed := range []string{"", "!", formatPlace(task.Place{Seq: 1}), formatPlace(task.Place{Seq: 1 << 62, Entry: 7}), "MS4tMQ", "MC4x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePlace(s)
		if err != nil {
			return
		}
		if again, err := parsePlace(formatPlace(p)); err != nil || again != p {
			t.Errorf("%q: %+v, then %+v, %v", s, p, again, err)
		}
	})
}
