package records

import (
	"errors"
	"io/fs"
	"os"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// FileNew is the commit index being rewritten.
const FileNew = File + ".new"

// Remap gives the records from a number on other commits. They are written into
// a new file: a power cut must not leave some of the old ones among the new,
// which could not be distinguished. Where the disk does not take it they stay in
// memory, and save sees to the old file.
func (r *Index) Remap(from uint64, to func(object.ID) object.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.tail {
		if r.tail[i].Seq >= from {
			r.tail[i].Commit = to(r.tail[i].Commit)
		}
	}
	if r.broken && r.n < from {
		return
	}
	f, err := r.rewriteFile(from, to)
	if err == nil {
		r.f.Close()
		r.f, r.hole = f, r.first-1
		return
	}
	r.opt.Log.Warn("commit index not rewritten; kept in memory", "error", err)
	var tail []Record
	for seq := max(from, r.first); seq <= r.n; seq++ {
		rec, err := r.atLocked(seq)
		if err != nil {
			break // as damaged as it was before; a start reads history
		}
		rec.Commit = to(rec.Commit)
		tail = append(tail, rec)
	}
	r.n, r.broken, r.stale = min(r.n, from-1), true, true
	r.tail = append(tail, r.tail...)
}

// rewriteFile makes the new file and gives it the name; mu is held.
func (r *Index) rewriteFile(from uint64, to func(object.ID) object.ID) (f vfs.File, err error) {
	if f, err = r.opt.FS.OpenFile(FileNew, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	const chunk = 1024
	for seq := r.first; seq <= r.n; {
		end := min(seq+chunk-1, r.n)
		buf := make([]byte, 0, (end-seq+1)*recordSize)
		for n := seq; n <= end; n++ {
			rec, err := r.atLocked(n)
			if err != nil {
				return f, err
			}
			if n >= from {
				rec.Commit = to(rec.Commit)
			}
			b, err := r.encode(rec)
			if err != nil {
				return f, err
			}
			buf = append(buf, b...)
		}
		if _, err := f.WriteAt(buf, int64(seq-1)*recordSize); err != nil {
			return f, err
		}
		seq = end + 1
	}
	return f, r.opt.FS.Rename(FileNew, File)
}

// Save removes a file whose records are no more true.
func (r *Index) Save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stale {
		return nil
	}
	if err := r.opt.FS.Remove(File); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.stale = false
	return nil
}
