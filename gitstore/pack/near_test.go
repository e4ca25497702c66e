package pack_test

import (
	"errors"
	"math/rand/v2"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// slow is a file system whose files of some suffix fail after some time, as a store of objects
// does that does not answer.
type slow struct {
	vfs.FS
	suffix string
	down   func() bool
}

type slowFile struct {
	vfs.File
	s slow
}

var errDown = errors.New("the store is down")

func (s slow) Open(name string) (vfs.File, error) {
	f, err := s.FS.Open(name)
	if err == nil && path.Ext(name) == s.suffix {
		f = slowFile{f, s}
	}
	return f, err
}

func (f slowFile) ReadAt(b []byte, off int64) (int, error) {
	if f.s.down() {
		<-time.After(8 * time.Second) // of the fake clock
		return 0, errDown
	}
	return f.File.ReadAt(b, off)
}

// TestIndexIsAwaitedOnce: lookups that need the index of a pack while it cannot be fetched wait
// for one attempt together, not one after the other.
func TestIndexIsAwaitedOnce(t *testing.T) {
	all := history(t, rand.New(rand.NewPCG(31, 32)), 50)
	fsys := vfs.NewMem(vfs.MemOptions{})
	w := newWriter(t, fsys, "p")
	for _, o := range all {
		_, err := w.Add(o.kind, o.data)
		need.NoError(t, err)
	}
	finish(t, fsys, "p", w)
	var end []pack.IdxEntry
	whole := open(t, fsys, "p", pack.Options{})
	for e, err := range whole.Entries() {
		need.NoError(t, err)
		if e.ID == all[0].id {
			end = append(end, e)
		}
	}
	writeFile(t, fsys, "p.near", pack.EncodeIdx(end, whole.Checksum()))
	synctest.Test(t, func(t *testing.T) {
		down := true
		p, err := pack.Open(slow{fsys, ".idx", func() bool { return down }}, "p.pack", "p.idx", pack.Options{Verify: true, Near: "p.near"})
		need.NoError(t, err)
		defer p.Close()
		began := time.Now()
		var lookups sync.WaitGroup
		for range 100 {
			lookups.Go(func() {
				if ok, err := p.Has(all[1].id); ok || !errors.Is(err, errDown) {
					t.Errorf("while the index cannot be fetched: %v, %v", ok, err)
				}
			})
			lookups.Go(func() {
				if ok, err := p.Has(all[0].id); !ok || err != nil {
					t.Errorf("at the pack's end: %v, %v", ok, err)
				}
			})
		}
		lookups.Wait()
		if waited := time.Since(began); waited > 8*time.Second {
			t.Errorf("lookups waited %v", waited)
		}
		down = false
		if ok, err := p.Has(all[1].id); !ok || err != nil {
			t.Errorf("once the index can be fetched: %v, %v", ok, err)
		}
		if ok, err := p.Has(object.ID{1}); ok || err != nil || p.Partial() {
			t.Errorf("what does not exist: %v, %v", ok, err)
		}
	})
}
