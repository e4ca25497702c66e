package repo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"

	"umbra/gitstore/object"
	"umbra/gitstore/records"
	"umbra/gitstore/refs"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// Boundary is where the history begins after older commits were dropped: a
// commit whose tree is there and whose parents are not, which is git's shallow
// boundary (gitrepository-layout(5), shallow). The zero value: nothing was
// dropped.
type Boundary struct {
	Commit object.ID
	Seq    uint64
}

// Whole reports whether the history goes back to its first commit.
func (b Boundary) Whole() bool { return b.Seq == 0 }

// Boundary gives where the history begins.
func (h History) Boundary() Boundary {
	if b := h.r.Begins.Load(); b != nil {
		return *b
	}
	return Boundary{}
}

// ErrDropped is what asking for anything before the boundary gives: errs.Gone,
// "history_dropped".
func ErrDropped() error { return records.ErrDropped() }

// Graft takes the parents from the boundary's commit, as git does.
func (r *Repo) Graft(c *Commit) *Commit {
	if b := r.Begins.Load(); b != nil && c.ID == b.Commit {
		c.Parent = object.ID{}
	}
	return c
}

// absent is the error for an object that is nowhere: dropped, where anything
// was, since an object's id does not say whether it was.
func (r *Repo) absent(id object.ID) error {
	if r.Begins.Load() != nil {
		return ErrDropped()
	}
	return Missing(id)
}

// LoadBoundary finds at a start where the history begins: the newest of what
// the note says and what git's own file says. A crash may have left either
// behind; both are made to say the same.
func (r *Repo) LoadBoundary(ctx context.Context) error {
	lines, err := r.Refs.Shallow()
	if err != nil {
		return err
	}
	noted, _ := r.Note.Get(refs.Boundary)
	var newest Boundary
	for _, id := range append([]object.ID{noted}, lines...) {
		if id.IsZero() {
			continue
		}
		c, err := r.ReadCommit(ctx, id)
		if errs.Is(err, errs.NotFound) {
			continue // another one's shallow commit, or an older boundary
		}
		if err != nil {
			return err
		}
		if c.Seq > newest.Seq {
			newest = Boundary{Commit: id, Seq: c.Seq}
		}
	}
	if newest.Whole() {
		return nil
	}
	r.Begins.Store(&newest)
	if !slices.Contains(lines, newest.Commit) {
		err := r.ShallowAt(ctx, newest)
		var locked *refs.LockedError
		if errors.As(err, &locked) {
			r.Warn("%s is held by another process: git commands will fail where the history was dropped", locked.Name)
		} else if err != nil {
			return err
		}
	}
	if noted != newest.Commit {
		return r.NoteBoundary(newest.Commit)
	}
	return nil
}

// NoteBoundary puts the boundary's commit into the ref log. The file `shallow` says
// the same to git; the log is ours alone, so that a user who removes that file does
// not make every git command fail for good.
func (r *Repo) NoteBoundary(id object.ID) error {
	return r.Note.Append(0, refs.Value{Name: refs.Boundary, ID: id})
}

// ShallowAt adds the boundary to git's file. Older boundaries stay in it
// until their commits are gone: what a user's ref may still reach ends there.
func (r *Repo) ShallowAt(ctx context.Context, b Boundary) error {
	return r.Refs.SetShallow(ctx, func(lines []object.ID) []object.ID {
		if !slices.Contains(lines, b.Commit) {
			lines = append(lines, b.Commit)
		}
		return lines
	})
}

// SweepShallow takes those lines out of git's file whose commits are gone.
func (r *Repo) SweepShallow(ctx context.Context) error {
	b := r.Boundary()
	if b.Whole() {
		return nil
	}
	return r.Refs.SetShallow(ctx, func(lines []object.ID) []object.ID {
		return slices.DeleteFunc(lines, func(id object.ID) bool { return id != b.Commit && !r.hasAny(id) })
	})
}

// The ids of dropped commits are kept in the file `dropped`, so that a lookup of
// such a commit reports that it was dropped and not that it never existed:
// dropEntry bytes for each, by its number.
const dropEntry = 24 // the id and a CRC-32 over number and id

func encodeDropped(seq uint64, id object.ID) []byte {
	b := make([]byte, dropEntry)
	copy(b, id[:])
	binary.BigEndian.PutUint32(b[20:], sumDropped(seq, id))
	return b
}

func sumDropped(seq uint64, id object.ID) uint32 {
	var head [8]byte
	binary.BigEndian.PutUint64(head[:], seq)
	return crc32.Update(crc32.ChecksumIEEE(head[:]), crc32.IEEETable, id[:])
}

// NoteDropped writes down the ids of the commits before a number, durable when
// it returns. What the file has already is left.
func (r *Repo) NoteDropped(ctx context.Context, before uint64) error {
	f, err := r.FS.OpenFile(storedir.Dropped, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	const chunk = 4096
	from := r.Index.Begin()
	for from < before {
		to := min(from+chunk, before) - 1
		var buf []byte
		for seq := from; seq <= to; seq++ {
			rec, err := r.Index.At(seq)
			if err != nil {
				return err
			}
			buf = append(buf, encodeDropped(seq, rec.Commit)...)
		}
		if _, err := f.WriteAt(buf, int64(from-1)*dropEntry); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		from = to + 1
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return r.FS.SyncDir(".")
}

// wasDropped reports whether an id is that of a commit that was dropped: a scan,
// for who asked for something that is not there.
func (r *Repo) wasDropped(id object.ID) bool {
	found := false
	r.eachDropped(func(other object.ID) bool {
		found = other == id
		return !found
	})
	return found
}

// DroppedWith gives the dropped commits whose ids begin with digits, up to limit.
func (h History) DroppedWith(digits string, limit int) (out []object.ID) {
	h.r.eachDropped(func(id object.ID) bool {
		if hex := id.String(); len(digits) <= len(hex) && hex[:len(digits)] == digits {
			out = append(out, id)
		}
		return len(out) < limit
	})
	return out
}

func (r *Repo) eachDropped(fn func(object.ID) bool) {
	if r.Boundary().Whole() {
		return
	}
	if r.Base != nil {
		r.Base.eachDropped(fn)
		return
	}
	data, err := vfs.ReadFile(r.FS, storedir.Dropped)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.Log.Warn("the list of dropped commits is not read", "error", err)
		}
		return
	}
	for seq := uint64(1); len(data) >= dropEntry; seq++ {
		var id object.ID
		copy(id[:], data)
		if binary.BigEndian.Uint32(data[20:]) == sumDropped(seq, id) && !fn(id) {
			return
		}
		data = data[dropEntry:]
	}
}

func (b Boundary) String() string { return fmt.Sprintf("number %d, %s", b.Seq, b.Commit) }
