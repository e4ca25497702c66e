package state

import (
	"crypto/sha256"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestForget(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	a, err := OpenAnswers(db, filepath.Join(dir, "answers.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	key := func(name string) [sha256.Size]byte { return sha256.Sum256([]byte(name)) }
	for _, name := range []string{"old", "other"} {
		if err := a.KeepAnswer(key(name), Answer{Status: 200, Body: []byte("commit " + name), At: time.Now()}, false); err != nil {
			t.Fatal(err)
		}
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
