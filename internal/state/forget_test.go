package state

import (
	"crypto/sha256"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
)

func TestForget(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(filepath.Join(dir, "state.db"))
	need.NoError(t, err)
	defer db.Close()
	a, err := OpenAnswers(db, filepath.Join(dir, "answers.log"))
	need.NoError(t, err)
	defer a.Close()
	key := func(name string) [sha256.Size]byte { return sha256.Sum256([]byte(name)) }
	for _, name := range []string{"old", "other"} {
		need.NoError(t, a.KeepAnswer(key(name), Answer{Status: 200, Body: []byte("commit " + name), At: time.Now()}, false))
	}
	n, err := a.Forget(func(ans *Answer) bool { return strings.HasSuffix(string(ans.Body), " old") })
	if n != 1 || err != nil {
		t.Errorf("forgot %d: %v", n, err)
	}
	if _, ok, err := a.Answer(key("old")); ok || err != nil {
		t.Errorf("it is still given: %v", err)
	}
	if _, ok, err := a.Answer(key("other")); !ok || err != nil {
		t.Errorf("another one went too: %v", err)
	}
}
