package records

import (
	"errors"
	"os"

	"umbra/internal/vfs"
)

// NamesNew is the file of the index's texts being rewritten.
const NamesNew = NamesFile + ".new"

// WorthShrinking is how many dropped records there are at least in a file that
// is rewritten without them.
const WorthShrinking = 1024

// Shrink gives back the room of the records that were dropped, and of the texts
// that no record names any more, once they are more than what stays: averaged,
// a record is so copied once. The records keep their places: what is before them
// is a hole. Writers continue meanwhile, except for the last few records. A
// failure costs space only, and is retried after the next drop. No remap runs
// meanwhile: the caller holds cmu.
func (r *Index) Shrink() {
	r.mu.RLock()
	dead, live := r.first-1-min(r.hole, r.first-1), r.n+1-min(r.first, r.n+1)
	wanted := !r.broken && dead >= WorthShrinking && dead > live
	r.mu.RUnlock()
	if !wanted {
		return
	}
	c := &recordCopy{r: r}
	err := c.run()
	if err != nil {
		r.opt.Log.Warn("the commit index was not rewritten; it takes more space than it needs", "error", err)
	}
}

// recordCopy is the index's files as they are rewritten, texts numbered from
// the first.
type recordCopy struct {
	r     *Index
	to    Index // names, nameNo, nameEnd, f and nf of the new files
	first uint64
	upTo  uint64 // copied
}

// nearlyAll is how many records are copied at once, and how many may be left for
// the last part, during which no record is added.
const nearlyAll = 1024

func (c *recordCopy) run() (err error) {
	fs := c.r.opt.FS
	c.to.nameNo = make(map[string]uint32)
	open := func(name string) (f vfs.File) {
		if err == nil {
			f, err = fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		}
		return f
	}
	c.to.f, c.to.nf = open(FileNew), open(NamesNew)
	defer func() {
		if err == nil {
			return
		}
		for _, f := range []vfs.File{c.to.f, c.to.nf} {
			if f != nil {
				f.Close()
			}
		}
	}()
	if err != nil {
		return err
	}
	c.first = c.r.Begin()
	c.upTo = c.first - 1
	for {
		c.r.mu.RLock()
		left := c.r.n - c.upTo
		if left > nearlyAll {
			err = c.chunk(nearlyAll)
		}
		c.r.mu.RUnlock()
		if err != nil {
			return err
		}
		if left <= nearlyAll {
			break
		}
	}
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.r.broken {
		return errors.New("the index is kept in memory since a write failed")
	}
	if err := c.chunk(c.r.n - c.upTo); err != nil {
		return err
	}
	// A kill between the two leaves records with other texts: their checksums do
	// not match, and the next start reads history.
	if err := fs.Rename(FileNew, File); err != nil {
		return err
	}
	if err := fs.Rename(NamesNew, NamesFile); err != nil {
		return err // the files before go on, without a name: a start reads history
	}
	c.r.f.Close()
	c.r.nf.Close()
	c.r.f, c.r.nf = c.to.f, c.to.nf
	c.r.names, c.r.nameNo, c.r.nameEnd, c.r.hole = c.to.names, c.to.nameNo, c.to.nameEnd, c.first-1
	return nil
}

// chunk copies the next records; r.mu is held.
func (c *recordCopy) chunk(n uint64) error {
	if n == 0 {
		return nil
	}
	buf := make([]byte, n*recordSize)
	recs, err := c.r.chunkLocked(c.upTo+1, c.upTo+n, buf)
	if err != nil {
		return err
	}
	out := make([]byte, 0, n*recordSize)
	for _, rec := range recs {
		b, err := c.to.encode(rec)
		if err != nil {
			return err
		}
		out = append(out, b...)
	}
	if _, err := c.to.f.WriteAt(out, int64(c.upTo)*recordSize); err != nil {
		return err
	}
	c.upTo += uint64(len(recs))
	return nil
}
