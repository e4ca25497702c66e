package refs

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"umbra/gitstore/object"
)

// keep reports a foreign value and, if there is one that can be read, keeps it
// under ForeignPrefix, durable when it returns. The ref's lock is held. The
// same value is kept once.
func (b *batch) keep(ctx context.Context, r Ref) error {
	f := Foreign{Ref: r.Name, ID: r.ID, Symbolic: r.Symbolic, Damaged: r.Damaged}
	if r.Symbolic != "" {
		id, _, err := b.s.Resolve(r.Symbolic)
		if damaged := (*DamagedError)(nil); err != nil && !errors.As(err, &damaged) {
			return err
		}
		f.ID = id
	}
	if !f.ID.IsZero() && (b.s.opt.HasObject == nil || b.s.opt.HasObject(f.ID)) {
		name, err := b.keepID(ctx, f.ID)
		if err != nil {
			return err
		}
		f.KeptAs = name
	}
	if !slices.Contains(b.foreign, f) { // it may be met again behind a lock
		b.foreign = append(b.foreign, f)
	}
	return nil
}

func (b *batch) keepID(ctx context.Context, id object.ID) (string, error) {
	s := b.s
	kept, err := s.List(ForeignPrefix)
	if err != nil {
		return "", err
	}
	var last uint64
	for _, r := range kept {
		if r.ID == id {
			b.reached(r.Name)
			return r.Name, b.sync()
		}
		if n, err := strconv.ParseUint(strings.TrimPrefix(r.Name, ForeignPrefix), 10, 63); err == nil {
			last = max(last, n)
		}
	}
	temp, err := s.writeTemp([]byte(id.String() + "\n"))
	if err != nil {
		return "", err
	}
	for {
		last++
		name := ForeignPrefix + strconv.FormatUint(last, 10)
		done, err := b.keepAs(ctx, name, temp)
		if err != nil {
			s.fs.Remove(temp)
			return "", err
		}
		if done {
			return name, b.sync()
		}
	}
}

// keepAs gives the temporary file a ref's name unless that is taken.
func (b *batch) keepAs(ctx context.Context, name, temp string) (done bool, err error) {
	unlock, err := b.lockRef(ctx, name)
	if err != nil {
		return false, err
	}
	defer func() {
		if uerr := unlock(); err == nil {
			err = uerr
		}
	}()
	cur, err := b.s.read(name)
	if err != nil || cur.found() || cur.Damaged {
		return false, err
	}
	p, err := b.s.packed()
	if err != nil || len(p.under(name+"/")) > 0 {
		return false, err
	}
	if info, err := b.s.fs.Lstat(b.s.path(name)); err == nil && info.IsDir() {
		return false, nil
	}
	b.touch(name)
	return true, b.s.fs.Rename(temp, b.s.path(name))
}

// clearWay moves away refs of other programs that are a directory where name has
// to be a file, or the reverse: git would have refused them next to ours.
// The caller must hold the lock on name.
func (b *batch) clearWay(ctx context.Context, name string) error {
	if err := b.clearParents(ctx, name); err != nil {
		return err
	}
	below, err := b.s.List(name + "/")
	if err != nil {
		return err
	}
	for _, r := range below {
		if err := b.moveAway(ctx, r.Name); err != nil {
			return err
		}
	}
	if info, err := b.s.fs.Lstat(b.s.path(name)); err == nil && info.IsDir() {
		return b.removeTree(name)
	}
	return nil
}

// clearParents moves away refs whose names are folders of name's.
func (b *batch) clearParents(ctx context.Context, name string) error {
	for _, p := range parents(name) {
		r, err := b.s.readAny(p) // refs/x/a. is not a ref to git, but a file of that name is in the way
		if err != nil {
			return err
		}
		if r.found() || r.Damaged {
			if err := b.moveAway(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveAway keeps a ref's value and removes the ref.
func (b *batch) moveAway(ctx context.Context, name string) error {
	unlock, err := b.lockRef(ctx, name)
	if err != nil {
		return err
	}
	cur, err := b.s.readAny(name)
	if err == nil && (cur.found() || cur.Damaged) {
		if err = b.keep(ctx, cur); err == nil {
			err = b.remove(ctx, []string{name})
		}
	}
	if uerr := unlock(); err == nil {
		err = uerr
	}
	return err
}

// removeTree removes a folder under refs/ that holds no refs any more, with
// the empty folders in it. Files that are no refs (temporary ones, a lock)
// stop it.
func (b *batch) removeTree(dir string) error {
	entries, err := b.s.fs.ReadDir(b.s.path(dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type.IsDir() {
			if err := b.removeTree(dir + "/" + e.Name); err != nil {
				return err
			}
		}
	}
	b.touch(dir)
	delete(b.s.settled, dir)
	return b.s.fs.Remove(b.s.path(dir))
}
