package displaced

import (
	"testing"
	"time"

	"umbra/internal/vfs"
)

func TestNext(t *testing.T) {
	type look struct {
		at   int // seconds
		open vfs.Writers
		size int64
		want Action
	}
	for name, looks := range map[string][]look{
		"closed":         {{0, vfs.No, 1, Retire}},
		"open, closed":   {{0, vfs.Yes, 1, Wait}, {100, vfs.Yes, 1, Wait}, {101, vfs.No, 2, Retire}},
		"unknown, quiet": {{0, vfs.Unknown, 1, Wait}, {9, vfs.Unknown, 1, Wait}, {10, vfs.Unknown, 1, Record}, {11, vfs.Unknown, 1, Wait}, {59, vfs.Unknown, 1, Wait}, {60, vfs.Unknown, 1, Retire}},
		"unknown, written to late": {{0, vfs.Unknown, 1, Wait}, {10, vfs.Unknown, 1, Record}, {55, vfs.Unknown, 2, Wait}, {60, vfs.Unknown, 2, Wait},
			{65, vfs.Unknown, 2, Retire}},
		"unknown after open": {{0, vfs.Yes, 1, Wait}, {58, vfs.Unknown, 1, Wait}, {62, vfs.Unknown, 1, Wait}, {68, vfs.Unknown, 1, Retire}},
	} {
		w := Begin(0)
		for _, l := range looks {
			got := w.Next(l.open, vfs.Info{Size: l.size}, time.Duration(l.at)*time.Second)
			if got != l.want {
				t.Errorf("%s: at %d s: action %d, want %d", name, l.at, got, l.want)
			}
		}
	}
}
