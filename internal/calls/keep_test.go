package calls

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/vfs"
)

// While calls come without a pause, each is written to the database once, the log does
// not grow without end, and a power cut loses none that was answered for.
func TestCallsWithoutAPause(t *testing.T) {
	files := vfs.NewMem(vfs.MemOptions{})
	db, err := state.Open(filepath.Join(t.TempDir(), "state.db"))
	need.NoError(t, err)
	defer db.Close()
	k, err := openKeeper(db, files, logName, func(err error) { t.Error(err) })
	need.NoError(t, err)
	put := func(id string, status Status) {
		t.Helper()
		r := Record{ID: id, Workspace: "w", Task: "t", Status: status, Begun: time.Unix(1, 0), By: By{Command: strings.Repeat("x", maxLog/4)}}
		need.NoError(t, k.put(line{Call: &r}, line{Key: id, Session: &session{Through: 7}}))
		k.mu.Lock()
		k.timer.Stop() // the test flushes
		k.mu.Unlock()
	}
	for round := range 3 {
		for n := range 4 {
			put(fmt.Sprintf("%d-%d", round, n), Open)
		}
		// A flush waits for the database; a call comes meanwhile, and one that is on its way ends.
		held, release, done := make(chan bool), make(chan bool), make(chan error)
		go func() {
			done <- db.Update(func(*state.Tx) error {
				close(held)
				<-release
				return nil
			})
		}()
		<-held
		flushed := make(chan error)
		go func() { flushed <- k.flush() }()
		for moving := false; !moving; runtime.Gosched() {
			k.mu.Lock()
			moving = k.moving.size() > 0
			k.mu.Unlock()
		}
		late := fmt.Sprint("late-", round)
		put(late, Open)
		put(fmt.Sprintf("%d-0", round), OK)
		for _, id := range []string{late, fmt.Sprintf("%d-1", round)} {
			if _, ok, err := k.get(id); !ok || err != nil {
				t.Fatalf("%s: %v %v", id, ok, err)
			}
			if s, err := k.session(id); s.Through != 7 || err != nil {
				t.Fatal(s, err)
			}
			need.NoError(t, k.sync(id))
		}
		close(release)
		need.NoError(t, <-done)
		need.NoError(t, <-flushed)
		if n := len(k.fresh.calls); n != 2 || k.moving.size() != 0 {
			t.Fatalf("%d calls are to be written again", n)
		}
		if k.size > maxLog {
			t.Fatalf("the log has %d bytes", k.size)
		}
		// What is only in the log is there after a power cut.
		files = files.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly})
		if k, err = openKeeper(db, files, logName, func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]Status{late: Open, fmt.Sprintf("%d-0", round): OK, fmt.Sprintf("%d-3", round): Open} {
			if r, ok, err := k.get(id); !ok || err != nil || r.Status != want {
				t.Errorf("%s after a power cut: %v %v %v", id, r.Status, ok, err)
			}
		}
	}
	need.NoError(t, k.close())
}
