package room

import (
	"errors"
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/need"
)

// disk is a file system of a test.
type disk struct {
	free, total int64
	err         error
	asked       int
	at          time.Time
}

func (d *disk) floor(bytes int64) *Floor {
	return &Floor{floor: bytes, now: func() time.Time { return d.at }, ask: func(string) (int64, int64, error) {
		d.asked++
		return d.free, d.total, d.err
	}}
}

func TestFloor(t *testing.T) {
	d := &disk{free: 1000, total: 1 << 40, at: time.Unix(1000, 0)}
	f := d.floor(500)
	for range 4 { // 400 of 500
		need.NoError(t, f.Take(100))
	}
	if d.asked != 1 {
		t.Fatalf("asked %d times within a second, with room to spare", d.asked)
	}
	d.free = 600
	if err := f.Take(100); !errs.Is(err, errs.NoSpace) || errs.CodeOf(err) != "insufficient_storage" || d.asked != 2 {
		t.Fatalf("%v after %d", err, d.asked)
	}
	d.free = 700 // at once, when there is room again
	if err := f.Take(100); err != nil || d.asked != 3 {
		t.Fatalf("%v after %d", err, d.asked)
	}
	d.free, d.at = 0, d.at.Add(time.Second)
	if err := f.Check(); err == nil {
		t.Fatal("a second later nobody looked")
	}
}

func TestFloorAuto(t *testing.T) {
	for _, c := range []struct {
		total, free int64
		ok          bool
	}{{10_000, 101, true}, {10_000, 100, false}, {1 << 50, 256 << 20, false}, {1 << 50, 256<<20 + 1, true}} {
		d := &disk{free: c.free, total: c.total, at: time.Unix(1000, 0)}
		if err := d.floor(Auto).Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestFloorOff(t *testing.T) {
	d := &disk{at: time.Unix(1000, 0)}
	if err := d.floor(0).Take(1 << 40); err != nil || d.asked != 0 {
		t.Error(err, d.asked)
	}
	d.err = errors.New("no such call")
	if err := d.floor(1).Take(1 << 40); err != nil {
		t.Error(err)
	}
	if free, total, err := statfs(t.TempDir()); err != nil || free <= 0 || total < free {
		t.Error(free, total, err)
	}
}
