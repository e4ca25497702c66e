package gitstore

import (
	"errors"
	"testing"

	"umbra/gitstore/sink"
	"umbra/gitstore/sink/sinktest"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// unchanged is a log that takes no change.
type unchanged struct{ sink.Sink }

var errChanged = errors.New("the log was changed")

func (unchanged) Append(*sink.Group) error { return errChanged }

// TestTake: a directory that takes what a log has is a store without it, with all that was
// answered, whatever of it is sealed.
func TestTake(t *testing.T) {
	for _, keepTail := range []bool{false, true} {
		m := sinktest.NewMemory()
		var sc scenario
		sc.withSink(m)
		if err := sc.play(vfs.NewMem(vfs.MemOptions{})); err != nil || sc.failed > 0 {
			t.Fatalf("%v, %d failed", err, sc.failed)
		}
		if keepTail {
			s := onSink(t, m)
			s.Held().KeepTail()
			n := len(sc.acked)
			files := map[string]string{"tail": "not sealed"}
			for name, content := range sc.files[n-1] {
				files[name] = content
			}
			sc.acked = append(sc.acked, mustPut(t, s, "", "tail", "not sealed").Commit)
			sc.files = append(sc.files, files)
			closeStore(t, s)
			if m.Unsealed() == 0 {
				t.Fatal("all is sealed")
			}
		}
		dir := vfs.NewMem(vfs.MemOptions{})
		f, err := Take(t.Context(), Options{FS: dir, Sink: unchanged{m.Claim()}})
		need.NoError(t, err)
		if n := uint64(len(sc.acked)); f.Tip.Seq != n || f.Tip.Commit != sc.acked[n-1] {
			t.Errorf("the tip is %v, not %d %s", f.Tip, n, sc.acked[n-1])
		}
		dir = dir.CrashClone(vfs.CrashOptions{})
		sc.opt = nil
		sc.check(t, dir, true)
	}
}
