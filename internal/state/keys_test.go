package state

import (
	"crypto/sha256"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"umbra/internal/need"
)

// TestMarks: the mark of a running request's key is kept exactly if its transaction is.
func TestMarks(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "state.db"))
	need.NoError(t, err)
	defer db.Close()
	a, err := OpenAnswers(db, filepath.Join(t.TempDir(), "answers.log"))
	need.NoError(t, err)
	defer a.Close()
	key, fingerprint := sha256.Sum256([]byte("key")), sha256.Sum256([]byte("request"))
	mark := func(then error) bool {
		t.Helper()
		err := db.Update(func(tx *Tx) error { return errors.Join(tx.Mark("hash"), then) })
		if !errors.Is(err, then) {
			t.Fatal(err)
		}
		got, found, err := a.Answer(key)
		if err != nil || found && (got.Status != 0 || got.Fingerprint != fingerprint) {
			t.Errorf("%+v %v", got, err)
		}
		return found
	}
	if mark(nil) {
		t.Error("no request has the hash, and a key is marked")
	}
	end := a.BeginKey("hash", key, fingerprint, time.Now())
	a.BeginKey("hash", key, fingerprint, time.Now())() // a second run, which ends first
	if mark(errors.New("undone")) {
		t.Error("nothing was done, and the key is marked")
	}
	if !mark(nil) {
		t.Error("the key is not marked")
	}
	rows, err := db.Unmark("hash")
	if err != nil || len(rows) != 2 || rows[0].Value != nil || rows[1].Value != nil {
		t.Errorf("%v %v", rows, err)
	}
	end()
	if rows, err := db.Mark("hash"); len(rows) > 0 || err != nil {
		t.Errorf("after its end: %v %v", rows, err)
	}
	a.now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	need.NoError(t, a.prune())
	a.now = time.Now
	if _, found, err := a.Answer(key); found || err != nil {
		t.Error("a mark is kept for ever")
	}
}
