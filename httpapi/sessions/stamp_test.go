package sessions

import (
	"testing"
	"time"
)

func TestStamp(t *testing.T) {
	zone := time.FixedZone("", -5*3600)
	for _, x := range []time.Time{{}, time.Unix(0, 0), time.Unix(0, 999_999), time.Unix(1_700_000_000, 7_000_000), time.Unix(1_700_000_000, 89_999_999),
		time.Unix(-1, 999_999_999), time.Date(2026, 2, 28, 23, 59, 59, 999_000_000, zone), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)} {
		if got, want := stamp(x), x.UTC().Format("2006-01-02T15:04:05.000Z"); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}
