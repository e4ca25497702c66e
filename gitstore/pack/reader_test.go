package pack_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"umbra/gitstore/cache"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// repacked lets git store a history loose and pack it as tightly as it can.
func repacked(t testing.TB, all []thing) (dir string, fsys vfs.FS, name string) {
	t.Helper()
	dir, fsys = bare(t)
	w := newWriter(t, fsys, "pack-w")
	for _, o := range all {
		if _, err := w.Add(o.kind, o.data); err != nil {
			t.Fatal(err)
		}
	}
	finish(t, fsys, "pack-w", w)
	fsck(t, dir, all)
	git(t, dir, nil, "repack", "-adfq", "--depth=50", "--window=50")
	for _, ext := range []string{".pack", ".idx"} {
		need.NoError(t, fsys.Remove("pack-w"+ext))
	}
	found, err := filepath.Glob(filepath.Join(dir, "objects/pack/*.pack"))
	if err != nil || len(found) != 1 {
		t.Fatalf("git repack left %v, %v", found, err)
	}
	return dir, fsys, strings.TrimSuffix(filepath.Base(found[0]), ".pack")
}

func TestReadsWhatGitPacked(t *testing.T) {
	all := history(t, rand.New(rand.NewPCG(21, 22)), 300)
	dir, fsys, name := repacked(t, all)
	for what, opt := range map[string]pack.Options{
		"plain":    {Verify: true},
		"no cache": {Cache: cache.NewBudget(0), Idx: pack.IdxOptions{InMemoryMax: -1}},
		"tiny":     {Cache: cache.NewBudget(40 << 10)},
	} {
		p := open(t, fsys, name, opt)
		getAll(t, p, all)
		for _, o := range all[:50] {
			kind, size, s, err := p.Stream(o.id)
			need.NoError(t, err)
			data, err := io.ReadAll(s)
			if err != nil || kind != o.kind || size != int64(len(o.data)) || !bytes.Equal(data, o.data) {
				t.Fatalf("%s: Stream(%v) gives %d bytes, %v", what, o.id, len(data), err)
			}
			s.Close()
		}
		for _, o := range all {
			located(t, p, o)
		}
		if _, _, err := p.Get(object.ID{1}); !errors.Is(err, pack.ErrNotFound) {
			t.Errorf("Get of nothing: %v", err)
		}
		if err := p.VerifyChecksum(); err != nil {
			t.Error(err)
		}
	}
	// Raw copies of everything that git deltified are still right.
	w := newWriter(t, fsys, "pack-m")
	if _, err := pack.Merge(t.Context(), w, []*pack.Pack{open(t, fsys, name, pack.Options{})}, pack.MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	finish(t, fsys, "pack-m", w)
	git(t, dir, nil, "index-pack", "--strict", "-o", "git.idx", "objects/pack/pack-m.pack")
	getAll(t, open(t, fsys, "pack-m", pack.Options{Verify: true}), all)
}

// TestClosedPackKeepsNothing reads deltas of two packs with one budget: what was
// kept of their bases is free when they are closed.
func TestClosedPackKeepsNothing(t *testing.T) {
	all := history(t, rand.New(rand.NewPCG(23, 24)), 100)
	_, fsys, name := repacked(t, all)
	budget := cache.NewBudget(1 << 20)
	first, err := pack.Open(fsys, name+".pack", name+".idx", pack.Options{Cache: budget})
	need.NoError(t, err)
	second, err := pack.Open(fsys, name+".pack", name+".idx", pack.Options{Cache: budget})
	need.NoError(t, err)
	getAll(t, first, all)
	one := budget.Used()
	getAll(t, second, all)
	if both := budget.Used(); one == 0 || both != 2*one {
		t.Errorf("%d bytes kept of one pack, %d of both", one, both)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if left := budget.Used(); left != one {
		t.Errorf("%d bytes kept after one was closed, not %d", left, one)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if left := budget.Used(); left != 0 {
		t.Errorf("%d bytes kept of closed packs", left)
	}
}

// located reads an object at the place that is found for it, with room for it
// and with a byte less.
func located(t *testing.T, p *pack.Pack, o thing) {
	t.Helper()
	off, ok, err := p.Locate(o.id)
	if err != nil || !ok {
		t.Fatalf("Locate(%v): %v, %v", o.id, ok, err)
	}
	size := int64(len(o.data))
	kind, data, told, err := p.GetLocated(o.id, off, size)
	if err != nil || kind != o.kind || told != size || !bytes.Equal(data, o.data) {
		t.Fatalf("GetLocated(%v) gives %d bytes, %d told, %v", o.id, len(data), told, err)
	}
	if size == 0 {
		return
	}
	if _, _, told, err := p.GetLocated(o.id, off, size-1); !errors.Is(err, pack.ErrTooLarge) || told != size {
		t.Fatalf("GetLocated(%v) with too little room: %d told, %v", o.id, told, err)
	}
}

// TestLargeDeltas reads a chain of deltas that are more than what is kept of
// them on the way down.
func TestLargeDeltas(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	fsys := osFS(t, t.TempDir())
	w := newWriter(t, fsys, "a")
	all := []thing{blob(text(r, 1000))}
	if _, err := w.Add(object.Blob, all[0].data); err != nil {
		t.Fatal(err)
	}
	for n := range 6 {
		from := all[n]
		o := blob(slices.Concat(from.data[:500], text(r, 120<<10)))
		// The first 500 bytes are copied, the rest is told.
		delta := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(len(from.data))), uint64(len(o.data)))
		delta = append(delta, 0x80|0x10|0x20, 500&0xff, 500>>8)
		for rest := o.data[500:]; len(rest) > 0; {
			m := min(len(rest), 127)
			delta = append(append(delta, byte(m)), rest[:m]...)
			rest = rest[m:]
		}
		need.NoError(t, w.AddDelta(o.id, from.id, delta))
		all = append(all, o)
	}
	finish(t, fsys, "a", w)
	for _, opt := range []pack.Options{{Verify: true}, {Verify: true, Cache: cache.NewBudget(0)}} {
		p := open(t, fsys, "a", opt)
		for i := len(all) - 1; i >= 0; i-- {
			located(t, p, all[i])
		}
	}
}

// TestNearbyBases reads chains whose bases are near and far, in every order.
func TestNearbyBases(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	fsys := osFS(t, t.TempDir())
	w := newWriter(t, fsys, "a")
	from := blob(text(r, 3000))
	if _, err := w.Add(object.Blob, from.data); err != nil {
		t.Fatal(err)
	}
	all := []thing{from}
	for range 49 {
		between := blob(text(r, []int{10, 700, 3900, 9000, 50_000}[r.IntN(5)]))
		if _, err := w.Add(object.Blob, between.data); err != nil {
			t.Fatal(err)
		}
		// What it begins with is new, the rest is copied.
		head := text(r, 1+r.IntN(100))
		o := blob(slices.Concat(head, from.data))
		delta := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(len(from.data))), uint64(len(o.data)))
		delta = append(append(delta, byte(len(head))), head...)
		delta = append(delta, 0x80|0x10|0x20, byte(len(from.data)), byte(len(from.data)>>8))
		need.NoError(t, w.AddDelta(o.id, from.id, delta))
		all = append(all, between, o)
		from = o
	}
	finish(t, fsys, "a", w)
	p := open(t, fsys, "a", pack.Options{Verify: true, Cache: cache.NewBudget(0)})
	for _, i := range r.Perm(len(all)) {
		located(t, p, all[i])
	}
}

