package areas

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
)

// Staged is new content, complete and synced, that no path names yet.
type Staged struct {
	ID   object.ID
	Size int64 // bytes
	temp string
	f    *Folders
}

// Discard removes content that is not used; after a successful Apply it does
// nothing.
func (s *Staged) Discard() {
	if s.temp != "" {
		_ = s.f.fs.Remove(s.temp)
		s.temp = ""
	}
}

// Stage takes content in. TooLarge "file_too_large" above the limit; NoSpace.
func (f *Folders) Stage(ctx context.Context, body io.Reader) (*Staged, error) {
	if f.o.Room != nil {
		if err := f.o.Room(1); err != nil {
			return nil, err
		}
	}
	temp := TempName()
	h, err := f.fs.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	s := &Staged{temp: temp, f: f}
	n, err := io.Copy(h, io.LimitReader(Reader{Ctx: ctx, R: body}, f.o.MaxFile+1))
	switch {
	case err != nil:
	case n > f.o.MaxFile:
		err = errs.New(errs.TooLarge, "file_too_large", "The file is over the limit of %d bytes.", f.o.MaxFile)
	default:
		if s.ID, s.Size, err = Hash(ctx, h, n); err == nil {
			err = h.Datasync()
		}
	}
	err = errors.Join(err, h.Close())
	if err != nil {
		s.Discard()
		return nil, errs.Wrap(err, "")
	}
	return s, nil
}

// AreaOpKind is what an operation does.
type AreaOpKind uint8

// The operations in an area.
const (
	AreaWrite AreaOpKind = iota
	AreaDelete
	AreaRename
	AreaChmod
)

// AreaOp is one operation on one path.
type AreaOp struct {
	Kind      AreaOpKind
	Path, To  AreaPath    // To: of a rename
	Content   *Staged     // of a write
	Mode      object.Mode // of a chmod; of a write, 0 keeps what is there
	Folder    bool        // of a delete or rename: a folder must be at Path
	Recursive bool        // a delete takes a folder with everything in it
	Overwrite bool        // a rename replaces what is there
	// Match are the blob ids (hex) that the file may have, "*" for any; a
	// write with NewOnly requires that nothing is there.
	Match   []string
	NewOnly bool
}

// AreaResult is what an operation did.
type AreaResult struct {
	Operation string // create, modify, delete, rename, chmod; "" for nothing
	Path, To  AreaPath
	Blob      object.ID // after a write or chmod
	Size      int64     // bytes, likewise
	When      time.Time // UTC
}

// Apply does the operations in order, all or none, and then calls also, whose
// error takes them back too: that is how a batch spans a task's folders and
// its workspace. A nil also is allowed.
func (f *Folders) Apply(ctx context.Context, ops []AreaOp, also func() error) ([]AreaResult, error) {
	f.write.Lock()
	defer f.write.Unlock()
	tx := areaTx{f: f, dirs: map[string]bool{}}
	results := make([]AreaResult, 0, len(ops))
	saved := false
	err := func() error {
		for i := range ops {
			if err := ctx.Err(); err != nil {
				return errs.Wrap(err, "")
			}
			r, err := tx.do(&ops[i])
			if err != nil {
				return err
			}
			results = append(results, r)
		}
		if err := tx.sync(); err != nil {
			return err
		}
		if err := f.save(ctx); err != nil {
			return err
		}
		if saved = true; also != nil {
			return also()
		}
		return nil
	}()
	if err != nil {
		tx.rollback()
		if saved {
			if serr := f.save(context.WithoutCancel(ctx)); serr != nil {
				err = errors.Join(err, serr)
			}
		}
		return nil, err
	}
	tx.finish()
	return results, nil
}

// save puts what the folders have into what several servers share. write is held.
func (f *Folders) save(ctx context.Context) error {
	if f.o.Shared == nil {
		return nil
	}
	return f.o.Shared.Save(ctx, f.fs)
}
