package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"umbra/gitstore/object"
	"umbra/gitstore/sink"
	"umbra/internal/errs"
)

// Service is what a Sink is over: the suite takes workspaces from it. Each method
// fails the test where it cannot do what it says.
type Service interface {
	// Claim takes a workspace over, a new one where it has no such name yet, and
	// returns its owner's Sink under a higher epoch. Sinks of before are fenced.
	Claim(t testing.TB, workspace string) sink.Sink
	// Record returns the value of a record that a group of the workspace wrote.
	Record(t testing.TB, workspace, bucket, key string) (value []byte, ok bool)
	// Dropped returns the objects of the workspace that wait for the sweeper.
	Dropped(t testing.TB, workspace string) []string
}

// Run tests a Service by what the methods of sink.Sink promise.
func Run(t *testing.T, service Service) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, w *world)
	}{
		{"a new workspace is empty", testEmpty},
		{"groups are found by the next owner", testAppend},
		{"a position that was refused is used again", testTakeover},
		{"an owner that was deposed changes nothing", testFenced},
		{"a trimmed position is no free one", testTrimmed},
		{"a swap replaces the manifest and trims the log", testSwap},
		{"a swap that is repeated is done once", testSwapAgain},
		{"a swap goes on next to appends", testSwapBeside},
		{"objects are read in ranges", testObjects},
		{"an object that does not exist is missing", testMissing},
		{"records are written with their group", testRecords},
		{"many claims leave one owner", testClaims},
		{"a call ends with its context", testContext},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(t, &world{t: t, s: service, ws: fmt.Sprintf("conformance-%016x", rand.Uint64())})
		})
	}
}

// world is one workspace of a Service.
type world struct {
	t    *testing.T
	s    Service
	ws   string
	next uint64
}

// claim takes the workspace over and returns what the new owner finds.
func (w *world) claim() (sink.Sink, *sink.Tail) {
	w.t.Helper()
	k := w.s.Claim(w.t, w.ws)
	tail, err := k.Tail(context.Background())
	if err != nil {
		w.t.Fatalf("tail: %v", err)
	}
	pos := uint64(0)
	if tail.Manifest != nil {
		pos = tail.Manifest.Base
	}
	for _, g := range tail.Groups {
		if pos++; g.Pos != pos {
			w.t.Fatalf("a group at position %d, not %d", g.Pos, pos)
		}
	}
	w.next = tail.Next()
	return k, tail
}

// group is the group number n, at the next position.
func (w *world) group(n int) *sink.Group {
	return &sink.Group{Pos: w.next, Seq: uint64(n), Data: fmt.Appendf(nil, "group %d\x00\xff", n)}
}

func (w *world) append(k sink.Sink, g *sink.Group) {
	w.t.Helper()
	if err := k.Append(g); err != nil {
		w.t.Fatalf("append at %d: %v", g.Pos, err)
	}
	w.next = g.Pos + 1
}

// wantGroups compares the groups of a tail that have data.
func (w *world) wantGroups(tail *sink.Tail, want ...*sink.Group) {
	w.t.Helper()
	var got []sink.Group
	for _, g := range tail.Groups {
		if len(g.Data) > 0 {
			got = append(got, g)
		}
	}
	if len(got) != len(want) {
		w.t.Fatalf("the tail has %d groups, not %d", len(got), len(want))
	}
	for i, g := range got {
		if g.Pos != want[i].Pos || g.Seq != want[i].Seq || !bytes.Equal(g.Data, want[i].Data) || !slices.Equal(g.Packs, want[i].Packs) {
			w.t.Fatalf("group %d is %d, %d with %d bytes and packs %v; appended was %d, %d with %d bytes and packs %v", i,
				g.Pos, g.Seq, len(g.Data), g.Packs, want[i].Pos, want[i].Seq, len(want[i].Data), want[i].Packs)
		}
	}
}

func (w *world) put(k sink.Sink, data []byte) string {
	w.t.Helper()
	name, err := k.Put(context.Background(), bytes.NewReader(data), int64(len(data)))
	if err != nil || name == "" {
		w.t.Fatalf("put: %q, %v", name, err)
	}
	return name
}