// TestGetAfter reads a delta on what the caller has of its base.
func TestGetAfter(t *testing.T) {
	_, fsys := bare(t)
	w := newWriter(t, fsys, "a")
	base, next := blob([]byte("one\ntwo\n")), blob([]byte("one\ntwo\n3\n"))
	_, err := w.Add(object.Blob, base.data)
	need.NoError(t, err)
	need.NoError(t, w.AddDelta(next.id, base.id, []byte{8, 10, 0x90, 8, 2, '3', '\n'}))
	finish(t, fsys, "a", w)
	p := open(t, fsys, "a", pack.Options{})
	at := func(id object.ID) uint64 {
		off, ok, err := p.Locate(id)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		return off
	}
	for _, known := range []struct {
		pack.Known
		want string
	}{
		{pack.Known{}, "one\ntwo\n3\n"},
		{pack.Known{Offset: at(base.id), Kind: object.Blob, Data: []byte("1\n2\n3\n4\n")}, "1\n2\n3\n4\n3\n"},
		{pack.Known{Offset: at(base.id), Kind: object.Blob, Data: base.data, Into: make([]byte, 0, 3)}, "one\ntwo\n3\n"},
		{pack.Known{Offset: at(base.id), Kind: object.Blob, Data: base.data, Into: make([]byte, 0, 10)}, "one\ntwo\n3\n"},
		{pack.Known{Offset: at(next.id), Kind: object.Blob, Data: []byte("itself")}, "itself"},
	} {
		kind, data, size, err := p.GetAfter(next.id, at(next.id), 100, known.Known)
		if err != nil || kind != object.Blob || string(data) != known.want || size != int64(len(data)) {
			t.Errorf("%v %q %d %v", kind, data, size, err)
		}
	}
	if _, _, _, err := p.GetAfter(next.id, at(next.id), 9, pack.Known{Offset: at(base.id), Kind: object.Blob, Data: base.data}); !errors.Is(err, pack.ErrTooLarge) {
		t.Error(err)
	}
}

