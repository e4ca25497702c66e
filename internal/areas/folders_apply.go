package areas

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace/op"
)

const (
	tries   = 8        // for a file that a program writes meanwhile
	maxEdit = 64 << 20 // what OpEdit reads at most if the operation sets no limit, in bytes
)

// staged is new content, complete and synced, that no path names yet.
type staged struct {
	id   object.ID
	size int64 // bytes
	temp string
	f    *Folders
}

// discard removes content that is not used; once it is in place it does nothing.
func (s *staged) discard() {
	if s != nil && s.temp != "" {
		_ = s.f.fs.Remove(s.temp)
		s.temp = ""
	}
}

// stage takes content in. TooLarge "file_too_large" above the limit; NoSpace.
func (f *Folders) stage(ctx context.Context, body io.Reader) (*staged, error) {
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
	s := &staged{temp: temp, f: f}
	n, err := io.Copy(h, io.LimitReader(Reader{Ctx: ctx, R: body}, f.o.MaxFile+1))
	switch {
	case err != nil:
	case n > f.o.MaxFile:
		err = errs.New(errs.TooLarge, "file_too_large", "The file is over the limit of %d bytes.", f.o.MaxFile)
	default:
		if s.id, s.size, err = Hash(ctx, h, n); err == nil {
			err = h.Datasync()
		}
	}
	err = errors.Join(err, h.Close())
	if err != nil {
		s.discard()
		return nil, errs.Wrap(err, "")
	}
	return s, nil
}

// Op is an operation of the write service in an area: OpWrite (of Data or Body),
// OpEdit, OpDelete, OpRename, OpChmod or OpMkdir. Nothing of it is recorded, so
// Force is only that a missing path is no error, and what MustBe refuses is a Conflict.
type Op struct {
	op.Op       // its paths are those of the area
	Area   Area // of Path
	ToArea Area // of To; empty: Area
}

func (o *Op) at() Path { return Path{Area: o.Area, Path: o.Path} }

func (o *Op) to() Path {
	if o.ToArea == "" {
		return Path{Area: o.Area, Path: o.To}
	}
	return Path{Area: o.ToArea, Path: o.To}
}

// Result is what an operation did.
type Result struct {
	op.OpResult
	Area, ToArea Area      // ToArea: of a rename
	When         time.Time // of a write, the file's; UTC
}

// Apply does the operations in order, all or none, and then calls also, whose
// error takes them back too: that is how a batch spans a task's folders and
// its workspace. A nil also is allowed.
func (f *Folders) Apply(ctx context.Context, ops []Op, also func() error) ([]Result, error) {
	contents := make([]*staged, len(ops))
	defer func() {
		for _, s := range contents {
			s.discard()
		}
	}()
	for i := range ops { // without the lock: a client may be slow
		if ops[i].Kind != op.OpWrite {
			continue
		}
		body := ops[i].Body
		if body == nil {
			body = bytes.NewReader(ops[i].Data)
		}
		var err error
		if contents[i], err = f.stage(ctx, body); err != nil {
			return nil, err
		}
	}
	f.write.Lock()
	defer f.write.Unlock()
	tx := areaTx{f: f, dirs: map[string]bool{}}
	results := make([]Result, 0, len(ops))
	saved := false
	err := func() error {
		for i := range ops {
			if err := ctx.Err(); err != nil {
				return errs.Wrap(err, "")
			}
			r, err := tx.do(ctx, &ops[i], contents[i])
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