// pack puts an object and describes it as a pack.
func (w *world) pack(k sink.Sink, data string) sink.Pack {
	w.t.Helper()
	return sink.Pack{Name: w.put(k, []byte(data)), Sum: object.Hash(object.Blob, []byte(data)), Size: int64(len(data)), Idx: 0, Count: 1}
}

func (w *world) swap(k sink.Sink, s *sink.Switch) {
	w.t.Helper()
	if err := k.Swap(context.Background(), s); err != nil {
		w.t.Fatalf("swap: %v", err)
	}
}

func (w *world) wantManifest(tail *sink.Tail, want *sink.Manifest) {
	w.t.Helper()
	if tail.Manifest == nil || !bytes.Equal(tail.Manifest.Encode(), want.Encode()) {
		w.t.Fatalf("the manifest is %+v, not %+v", tail.Manifest, want)
	}
}

// wantFenced checks the error of a call that certainly changed nothing.
func (w *world) wantFenced(op string, err error) {
	w.t.Helper()
	if !errors.Is(err, sink.ErrFenced) {
		w.t.Fatalf("%s by a deposed owner: %v", op, err)
	}
	if e, ok := errors.AsType[*errs.Error](err); !ok || e.Kind != errs.Unavailable {
		w.t.Fatalf("%s by a deposed owner: no error for clients: %v", op, err)
	}
}

func testEmpty(t *testing.T, w *world) {
	_, tail := w.claim()
	if tail.Manifest != nil {
		t.Fatalf("it has a manifest: %+v", tail.Manifest)
	}
	w.wantGroups(tail)
}

func testAppend(t *testing.T, w *world) {
	k, _ := w.claim()
	var want []*sink.Group
	for n := range 20 {
		g := w.group(n)
		if n == 7 {
			g.Packs = []sink.Pack{w.pack(k, "one"), w.pack(k, "two")}
		}
		w.append(k, g)
		want = append(want, g)
	}
	large := w.group(20)
	large.Data = make([]byte, 9<<20)
	for i := range large.Data {
		large.Data[i] = byte(rand.Uint32())
	}
	w.append(k, large)
	_, tail := w.claim()
	w.wantGroups(tail, append(want, large)...)
}

func testTakeover(t *testing.T, w *world) {
	k1, _ := w.claim()
	g1 := w.group(1)
	w.append(k1, g1)
	k2, tail := w.claim()
	w.wantGroups(tail, g1)
	g2 := w.group(2)
	w.append(k2, g2)
	_, tail = w.claim()
	w.wantGroups(tail, g1, g2)
}

func testFenced(t *testing.T, w *world) {
	k1, _ := w.claim()
	g1 := w.group(1)
	w.append(k1, g1)
	p := w.pack(k1, "pack")
	late := w.group(2)
	late.Records = []sink.Record{{Bucket: "answers", Key: []byte("late"), Value: []byte("x")}}
	k2, _ := w.claim()
	w.wantFenced("append", k1.Append(late))
	w.wantFenced("append at the position after the claim", k1.Append(&sink.Group{Pos: w.next, Seq: 2, Data: []byte("late")}))
	w.wantFenced("swap", k1.Swap(context.Background(), &sink.Switch{Manifest: &sink.Manifest{Version: 1, Base: g1.Pos, Packs: []sink.Pack{p}}, Drop: []string{p.Name}}))
	g3 := w.group(3)
	w.append(k2, g3)
	w.wantFenced("append", k1.Append(late))
	_, tail := w.claim()
	w.wantGroups(tail, g1, g3)
	if tail.Manifest != nil {
		t.Fatal("the deposed owner's manifest is there")
	}
	if _, ok := w.s.Record(t, w.ws, "answers", "late"); ok {
		t.Fatal("the deposed owner's record is there")
	}
	if d := w.s.Dropped(t, w.ws); slices.Contains(d, p.Name) {
		t.Fatalf("the deposed owner dropped %v", d)
	}
}

