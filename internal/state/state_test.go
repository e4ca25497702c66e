package state

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"umbra/internal/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type record struct{ A, B string }

func open(t *testing.T, dir string) *DB {
	t.Helper()
	db, err := Open(filepath.Join(dir, "state.db"))
	need.NoError(t, err)
	return db
}

func TestRecordsOutliveTheStore(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	for _, k := range []string{"b", "a", "c"} {
		need.NoError(t, db.Put("things", k, record{A: k}))
	}
	need.NoError(t, errors.Join(db.Delete("things", "c"), db.Delete("nothing", "x"), db.Close()))
	db = open(t, dir)
	defer db.Close()
	var r record
	if found, err := db.Get("things", "b", &r); !found || err != nil || r.A != "b" {
		t.Fatal(found, err, r)
	}
	for _, missing := range [][2]string{{"things", "c"}, {"nothing", "x"}} {
		if found, err := db.Get(missing[0], missing[1], &r); found || err != nil {
			t.Fatal(missing, found, err)
		}
	}
	var keys []string
	collect := func(k string, _ []byte) (bool, error) { keys = append(keys, k); return true, nil }
	if err := db.View(func(tx *Tx) error {
		return errors.Join(tx.ForEach("things", "", collect), tx.ForEach("things", "a", collect), tx.ForEach("nothing", "", collect))
	}); err != nil || !reflect.DeepEqual(keys, []string{"a", "b", "b"}) {
		t.Fatal(keys, err)
	}
}

func TestAFailedUpdateLeavesNothing(t *testing.T) {
	db := open(t, t.TempDir())
	defer db.Close()
	want := errors.New("no")
	if err := db.Update(func(tx *Tx) error { return errors.Join(tx.Put("things", "a", record{}), want) }); !errors.Is(err, want) {
		t.Fatal(err)
	}
	var r record
	if found, _ := db.Get("things", "a", &r); found {
		t.Fatal("the record is there")
	}
	need.NoError(t, db.Update(func(tx *Tx) error {
		return errors.Join(tx.Put("things", "a", record{}), tx.DeleteBucket("things"), tx.DeleteBucket("none"))
	}))
	if found, _ := db.Get("things", "a", &r); found {
		t.Fatal("the bucket is there")
	}
}

func TestOneHolderADirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "data")
	d, err := Acquire(path)
	need.NoError(t, err)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
		t.Fatal(st.Mode(), err)
	}
	if raw, err := os.ReadFile(d.Join("format")); err != nil || string(raw) != strconv.Itoa(Format)+"\n" {
		t.Fatalf("%q %v", raw, err)
	}
	need.NoError(t, d.Announce("http://127.0.0.1:1"))
	_, err = Acquire(path)
	held, ok := errors.AsType[*HeldError](err)
	if !ok || held.Holder != (Holder{os.Getpid(), "http://127.0.0.1:1"}) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Fatal(err)
	}
	if h, ok, err := FindHolder(path); !ok || err != nil || h != held.Holder {
		t.Fatal(h, ok, err)
	}
	need.NoError(t, d.Release())
	if _, ok, err := FindHolder(path); ok || err != nil {
		t.Fatal(ok, err)
	}
	// The next process overwrites it, also on a disk without room.
	if raw, err := os.ReadFile(d.Join(lockFile)); err != nil || len(raw) != 512 || strings.TrimSpace(string(raw)) != "" {
		t.Fatalf("%q %v", raw, err)
	}
	d, err = Acquire(path)
	need.NoError(t, err)
	need.NoError(t, d.Release())
}

