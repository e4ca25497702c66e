package pack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// sources writes a history into n packs, trees as deltas within their pack, as
// journals do, and opens them.
func sources(t testing.TB, fsys vfs.FS, all []thing, n int) []*pack.Pack {
	t.Helper()
	var packs []*pack.Pack
	for k := range n {
		name := fmt.Sprintf("src-%d", k)
		w := newWriter(t, fsys, name)
		var prev thing
		for _, o := range all[k*len(all)/n : (k+1)*len(all)/n] {
			var err error
			if o.kind == object.Tree && prev.kind == object.Tree {
				err = w.AddDelta(o.id, prev.id, object.SpliceDelta(prev.data, o.data))
			} else {
				_, err = w.Add(o.kind, o.data)
			}
			need.NoError(t, err)
			if o.kind == object.Tree {
				prev = o
			}
		}
		// Something that the pack before has too.
		if k > 0 {
			o := all[k*len(all)/n-1]
			if _, err := w.Add(o.kind, o.data); err != nil {
				t.Fatal(err)
			}
		}
		finish(t, fsys, name, w)
		packs = append(packs, open(t, fsys, name, pack.Options{}))
	}
	return packs
}

// before maps each blob and tree to the one of its size class made before it: a
// hint that is sometimes good.
func before(all []thing) func(object.ID) (object.ID, bool) {
	hints := map[object.ID]object.ID{}
	for i, o := range all {
		for j := i - 1; j >= 0 && o.kind != object.Commit; j-- {
			if all[j].kind == o.kind && bytes.Equal(all[j].data[:min(8, len(all[j].data))], o.data[:min(8, len(o.data))]) {
				hints[o.id] = all[j].id
				break
			}
		}
	}
	return func(id object.ID) (object.ID, bool) { b, ok := hints[id]; return b, ok }
}

func TestMergeAgainstGit(t *testing.T) {
	for name, opt := range map[string]pack.MergeOptions{
		"plain":   {},
		"shallow": {MaxDepth: 3},
		"hints":   {},
		"both":    {MaxDepth: 5},
		"meta":    {MetaFirst: true},
		"last":    {MetaFirst: true, LastMax: 4 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fsys := bare(t)
			all := history(t, rand.New(rand.NewPCG(7, 8)), 300)
			parts := osFS(t, t.TempDir())
			src := sources(t, parts, all, 4)
			if name == "hints" || name == "both" {
				opt.Delta = before(all)
			}
			if name == "last" { // no delta in the sources is of one of them
				opt.Delta = before(all)
				for _, o := range slices.Backward(all) {
					opt.Last = append(opt.Last, o.id)
				}
			}
			w := newWriter(t, fsys, "pack-m")
			stats, err := pack.Merge(t.Context(), w, src, opt)
			need.NoError(t, err)
			entries := finish(t, fsys, "pack-m", w)
			t.Logf("%+v", stats)
			if name == "last" {
				n := 0
				for n < len(entries) && entries[len(entries)-1-n].ID == opt.Last[n] {
					n++
				}
				if end := entries[len(entries)-n].Offset; n < 5 || w.Size()-int64(end) > opt.LastMax+pack.TrailerSize {
					t.Errorf("%d objects in the last %d bytes", n, w.Size()-int64(end))
				}
				stats.Duplicates = 3
			}
			if name == "meta" {
				blobs := false
				for _, e := range entries {
					o := all[slices.IndexFunc(all, func(o thing) bool { return o.id == e.ID })]
					if blobs && o.kind != object.Blob {
						t.Fatalf("%v follows a blob", o.kind)
					}
					blobs = blobs || o.kind == object.Blob
				}
				stats.Duplicates = 3
			}
			if stats.Duplicates != 3 || stats.Copied+stats.Compressed+stats.Deltified+stats.Inflated != len(entries) {
				t.Errorf("%+v for %d entries", stats, len(entries))
			}
			if opt.Delta != nil && stats.Deltified < 10 {
				t.Errorf("only %d made deltas", stats.Deltified)
			}
			git(t, dir, nil, "index-pack", "--strict", "-o", "git.idx", "objects/pack/pack-m.pack")
			same(t, filepath.Join(dir, "git.idx"), filepath.Join(dir, "objects/pack/pack-m.idx"))
			deepest := opt.MaxDepth
			if deepest == 0 {
				deepest = 50
			}
			if verbose := string(git(t, dir, nil, "verify-pack", "-v", "objects/pack/pack-m.idx")); strings.Contains(verbose, fmt.Sprintf("chain length = %d:", deepest+1)) {
				t.Errorf("deltas deeper than %d", deepest)
			}
			fsck(t, dir, all)
			catFile(t, dir, all)
			getAll(t, open(t, fsys, "pack-m", pack.Options{Verify: true}), all)
			// go-git wants the checksum in the name.
			proper := "pack-" + object.ID(open(t, fsys, "pack-m", pack.Options{}).Checksum()).String()
			for _, ext := range []string{".pack", ".idx"} {
				need.NoError(t, fsys.Rename("pack-m"+ext, proper+ext))
			}
			goGit(t, dir, all)
		})
	}
}