func testTrimmed(t *testing.T, w *world) {
	k1, _ := w.claim()
	g1 := w.group(1)
	w.append(k1, g1)
	late := w.group(2)
	k2, _ := w.claim()
	for n := range 3 {
		w.append(k2, w.group(10+n))
	}
	m := &sink.Manifest{Version: 1, Base: w.next - 1, Packs: []sink.Pack{w.pack(k2, "all")}}
	w.swap(k2, &sink.Switch{Manifest: m})
	w.wantFenced("append at a position that was trimmed", k1.Append(late))
	_, tail := w.claim()
	w.wantManifest(tail, m)
	w.wantGroups(tail)
}

func testSwap(t *testing.T, w *world) {
	k, _ := w.claim()
	for n := range 5 {
		w.append(k, w.group(n))
	}
	base := w.next - 1
	g5, g6 := w.group(5), (*sink.Group)(nil)
	w.append(k, g5)
	p := w.pack(k, "the first five")
	m := &sink.Manifest{Version: 1, Base: base, Seq: 4, Packs: []sink.Pack{p},
		Refs:  []sink.Ref{{Name: "refs/heads/shadow", ID: object.ID{1, 2, 3}}},
		Files: []sink.File{{Name: "exclude", Size: 4, Data: []byte("*.o\n")}}}
	w.swap(k, &sink.Switch{Manifest: m})
	g6 = w.group(6)
	w.append(k, g6)
	k, tail := w.claim()
	w.wantManifest(tail, m)
	w.wantGroups(tail, g5, g6)

	q, file := w.pack(k, "all seven"), w.put(k, []byte("map"))
	next := &sink.Manifest{Version: 2, Base: w.next - 1, Seq: 6, Packs: []sink.Pack{q}, Files: []sink.File{{Name: "moved/00000001", Size: 3, Object: file}}}
	for n := range 2000 { // too large for a row with others
		next.Refs = append(next.Refs, sink.Ref{Name: fmt.Sprintf("refs/umbra/tasks/%08d/base", n), ID: object.ID{byte(n)}})
	}
	w.swap(k, &sink.Switch{Manifest: next, Drop: []string{p.Name}})
	if d := w.s.Dropped(t, w.ws); !slices.Contains(d, p.Name) {
		t.Fatalf("waiting for the sweeper: %v, without %s", d, p.Name)
	}
	_, tail = w.claim()
	w.wantManifest(tail, next)
	w.wantGroups(tail)
}

func testSwapAgain(t *testing.T, w *world) {
	k, _ := w.claim()
	w.append(k, w.group(1))
	p := w.pack(k, "one")
	s := &sink.Switch{Manifest: &sink.Manifest{Version: 1, Base: w.next - 1, Packs: []sink.Pack{p}}}
	w.swap(k, s)
	g2 := w.group(2)
	w.append(k, g2)
	w.swap(k, s)
	k, tail := w.claim()
	w.wantManifest(tail, s.Manifest)
	w.wantGroups(tail, g2)
	// The versions go on under the next owner.
	s2 := &sink.Switch{Manifest: &sink.Manifest{Version: 2, Base: w.next - 1, Packs: []sink.Pack{w.pack(k, "two")}}, Drop: []string{p.Name}}
	w.swap(k, s2)
	w.swap(k, s2)
	_, tail = w.claim()
	w.wantManifest(tail, s2.Manifest)
}

func testSwapBeside(t *testing.T, w *world) {
	k, _ := w.claim()
	const groups = 200
	bases := make(chan uint64, groups)
	var swaps sync.WaitGroup
	version := uint64(0)
	last := &sink.Manifest{}
	swaps.Go(func() {
		for base := range bases {
			version++
			m := &sink.Manifest{Version: version, Base: base}
			if err := k.Swap(context.Background(), &sink.Switch{Manifest: m}); err != nil {
				t.Errorf("swap to %d: %v", base, err)
			}
			last = m
		}
	})
	var all []*sink.Group
	for n := range groups {
		g := w.group(n)
		if err := k.Append(g); err != nil {
			t.Errorf("append at %d: %v", g.Pos, err)
			break
		}
		w.next++
		all = append(all, g)
		if n%10 == 5 {
			bases <- g.Pos
		}
	}
	close(bases)
	swaps.Wait()
	_, tail := w.claim()
	w.wantManifest(tail, last)
	w.wantGroups(tail, all[slices.IndexFunc(all, func(g *sink.Group) bool { return g.Pos > last.Base }):]...)
}

