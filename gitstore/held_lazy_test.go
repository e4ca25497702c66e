package gitstore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"umbra/gitstore/remote"
	"umbra/gitstore/sink/sinktest"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// largeOnSink makes a log whose one pack is too large to be fetched whole at once,
// and returns the contents of its files.
func largeOnSink(t *testing.T) (*sinktest.Memory, map[string][]byte) {
	t.Helper()
	m := sinktest.NewMemory()
	s := onSink(t, m, func(o *Options) { o.InlineBlob = 1 << 20 })
	files := map[string][]byte{"small": []byte("small\n")}
	for i := range 12 {
		data := make([]byte, 200<<10)
		for j := range data {
			data[j] = byte(rand.Uint32())
		}
		files[fmt.Sprint("f", i)] = data
	}
	for name, data := range files {
		mustPut(t, s, "", name, string(data))
	}
	need.NoError(t, s.Close(t.Context()))
	if man := m.Manifest(); len(man.Packs) != 1 || m.Unsealed() != 0 {
		t.Fatalf("%d packs, %d groups", len(man.Packs), m.Unsealed())
	}
	return m, files
}

func (s *Store) readAt(t *testing.T, name string) ([]byte, error) {
	t.Helper()
	e, ok, err := s.Snapshot().Lookup(wspath.Path(name))
	if err != nil {
		return nil, err
	}
	if !ok {
		t.Fatalf("no %s", name)
	}
	return s.ReadBlob(t.Context(), e.ID, 1<<20)
}

