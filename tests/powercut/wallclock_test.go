//go:build linux

package powercut

import (
	"net/http"
	"testing"
	"time"

	"umbra/tests/harness"
)

// The clock of a server is another than that of the machine, from one moment to
// the next: the schedules rely on that.
func TestWallClock(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	c := harness.NewWallClock(t, s.PID())
	for _, d := range []time.Duration{0, 10 * 365 * 24 * time.Hour, -time.Hour, 0} {
		c.Set(d)
		date, err := http.ParseTime(s.Do("GET", "/healthz", nil).Expect(200).Header.Get("Date"))
		if off := time.Until(date) - d; err != nil || off.Abs() > 5*time.Second {
			t.Errorf("set by %v, the server's clock is off by %v (%v)", d, time.Until(date), err)
		}
	}
}