func TestGetIsBounded(t *testing.T) {
	fsys := osFS(t, t.TempDir())
	w := newWriter(t, fsys, "a")
	base, err := w.Add(object.Blob, []byte("0123456789"))
	need.NoError(t, err)
	// Little delta, large result.
	big := object.Hash(object.Blob, []byte("big"))
	delta := []byte{10, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x90, 10}
	need.NoError(t, w.AddDelta(big, base, delta))
	finish(t, fsys, "a", w)
	p := open(t, fsys, "a", pack.Options{})
	if _, _, err := p.Get(big); !errors.Is(err, pack.ErrTooLarge) {
		t.Errorf("Get: %v", err)
	}
	if _, size, err := p.Info(big); err != nil || size != 0xffffffff {
		t.Errorf("Info: %d, %v", size, err)
	}
	if _, _, err := open(t, fsys, "a", pack.Options{MaxObject: 9}).Get(base); !errors.Is(err, pack.ErrTooLarge) {
		t.Errorf("Get: %v", err)
	}
}

func TestConcurrentReads(t *testing.T) {
	all := history(t, rand.New(rand.NewPCG(23, 24)), 60)
	_, fsys, name := repacked(t, all)
	p := open(t, fsys, name, pack.Options{Cache: cache.NewBudget(64 << 10), Verify: true})
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 0))
			for range 300 {
				o := all[r.IntN(len(all))]
				_, data, err := p.Get(o.id)
				if err != nil || !bytes.Equal(data, o.data) {
					t.Errorf("Get(%v): %v", o.id, err)
				}
				_, _, s, err := p.Stream(o.id)
				if err != nil {
					t.Error(err)
					continue
				}
				if _, err := io.Copy(io.Discard, s); err != nil {
					t.Error(err)
				}
				s.Close()
			}
		})
	}
	wg.Wait()
}

func TestOpenRefusesPairsThatAreNone(t *testing.T) {
	fsys := osFS(t, t.TempDir())
	for _, n := range []string{"a", "b"} {
		w := newWriter(t, fsys, n)
		if _, err := w.Add(object.Blob, []byte(n)); err != nil {
			t.Fatal(err)
		}
		finish(t, fsys, n, w)
	}
	if _, err := pack.Open(fsys, "a.pack", "b.idx", pack.Options{}); !errors.Is(err, pack.ErrCorrupt) {
		t.Error(err)
	}
	if _, err := pack.Open(fsys, "a.idx", "b.idx", pack.Options{}); !errors.Is(err, pack.ErrCorrupt) {
		t.Error(err)
	}
	if _, err := pack.Open(fsys, "a.pack", "none.idx", pack.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestStreamAfterClose(t *testing.T) {
	fsys := osFS(t, t.TempDir())
	w := newWriter(t, fsys, "a")
	id, err := w.Add(object.Blob, []byte("data"))
	need.NoError(t, err)
	finish(t, fsys, "a", w)
	_, _, s, err := open(t, fsys, "a", pack.Options{}).Stream(id)
	need.NoError(t, err)
	s.Close()
	s.Close()
	if n, err := s.Read(make([]byte, 4)); err == nil {
		t.Errorf("read %d bytes from a closed stream", n)
	}
}

func BenchmarkGet(b *testing.B) {
	all := history(b, rand.New(rand.NewPCG(25, 26)), 300)
	_, fsys, name := repacked(b, all)
	p := open(b, fsys, name, pack.Options{})
	x, err := p.Index()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Find", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, _, ok, err := x.Find(all[i%len(all)].id); !ok || err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Get", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, _, err := p.Get(all[i%len(all)].id); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkChains reads versions of a directory of 50 entries in chains of 50 deltas,
// far apart and one after the other.
func BenchmarkChains(b *testing.B) {
	r := rand.New(rand.NewPCG(27, 28))
	fsys := osFS(b, b.TempDir())
	w := newWriter(b, fsys, "a")
	dir := text(r, 1700)
	var all []object.ID
	for n := range 10_000 {
		was := blob(dir)
		at, id := 34*r.IntN(50), text(r, 20)
		dir = slices.Concat(dir[:at], id, dir[at+20:])
		now := blob(dir)
		all = append(all, now.id)
		if n%50 == 0 {
			if _, err := w.Add(object.Blob, now.data); err != nil {
				b.Fatal(err)
			}
			continue
		}
		delta := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(len(was.data))), uint64(len(now.data)))
		if at > 0 {
			delta = append(delta, 0x80|0x10|0x20, byte(at), byte(at>>8))
		}
		delta = append(append(delta, 20), id...)
		at += 20
		if rest := len(dir) - at; rest > 0 {
			delta = append(delta, 0x80|0x1|0x2|0x10|0x20, byte(at), byte(at>>8), byte(rest), byte(rest>>8))
		}
		need.NoError(b, w.AddDelta(now.id, was.id, delta))
		if _, err := w.Add(object.Blob, text(r, 300)); err != nil {
			b.Fatal(err)
		}
	}
	finish(b, fsys, "a", w)
	p := open(b, fsys, "a", pack.Options{Cache: cache.NewBudget(8 << 20)})
	for _, step := range []int{49, 1} {
		b.Run(fmt.Sprintf("step=%d", step), func(b *testing.B) {
			b.ReportAllocs()
			i := len(all) - 1
			for b.Loop() {
				if _, _, err := p.Get(all[i]); err != nil {
					b.Fatal(err)
				}
				if i -= step; i < 0 {
					i += len(all)
				}
			}
		})
	}
}