// A store opens before its packs are here, and reads what it needs; git waits for all.
func TestPacksAreFetchedInParts(t *testing.T) {
	m, files := largeOnSink(t)
	var fetched atomic.Int64
	m.OnCall = func(c sinktest.Call) sinktest.Fault {
		if c.Op == "fetch" {
			fetched.Add(c.Bytes)
		}
		return sinktest.None
	}
	dir := testDir(t)
	disk, err := vfs.OS(dir)
	need.NoError(t, err)
	s := onSink(t, m, func(o *Options) { o.FS, o.Boot = disk, "one" })
	if data, err := s.readAt(t, "small"); err != nil || string(data) != "small\n" {
		t.Fatalf("%q, %v", data, err)
	}
	if n := fetched.Load(); n > 1<<20 {
		t.Errorf("%d bytes were fetched for a small file", n)
	}
	if names := s.r.Held.Lazy(); len(names) != 1 {
		t.Errorf("not here: %v", names)
	}
	mustPut(t, s, "", "more", "while it is not here")
	need.NoError(t, s.Publish(t.Context()))
	fsck(t, dir)
	for name, want := range files {
		if data, err := s.readAt(t, name); err != nil || !bytes.Equal(data, want) {
			t.Fatalf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	closeStore(t, s)
	// The next start finds it here.
	fetched.Store(0)
	if disk, err = vfs.OS(dir); err != nil {
		t.Fatal(err)
	}
	s = onSink(t, m, func(o *Options) { o.FS, o.Boot = disk, "one" })
	defer closeStore(t, s)
	if _, err := s.readAt(t, "f3"); err != nil {
		t.Fatal(err)
	}
	if n := fetched.Load(); n > 64<<10 {
		t.Errorf("%d bytes were fetched again", n)
	}
}

// A read that needs the store of objects fails while that does not answer, and is
// answered afterwards.
func TestReadWhileObjectsAreAway(t *testing.T) {
	m, files := largeOnSink(t)
	s := onSink(t, m)
	defer closeStore(t, s)
	for _, fault := range []sinktest.Fault{sinktest.Refused, sinktest.Torn} {
		m.OnCall = func(sinktest.Call) sinktest.Fault { return fault }
		failed := 0
		for name := range files {
			if _, err := s.readAt(t, name); errs.CodeOf(err) == "blobs_unavailable" {
				failed++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if failed == 0 {
			t.Errorf("fault %d: all was here", fault)
		}
	}
	if err := s.Publish(t.Context()); errs.CodeOf(err) != "blobs_unavailable" {
		t.Errorf("publish: %v", err)
	}
	m.OnCall = nil
	for name, want := range files {
		if data, err := s.readAt(t, name); err != nil || !bytes.Equal(data, want) {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// Bytes that are not those that were put are never taken for them.
func TestObjectsThatLie(t *testing.T) {
	m, files := largeOnSink(t)
	for _, data := range m.Objects() {
		if len(data) > 1<<20 {
			data[len(data)/2] ^= 1
		}
	}
	s := onSink(t, m)
	defer s.Close(context.Background())
	wrong := 0
	for name, want := range files {
		data, err := s.readAt(t, name)
		if err != nil {
			wrong++
		} else if !bytes.Equal(data, want) {
			t.Fatalf("%s has other bytes", name)
		}
	}
	if wrong == 0 {
		t.Error("no read failed")
	}
	if err := s.Publish(t.Context()); err == nil || !strings.Contains(err.Error(), "other bytes") {
		t.Errorf("publish: %v", err)
	}
}

// What an open fetches does not grow with the history but for indexes.
func TestOpenFetchesTheNewest(t *testing.T) {
	m := sinktest.NewMemory()
	s := onSink(t, m, func(o *Options) { o.InlineBlob = 1 << 20 })
	for i := range 40 {
		data := make([]byte, 300<<10)
		for j := range data {
			data[j] = byte(rand.Uint32())
		}
		mustPut(t, s, "", fmt.Sprint("f", i), string(data))
		need.NoError(t, s.Seal(t.Context()))
	}
	closeStore(t, s)
	fetched := atomic.Int64{}
	m.OnCall = func(c sinktest.Call) sinktest.Fault {
		if c.Op == "fetch" {
			fetched.Add(c.Bytes)
		}
		return sinktest.None
	}
	s = onSink(t, m)
	defer closeStore(t, s)
	if _, err := s.readAt(t, "f39"); err != nil {
		t.Fatal(err)
	}
	if n := fetched.Load(); n > 8<<20+40*2000 {
		t.Errorf("%d bytes were fetched", n)
	}
	if _, err := s.readAt(t, "f0"); err != nil {
		t.Fatal(err)
	}
}

// rounds opens a log, reads files, and returns how many fetches waited for another: a
// fetch takes a second of the bubble's clock.
func rounds(t *testing.T, m *sinktest.Memory, files ...string) (n int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m.OnCall = func(c sinktest.Call) sinktest.Fault {
			if c.Op == "fetch" {
				<-time.After(time.Second)
			}
			return sinktest.None
		}
		began := time.Now()
		s := onSink(t, m)
		defer closeStore(t, s)
		for _, name := range files {
			if data, err := s.readAt(t, name); err != nil || len(data) == 0 {
				t.Fatalf("%s: %d bytes, %v", name, len(data), err)
			}
		}
		n = int(time.Since(began) / time.Second)
		m.OnCall = nil
	})
	return n
}

// An open and first reads wait for the packs once, as of a short history: what they read
// of large packs is next to the indexes.
func TestOpenWaitsOnce(t *testing.T) {
	m := sinktest.NewMemory()
	s := onSink(t, m, func(o *Options) { o.InlineBlob = 1 << 20 })
	baselineOf(t, s, map[string]string{"deep/er/first": "one of the first\n"})
	addTask(t, s, "t")
	mustPut(t, s, "t", "small", "small\n")
	data := make([]byte, 6<<10)
	for i := range 1200 {
		for j := range data {
			data[j] = byte(rand.Uint32())
		}
		mustPut(t, s, "", fmt.Sprintf("d%d/f%d", i%20, i%100), string(data))
		if i%120 == 119 { // each time a pack of less than 1 MiB
			need.NoError(t, s.Seal(t.Context()))
			need.NoError(t, s.Maintain(t.Context()))
		}
		if i == 60 {
			need.NoError(t, s.Seal(t.Context()))
			if n := rounds(t, m.Clone(), "small", "deep/er/first"); n != 1 {
				t.Errorf("the short history: %d fetches one after the other", n)
			}
		}
	}
	need.NoError(t, s.Close(t.Context()))
	large := 0
	for _, p := range m.Manifest().Packs {
		if p.Size > 2<<20 {
			large++
		}
	}
	if large == 0 {
		t.Fatalf("no large pack: %+v", m.Manifest().Packs)
	}
	if n := rounds(t, m, "small", "deep/er/first", "d3/f3"); n != 1 {
		t.Errorf("the long history: %d fetches one after the other", n)
	}
}

// An index grows with the history: that of a large pack is fetched for what is not at the
// pack's end, and not for an open and first reads.
func TestOpenWithoutIndex(t *testing.T) {
	m := sinktest.NewMemory()
	s := onSink(t, m)
	baselineOf(t, s, map[string]string{"small": "small\n"})
	addTask(t, s, "t")
	data := make([]byte, 200)
	for i := range 4000 {
		for j := range data {
			data[j] = byte(rand.Uint32())
		}
		mustPut(t, s, "t", fmt.Sprintf("d%d/f%d", i%20, i%500), string(data))
	}
	need.NoError(t, s.Close(t.Context()))
	if n := rounds(t, m, "small", "d3/f3"); n != 1 {
		t.Errorf("%d fetches one after the other", n)
	}
	dir := testDir(t)
	disk, err := vfs.OS(dir)
	need.NoError(t, err)
	s = onSink(t, m, func(o *Options) { o.FS, o.Boot = disk, "one" })
	defer closeStore(t, s)
	partial := func() (n int) {
		for _, f := range s.r.Packs.All() {
			if f.Pack.Partial() {
				n++
			}
		}
		return n
	}
	if data, err := s.readAt(t, "small"); err != nil || string(data) != "small\n" {
		t.Fatalf("%q, %v", data, err)
	}
	if partial() == 0 {
		t.Error("the index of the large pack was fetched")
	}
	missing := ID{1}
	for _, fault := range []sinktest.Fault{sinktest.Refused, sinktest.Torn} {
		m.OnCall = func(sinktest.Call) sinktest.Fault { return fault }
		if _, err := s.ReadBlob(t.Context(), missing, 1); errs.CodeOf(err) != "blobs_unavailable" {
			t.Errorf("fault %d: %v", fault, err)
		}
		if data, err := s.readAt(t, "small"); err != nil || string(data) != "small\n" {
			t.Errorf("fault %d: %q, %v", fault, data, err)
		}
	}
	m.OnCall = nil
	if _, err := s.ReadBlob(t.Context(), missing, 1); !errs.Is(err, errs.NotFound) {
		t.Errorf("an object that does not exist: %v", err)
	}
	if partial() > 0 {
		t.Error("nothing was looked up in the index")
	}
	need.NoError(t, s.Publish(t.Context()))
	fsck(t, dir)
	if names, err := disk.ReadDir("remote"); err != nil || len(names) > 0 {
		t.Errorf("what was fetched in parts is still here: %v, %v", names, err)
	}
	// The index of the end saves time, and nothing is lost without it.
	lost := m.Clone()
	for _, f := range lost.Manifest().Files {
		if strings.HasSuffix(f.Name, remote.Near) {
			lost.Lose(f.Object)
		}
	}
	if n := rounds(t, lost, "small", "d3/f3"); n != 2 {
		t.Errorf("without the index of the end: %d fetches one after the other", n)
	}
}

// The background brings what is missing, and tries again while the store of objects
// does not answer.
func TestRestIsFetched(t *testing.T) {
	m, files := largeOnSink(t)
	synctest.Test(t, func(t *testing.T) {
		opened := time.Now()
		m.OnCall = func(c sinktest.Call) sinktest.Fault {
			if since := time.Since(opened); c.Op == "fetch" && since > 0 && since < 20*time.Second {
				return sinktest.Refused
			}
			return sinktest.None
		}
		s := onSink(t, m, func(o *Options) { o.Foreground = false })
		defer closeStore(t, s)
		<-time.After(time.Minute)
		if left := s.r.Held.Lazy(); len(left) > 0 {
			t.Fatalf("not here after a minute: %v", left)
		}
		for name, want := range files {
			if data, err := s.readAt(t, name); err != nil || !bytes.Equal(data, want) {
				t.Fatalf("%s: %v", name, err)
			}
		}
	})
}

// A read that a store of objects does not answer in time is refused as one that it refuses.
func TestReadWhileObjectsStall(t *testing.T) {
	m, files := largeOnSink(t)
	synctest.Test(t, func(t *testing.T) {
		s := onSink(t, m, func(o *Options) { o.Foreground = true })
		defer closeStore(t, s)
		refused := 0
		m.OnCall = func(c sinktest.Call) sinktest.Fault {
			if c.Op == "fetch" {
				<-time.After(time.Minute)
			}
			return sinktest.None
		}
		for name := range files {
			if _, err := s.readAt(t, name); err != nil {
				if refused++; errs.CodeOf(err) != "blobs_unavailable" {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		m.OnCall = nil
		if refused == 0 {
			t.Error("nothing waited for the store")
		}
	})
}