func TestUnknownFormatsAreRefused(t *testing.T) {
	for _, text := range []string{"6", "0", "99\n", "", "x", "-1", "1\n2\n"} {
		path := t.TempDir()
		need.NoError(t, os.WriteFile(filepath.Join(path, "format"), []byte(text), 0o600))
		_, err := Acquire(path)
		if _, ok := errors.AsType[*FormatError](err); !ok || !strings.Contains(err.Error(), "formats up to "+strconv.Itoa(Format)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func key(s string) [sha256.Size]byte { return sha256.Sum256([]byte(s)) }

func TestAnswersOutliveAKill(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "answers.log")
	db := open(t, dir)
	a, err := OpenAnswers(db, log)
	need.NoError(t, err)
	want := Answer{Fingerprint: key("f"), Status: 201, Header: map[string][]string{"Etag": {"x"}}, Body: []byte("\xff{}"), At: time.Now().Round(0)}
	for i := range 5 {
		need.NoError(t, a.KeepAnswer(key(fmt.Sprint(i)), want, i%2 == 0))
	}
	// What a kill leaves: the log as it is, here with a torn record behind.
	raw, err := os.ReadFile(log)
	need.NoError(t, err)
	need.NoError(t, errors.Join(a.Close(), db.Close()))
	for cut := range 3 {
		dir := t.TempDir()
		log := filepath.Join(dir, "answers.log")
		torn := append(append([]byte(nil), raw...), raw[:len(raw)/5-cut]...)
		need.NoError(t, os.WriteFile(log, torn[:len(torn)-1], 0o600))
		db := open(t, dir)
		a, err := OpenAnswers(db, log)
		need.NoError(t, err)
		for i := range 5 {
			got, ok, err := a.Answer(key(fmt.Sprint(i)))
			if !ok || err != nil || !got.At.Equal(want.At) || string(got.Body) != string(want.Body) || got.Status != 201 {
				t.Fatal(i, got, ok, err)
			}
		}
		if st, err := os.Stat(log); err != nil || st.Size() != 0 {
			t.Fatal(st.Size(), err)
		}
		need.NoError(t, errors.Join(a.Close(), db.Close()))
	}
}

func TestAnswersAreKeptADay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		db := open(t, dir)
		a, err := OpenAnswers(db, filepath.Join(dir, "answers.log"))
		need.NoError(t, err)
		for _, name := range []string{"old", "again"} {
			need.NoError(t, a.KeepAnswer(key(name), Answer{Status: 200, At: time.Now()}, false))
		}
		<-time.After(23 * time.Hour)
		if _, ok, err := a.Answer(key("old")); !ok || err != nil {
			t.Fatal(ok, err)
		}
		<-time.After(time.Hour)
		need.NoError(t, a.KeepAnswer(key("again"), Answer{Status: 201, At: time.Now()}, false))
		<-time.After(time.Hour)
		if _, ok, err := a.Answer(key("old")); ok || err != nil {
			t.Fatal(ok, err)
		}
		if ans, ok, err := a.Answer(key("again")); !ok || err != nil || ans.Status != 201 {
			t.Fatal(ans, ok, err)
		}
		left := 0
		if err := db.View(func(tx *Tx) error {
			return tx.ForEach(answersBucket, "", func(string, []byte) (bool, error) { left++; return true, nil })
		}); err != nil || left != 1 {
			t.Fatal(left, err)
		}
		need.NoError(t, errors.Join(a.Close(), db.Close()))
	})
}

func TestAnswersGoOnWithoutTheirLog(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	defer db.Close()
	a, err := OpenAnswers(db, filepath.Join(dir, "answers.log"))
	need.NoError(t, err)
	a.log.Close() // every write to it fails from now on
	need.NoError(t, a.KeepAnswer(key("k"), Answer{Status: 200, At: time.Now()}, false))
	if _, ok, err := a.Answer(key("k")); !ok || err != nil {
		t.Fatal(ok, err)
	}
	_ = a.Close() // says that the log is closed already
}

// Map leaves out a record that cannot be read, and names it: it is never taken for
// an empty one.
func TestMap(t *testing.T) {
	db := NewMemory()
	for key, v := range map[string]any{"a": 1, "b": "text", "c": 3} {
		need.NoError(t, db.Put("things", key, v))
	}
	all, err := Map[int](db, "things")
	if err == nil || !strings.Contains(err.Error(), `"b"`) || !maps.Equal(all, map[string]int{"a": 1, "c": 3}) {
		t.Errorf("%v, %v", all, err)
	}
}

// In a shared store an answer is there for the other process at once, without a log.
func TestSharedAnswers(t *testing.T) {
	db, dir := NewShared(), t.TempDir()
	var both [2]*Answers
	for i := range both {
		a, err := OpenAnswers(db, filepath.Join(dir, "answers.log"))
		need.NoError(t, err)
		defer a.Close()
		both[i] = a
	}
	key := [32]byte{1}
	need.NoError(t, both[0].KeepAnswer(key, Answer{Status: 201, At: time.Now()}, false))
	if ans, found, err := both[1].Answer(key); err != nil || !found || ans.Status != 201 {
		t.Errorf("%+v, %v, %v", ans, found, err)
	}
	if n, err := both[1].Forget(func(*Answer) bool { return true }); err != nil || n != 1 {
		t.Error(n, err)
	}
	if _, found, err := both[0].Answer(key); err != nil || found {
		t.Error("it is not forgotten", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}
