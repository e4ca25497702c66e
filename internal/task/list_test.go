package task

import (
	"testing"
	"time"
)

// A cursor comes from outside: whatever it is, it is refused or is a place.
func FuzzParseCursor(f *testing.F) {
	for _, seed := range []string{"", "!", cursor(Record{ID: "a", Created: time.Unix(1, 5)}), "bm9wZQ", "MS9h", "LTEvYQ"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseCursor(s)
		if err != nil || s == "" {
			return
		}
		again, err := parseCursor(cursor(r))
		if err != nil || again.ID != r.ID || !again.Created.Equal(r.Created) {
			t.Errorf("%q: %+v, then %+v, %v", s, r, again, err)
		}
	})
}