func same(t testing.TB, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	need.NoError(t, err)
	y, err := os.ReadFile(b)
	need.NoError(t, err)
	if !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ", filepath.Base(a), filepath.Base(b))
	}
}

// goGit reads every object by go-git.
func goGit(t testing.TB, dir string, all []thing) {
	t.Helper()
	r, err := gogit.PlainOpen(dir)
	need.NoError(t, err)
	for _, o := range all {
		e, err := r.Storer.EncodedObject(plumbing.AnyObject, plumbing.Hash(o.id))
		need.NoError(t, err)
		rd, err := e.Reader()
		need.NoError(t, err)
		var b bytes.Buffer
		if _, err := b.ReadFrom(rd); err != nil || !bytes.Equal(b.Bytes(), o.data) || e.Type().String() != o.kind.String() {
			t.Fatalf("go-git reads %v as %v, %d bytes, %v", o.id, e.Type(), b.Len(), err)
		}
		rd.Close()
	}
}

// TestMergeDropsBases keeps only every other object: a delta whose base is gone
// must become whole, and nothing else may be there.
func TestMergeDropsBases(t *testing.T) {
	dir, fsys := bare(t)
	all := history(t, rand.New(rand.NewPCG(9, 10)), 100)
	src := sources(t, osFS(t, t.TempDir()), all, 2)
	kept := map[object.ID]bool{}
	var want []thing
	for i, o := range all {
		if i%3 != 0 && !kept[o.id] {
			kept[o.id] = true
			want = append(want, o)
		}
	}
	w := newWriter(t, fsys, "pack-m")
	stats, err := pack.Merge(t.Context(), w, src, pack.MergeOptions{Keep: func(id object.ID) bool { return kept[id] }})
	need.NoError(t, err)
	if entries := finish(t, fsys, "pack-m", w); len(entries) != len(want) || stats.Inflated == 0 || stats.Dropped == 0 {
		t.Errorf("%d entries, want %d; %+v", len(entries), len(want), stats)
	}
	git(t, dir, nil, "verify-pack", "objects/pack/pack-m.idx")
	catFile(t, dir, want)
}

// TestMergeRefDeltas merges a pack in which every base is given by id and comes
// after its deltas.
func TestMergeRefDeltas(t *testing.T) {
	dir, fsys := bare(t)
	r := rand.New(rand.NewPCG(11, 12))
	versions := []thing{blob(text(r, 2000))}
	for range 8 {
		versions = append(versions, blob(edited(r, versions[len(versions)-1].data)))
	}
	head := pack.Header(uint32(len(versions)))
	buf := head[:]
	var entries []pack.IdxEntry
	for i := len(versions) - 1; i >= 0; i-- {
		start := len(buf)
		if i == 0 {
			buf = pack.AppendEntry(buf, object.Blob, versions[0].data, 6)
		} else {
			delta := object.SpliceDelta(versions[i-1].data, versions[i].data)
			plain := pack.AppendEntry(nil, object.Blob, delta, 6)
			h, err := pack.ParseHeader(plain)
			need.NoError(t, err)
			stream := plain[h.HeaderLen:]
			buf = pack.AppendRaw(buf, pack.EntryHeader{Kind: pack.RefDelta, Size: h.Size, BaseID: versions[i-1].id}, stream)
		}
		entries = append(entries, pack.IdxEntry{ID: versions[i].id, Offset: uint64(start), CRC: checksum(buf[start:])})
	}
	f := create(t, fsys, "pack-r.pack")
	if _, err := f.WriteAt(buf, 0); err != nil {
		t.Fatal(err)
	}
	sum, err := pack.FinishJournal(f, int64(len(buf)), uint32(len(versions)))
	need.NoError(t, err)
	writeFile(t, fsys, "pack-r.idx", pack.EncodeIdx(entries, sum))
	p := open(t, fsys, "pack-r", pack.Options{Verify: true})
	getAll(t, p, versions)
	git(t, dir, nil, "verify-pack", "objects/pack/pack-r.idx")

	w := newWriter(t, fsys, "pack-m")
	if stats, err := pack.Merge(t.Context(), w, []*pack.Pack{p}, pack.MergeOptions{}); err != nil || stats.Copied != len(versions) {
		t.Fatalf("%+v, %v", stats, err)
	}
	finish(t, fsys, "pack-m", w)
	git(t, dir, nil, "verify-pack", "objects/pack/pack-m.idx")
	m := open(t, fsys, "pack-m", pack.Options{Verify: true})
	getAll(t, m, versions)
	layout, err := m.Layout()
	need.NoError(t, err)
	for _, e := range layout {
		if h, _, err := m.Raw(e); err != nil || h.Kind == pack.RefDelta {
			t.Errorf("%v: %+v, %v", e.ID, h, err)
		}
	}
}

