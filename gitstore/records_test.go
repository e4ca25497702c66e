package gitstore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"umbra/gitstore/message"
)

// indexOf gives all that the commit index tells.
func indexOf(t *testing.T, s *Store) (all []Record, byTask map[string][]Record) {
	t.Helper()
	if err := s.Records(t.Context(), 1, s.Tip().Seq, func(r Record) error { all = append(all, r); return nil }); err != nil {
		t.Fatal(err)
	}
	byTask = make(map[string][]Record)
	for _, task := range []string{"", "alpha", "beta", "gamma"} {
		recs, err := s.TaskRecords(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		byTask[task] = recs
	}
	return all, byTask
}

// TestRecordsAreOnlyACache damages the index's files in every way that a disk
// or a power cut may, and expects the same answers from history.
func TestRecordsAreOnlyACache(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{})
	baselineOf(t, s, map[string]string{"f": "x"})
	tasks := []string{"alpha", "beta", "gamma", ""}
	for _, task := range tasks[:3] {
		if _, err := s.PutTask(t.Context(), message.Info{TaskID: task, Goal: "g", Status: "executing"}, ID{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 60 {
		b := s.NewBlob(fmt.Appendf(nil, "%d", i))
		_, err := s.Commit(t.Context(), Draft{Entries: 1, Edits: []Edit{{Path: "f", Mode: 0o100644, Blob: b}},
			Message: message.Message{TaskID: tasks[i%4], SubtaskID: fmt.Sprintf("sub%d", i%5), Source: message.API,
				IdempotencyKey: fmt.Sprintf("sha256:%016x%048x", i+1, 0),
				Entries:        []message.Entry{{Operation: message.Modify, Path: "f", AfterHash: b.AfterHash()}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	want, wantByTask := indexOf(t, s)
	closeStore(t, s)

	sound := make(map[string][]byte)
	for _, file := range []string{recordsFile, namesFile} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		sound[file] = data
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	damages := map[string]func([]byte) []byte{
		"gone":      func([]byte) []byte { return nil },
		"zeros":     func(b []byte) []byte { return make([]byte, len(b)) },
		"truncated": func(b []byte) []byte { return b[:rnd.IntN(len(b))] },
		"a bit":     func(b []byte) []byte { b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8); return b },
		"a page of zeros": func(b []byte) []byte {
			from := rnd.IntN(len(b))
			clear(b[from:min(len(b), from+512)])
			return b
		},
		"longer":    func(b []byte) []byte { return append(b, b...) },
		"noise":     func(b []byte) []byte { return fmt.Appendf(nil, "%x", b) },
		"exchanged": func(b []byte) []byte { copy(b[64:], b[:64]); return b },
	}
	for name, damage := range damages {
		for _, files := range [][]string{{recordsFile}, {namesFile}, {recordsFile, namesFile}} {
			for round := range 8 {
				for _, file := range files {
					path := filepath.Join(dir, file)
					var err error
					if data := damage(bytes.Clone(sound[file])); data == nil {
						err = os.Remove(path)
					} else {
						err = os.WriteFile(path, data, 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				s := openAt(t, dir, Options{})
				got, byTask := indexOf(t, s)
				if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(byTask, wantByTask) {
					t.Errorf("%s, %v, round %d: the index tells something else", name, files, round)
				}
				rec, ok, err := s.FindKey(t.Context(), fmt.Sprintf("sha256:%016x%048x", 5, 0), time.Now().Add(-time.Hour))
				if err != nil || !ok || rec.Seq != 6 {
					t.Errorf("%s, %v: the key gives %+v, %v, %v", name, files, rec, ok, err)
				}
				closeStore(t, s)
				for file, data := range sound {
					if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// TestRecordsSurviveAKillWhileTheyAreRebuilt has new names under old numbers:
// the names were written again, the records that refer to them not yet.
func TestRecordsSurviveAKillWhileTheyAreRebuilt(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{})
	baselineOf(t, s, map[string]string{"f": "x"})
	for _, task := range []string{"alpha", "beta"} {
		if _, err := s.PutTask(t.Context(), message.Info{TaskID: task, Goal: "g", Status: "executing"}, ID{}); err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, task, "f", task)
	}
	want, _ := indexOf(t, s)
	closeStore(t, s)
	names := filepath.Join(dir, namesFile)
	data, err := os.ReadFile(names)
	if err != nil {
		t.Fatal(err)
	}
	// "", "alpha", "beta" becomes "", "alpha", "alpha".
	const empty, alpha = 6, 6 + 5
	data = append(data[:empty+alpha:empty+alpha], data[empty:empty+alpha]...)
	if err := os.WriteFile(names, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, dir, Options{})
	defer closeStore(t, s)
	if got, _ := indexOf(t, s); !reflect.DeepEqual(got, want) {
		t.Fatalf("the index tells %+v, not %+v", got, want)
	}
}
