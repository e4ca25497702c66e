package gitstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/records"
	"umbra/internal/need"
	"umbra/internal/vfs"
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
		need.NoError(t, err)
		byTask[task] = recs
		for i, r := range recs {
			if late, err := s.TaskRecordsAfter(t.Context(), task, r.Seq); err != nil || len(late) != len(recs)-i-1 || i+1 < len(recs) && !reflect.DeepEqual(late, recs[i+1:]) {
				t.Fatalf("%q after %d: %d of %d records, %v", task, r.Seq, len(late), len(recs)-i-1, err)
			}
		}
	}
	checkTouching(t, s, all)
	return all, byTask
}

// checkTouching compares Touching with what all the records say, for ranges of them.
func checkTouching(t *testing.T, s *Store, all []Record) {
	t.Helper()
	tip := s.Tip().Seq
	for _, paths := range [][]string{{"f"}, {"dir/b.txt"}, {"none", "deep.txt"}, {"dir/new3.txt", "a.txt"}, nil} {
		for from := uint64(0); from <= tip+1; from += tip/5 + 1 {
			for to := uint64(0); to <= tip+2; to += tip/7 + 1 {
				var want *Record
				for i := range all {
					if r := &all[i]; r.Seq >= from && r.Seq <= to && slices.ContainsFunc(paths, r.MayTouch) {
						want = r
					}
				}
				rec, ok, err := s.Touching(t.Context(), from, to, paths...)
				if err != nil || ok != (want != nil) || ok && !reflect.DeepEqual(rec, *want) {
					t.Fatalf("%q in %d to %d: %+v, %v, %v, and not %+v", paths, from, to, rec, ok, err, want)
				}
			}
		}
	}
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
		need.NoError(t, err)
	}
	want, wantByTask := indexOf(t, s)
	closeStore(t, s)

	sound := make(map[string][]byte)
	for _, file := range []string{records.File, records.NamesFile} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		need.NoError(t, err)
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
		for _, files := range [][]string{{records.File}, {records.NamesFile}, {records.File, records.NamesFile}} {
			for round := range 8 {
				for _, file := range files {
					path := filepath.Join(dir, file)
					var err error
					if data := damage(bytes.Clone(sound[file])); data == nil {
						err = os.Remove(path)
					} else {
						err = os.WriteFile(path, data, 0o600)
					}
					need.NoError(t, err)
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
					need.NoError(t, os.WriteFile(filepath.Join(dir, file), data, 0o600))
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
	names := filepath.Join(dir, records.NamesFile)
	data, err := os.ReadFile(names)
	need.NoError(t, err)
	// "", "alpha", "beta" becomes "", "alpha", "alpha".
	const empty, alpha = 6, 6 + 5
	data = append(data[:empty+alpha:empty+alpha], data[empty:empty+alpha]...)
	need.NoError(t, os.WriteFile(names, data, 0o600))
	s = openAt(t, dir, Options{})
	defer closeStore(t, s)
	if got, _ := indexOf(t, s); !reflect.DeepEqual(got, want) {
		t.Fatalf("the index tells %+v, not %+v", got, want)
	}
}

// Idempotency keys are remembered for as long as they are asked for, no longer.
func TestKeysAreForgotten(t *testing.T) {
	ctx := t.Context()
	now := time.Unix(1_700_000_000, 0)
	s, err := Open(ctx, Options{FS: vfs.NewMem(vfs.MemOptions{}), Foreground: true, Now: func() time.Time { return now }})
	need.NoError(t, err)
	defer s.Close(context.WithoutCancel(ctx))
	baselineOf(t, s, map[string]string{"a": "1\n"})
	key := func(i int) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Append(nil, i))) }
	keyed := func(i int) {
		t.Helper()
		b := s.NewBlob(fmt.Append(nil, i))
		_, err := s.Commit(ctx, Draft{Edits: []Edit{{Path: "f", Mode: object.Regular, Blob: b}}, Entries: 1,
			Message: message.Message{Source: message.API, IdempotencyKey: key(i), Entries: []message.Entry{{Operation: message.Modify, Path: "f", AfterHash: b.AfterHash()}}}})
		need.NoError(t, err)
	}
	found := func(i int) bool {
		t.Helper()
		_, ok, err := s.FindKey(ctx, key(i), now.Add(-24*time.Hour))
		need.NoError(t, err)
		return ok
	}
	keyed(0)
	if !found(0) {
		t.Fatal("a key is not found")
	}
	for day := range 10 {
		now = now.Add(48 * time.Hour)
		for i := range 100 {
			keyed(day*100 + i + 1)
		}
		if !found(day*100+100) || !found(day*100+1) || found(day*100) {
			t.Errorf("day %d: wrong keys are found", day)
		}
		if n := s.r.Index.Stats().Keys; n > 100 {
			t.Errorf("day %d: %d keys are kept", day, n)
		}
	}
	// Commits of a time when the clock was wrong do not hide older ones of the day.
	wrong := now
	now = now.Add(-30 * 24 * time.Hour)
	keyed(5000)
	now = wrong
	s.r.Index.Truncate(s.r.Index.Count()) // what is in memory is read again, as after a start
	if !found(1000) {
		t.Error("a key is hidden by a commit whose date was wrong")
	}
}

// A clock that was ahead once stamps no later commit.
func TestClockOnceAhead(t *testing.T) {
	ctx := t.Context()
	start := time.Unix(1_700_000_000, 0)
	now := start
	mem := vfs.NewMem(vfs.MemOptions{})
	opt := Options{FS: mem, Foreground: true, Now: func() time.Time { return now }}
	s, err := Open(ctx, opt)
	need.NoError(t, err)
	baselineOf(t, s, map[string]string{"a": "1\n"})
	now = start.Add(10 * 365 * 24 * time.Hour)
	mustPut(t, s, "", "f", "while the clock is wrong\n")
	for _, restart := range []bool{false, true} {
		now = start.Add(100 * time.Second)
		if restart {
			need.NoError(t, s.Close(ctx))
			if s, err = Open(ctx, opt); err != nil {
				t.Fatal(err)
			}
		}
		if c := mustPut(t, s, "", "f", fmt.Sprint("right again ", restart)); !c.When.Equal(now.UTC()) {
			t.Errorf("restart %v: committed as of %v, not %v", restart, c.When, now.UTC())
		}
	}
	// Corrected by little: dates ascend.
	last := now
	now = now.Add(-30 * time.Minute)
	if c := mustPut(t, s, "", "f", "half an hour back"); !c.When.Equal(last.UTC()) {
		t.Errorf("committed as of %v, not %v", c.When, last.UTC())
	}
	need.NoError(t, s.Close(ctx))
}
