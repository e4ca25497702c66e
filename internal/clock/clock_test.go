package clock

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"umbra/internal/need"
)

func TestWatch(t *testing.T) {
	wall, boot := time.Unix(1_700_000_000, 0), time.Duration(0)
	w := NewWatch(func() time.Time { return wall }, func() time.Duration { return boot })
	pass := func(d time.Duration) { wall, boot = wall.Add(d), boot+d }
	for _, c := range []struct {
		name    string
		elapsed time.Duration
		set     time.Duration
		step    time.Duration
	}{
		{"a day passes", 24 * time.Hour, 0, 0},
		{"a slew", time.Hour, 4 * time.Minute, 0},
		{"ten years ahead", time.Hour, 10 * 365 * 24 * time.Hour, 10*365*24*time.Hour + 4*time.Minute},
		{"right again", time.Hour, -10 * 365 * 24 * time.Hour, 0},
		{"an hour back", time.Hour, -time.Hour, -56 * time.Minute},
	} {
		pass(c.elapsed)
		wall = wall.Add(c.set)
		if got := w.Step(); got != c.step {
			t.Errorf("%s: a step of %v, not %v", c.name, got, c.step)
		}
	}
	if got := w.Elapsed(); got != 28*time.Hour {
		t.Errorf("%v elapsed", got)
	}
}

func TestBootGoesForward(t *testing.T) {
	before := Boot()
	for range 1000 {
		now := Boot()
		if now < before {
			t.Fatalf("%v after %v", now, before)
		}
		before = now
	}
}

// A file that was made after a moment is not older than that moment less FileLag.
func TestFileLag(t *testing.T) {
	dir := t.TempDir()
	for i := range 50 {
		from := time.Now().Add(-FileLag())
		name := filepath.Join(dir, strconv.Itoa(i))
		need.NoError(t, os.WriteFile(name, nil, 0o600))
		info, err := os.Stat(name)
		need.NoError(t, err)
		if info.ModTime().Before(from) {
			t.Fatalf("the file's time %v is before %v", info.ModTime(), from)
		}
	}
}