// TestMergeFindsDamage turns each byte of an entry over: nothing wrong may be
// copied.
func TestMergeFindsDamage(t *testing.T) {
	fsys := osFS(t, t.TempDir())
	w := newWriter(t, fsys, "a")
	content := text(rand.New(rand.NewPCG(13, 14)), 300)
	id, err := w.Add(object.Blob, content)
	need.NoError(t, err)
	finish(t, fsys, "a", w)
	f, err := fsys.OpenFile("a.pack", os.O_RDWR, 0)
	need.NoError(t, err)
	defer f.Close()
	p := open(t, fsys, "a", pack.Options{Verify: true})
	layout, err := p.Layout()
	need.NoError(t, err)
	for off := layout[0].Offset; off < layout[0].End; off++ {
		flip(t, f, off)
		w := newWriter(t, fsys, "b")
		if _, err := pack.Merge(context.Background(), w, []*pack.Pack{p}, pack.MergeOptions{}); !errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("byte %d: Merge gives %v", off, err)
		}
		// The last bits of a deflate stream may be padding, which means nothing.
		if _, got, err := p.Get(id); err == nil && !bytes.Equal(got, content) {
			t.Errorf("byte %d: Get returns %q", off, got)
		}
		flip(t, f, off)
	}
	if _, _, err := p.Get(id); err != nil {
		t.Error(err)
	}
}

func flip(t testing.TB, f vfs.File, off int64) {
	t.Helper()
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b[:], off); err != nil {
		t.Fatal(err)
	}
}

func TestMergeStopsWhenCancelled(t *testing.T) {
	fsys := osFS(t, t.TempDir())
	src := sources(t, fsys, history(t, rand.New(rand.NewPCG(1, 1)), 3), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pack.Merge(ctx, newWriter(t, fsys, "m"), src, pack.MergeOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestMergeCompresses merges a pack in which all is only stored: what gets shorter is
// compressed, the rest is copied.
func TestMergeCompresses(t *testing.T) {
	dir, fsys := bare(t)
	r := rand.New(rand.NewPCG(7, 8))
	noise := make([]byte, 3000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	all := []thing{blob(text(r, 2000)), blob(text(r, 9000)), blob(noise), blob([]byte("short"))}
	src, err := pack.Create(create(t, fsys, "pack-s.pack"), pack.WriterOptions{Level: -1})
	need.NoError(t, err)
	for _, o := range all {
		if _, err := src.Add(o.kind, o.data); err != nil {
			t.Fatal(err)
		}
	}
	stored := src.Size()
	finish(t, fsys, "pack-s", src)
	p := open(t, fsys, "pack-s", pack.Options{Verify: true})
	getAll(t, p, all)

	w := newWriter(t, fsys, "pack-m")
	stats, err := pack.Merge(t.Context(), w, []*pack.Pack{p}, pack.MergeOptions{})
	if err != nil || stats.Compressed != 2 || stats.Copied != 2 {
		t.Fatalf("%+v, %v", stats, err)
	}
	if 3*w.Size() > 2*stored {
		t.Errorf("%d bytes of %d are left", w.Size(), stored)
	}
	finish(t, fsys, "pack-m", w)
	git(t, dir, nil, "verify-pack", "objects/pack/pack-m.idx")
	catFile(t, dir, all)
}