func testObjects(t *testing.T, w *world) {
	ctx := context.Background()
	k, _ := w.claim()
	data := make([]byte, 3<<20+17)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	name, empty := w.put(k, data), w.put(k, []byte("x"))
	if other := w.put(k, data); other == name {
		t.Fatalf("two objects have the name %s", name)
	}
	end := int64(len(data))
	for _, c := range []struct{ off, n, want int64 }{
		{0, -1, end}, {0, end, end}, {0, 1, 1}, {end - 1, 1, 1}, {5, 1 << 20, 1 << 20}, {1 << 20, -1, end - 1<<20}, {0, 0, 0},
	} {
		got, err := fetch(ctx, k, name, c.off, c.n)
		if err != nil || !bytes.Equal(got, data[c.off:c.off+c.want]) {
			t.Fatalf("%d bytes from %d: %d bytes, %v", c.n, c.off, len(got), err)
		}
	}
	if got, err := fetch(ctx, k, name, end-4, 10); err == nil || len(got) > 4 {
		t.Fatalf("a range beyond the end: %d bytes, no error", len(got))
	}
	if got, err := fetch(ctx, k, empty, 0, -1); err != nil || string(got) != "x" {
		t.Fatalf("%q, %v", got, err)
	}
	// The next owner reads them too.
	k, _ = w.claim()
	if got, err := fetch(ctx, k, name, 0, -1); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("the next owner: %d bytes, %v", len(got), err)
	}
}

func fetch(ctx context.Context, k sink.Sink, name string, off, n int64) ([]byte, error) {
	r, err := k.Fetch(ctx, name, off, n)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

func testMissing(t *testing.T, w *world) {
	k, _ := w.claim()
	name := w.put(k, []byte("there"))
	for _, n := range []int64{-1, 3} {
		_, err := fetch(context.Background(), k, name+"x", 0, n)
		if e, ok := errors.AsType[*errs.Error](err); !errors.Is(err, sink.ErrMissing) || !ok || e.Code != "blobs_unavailable" {
			t.Fatalf("%d bytes of a missing object: %v", n, err)
		}
	}
}

func testRecords(t *testing.T, w *world) {
	k, _ := w.claim()
	want := func(key, value string) {
		t.Helper()
		if got, ok := w.s.Record(t, w.ws, "conformance", key); ok != (value != "") || string(got) != value {
			t.Fatalf("record %s is %q (%v), not %q", key, got, ok, value)
		}
	}
	key := w.ws + "/a"
	other := w.ws + "/b\xff"
	write := func(k sink.Sink, records ...sink.Record) {
		t.Helper()
		g := w.group(int(w.next))
		g.Records = records
		w.append(k, g)
	}
	record := func(key, value string) sink.Record {
		return sink.Record{Bucket: "conformance", Key: []byte(key), Value: []byte(value)}
	}
	write(k, record(key, "one"), record(other, "two"))
	want(key, "one")
	want(other, "two")
	write(k, record(key, "three"), record(key, "four"))
	want(key, "four")
	write(k, sink.Record{Bucket: "conformance", Key: []byte(other)}, sink.Record{Bucket: "conformance", Key: []byte("never there")})
	want(other, "")
	w.swap(k, &sink.Switch{Manifest: &sink.Manifest{Version: 1, Base: w.next - 1}})
	want(key, "four")
	k, _ = w.claim()
	write(k, record(key, "five"))
	want(key, "five")
}

func testClaims(t *testing.T, w *world) {
	var sinks []sink.Sink
	for range 8 {
		k, _ := w.claim()
		sinks = append(sinks, k)
	}
	g := w.group(1)
	for _, k := range sinks[:len(sinks)-1] {
		w.wantFenced("append", k.Append(g))
	}
	w.append(sinks[len(sinks)-1], g)
	_, tail := w.claim()
	w.wantGroups(tail, g)
}

func testContext(t *testing.T, w *world) {
	k, _ := w.claim()
	name := w.put(k, []byte("there"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := fetch(ctx, k, name, 0, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("fetch: %v", err)
	}
	if _, err := k.Put(ctx, bytes.NewReader([]byte("x")), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
}
