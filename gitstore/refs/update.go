package refs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// Update is what one ref of the server's shall be.
type Update struct {
	Name string
	New  object.ID // zero: the ref shall not be
	// Symbolic is set instead of New for a ref that shall point at another.
	Symbolic string
	// Noted is the value last noted, zero if there was none (or the ref is
	// symbolic). It and New may stand there, and any of Also, what the
	// journals lead to; anything else was set by somebody else.
	Noted object.ID
	Also  []object.ID
}

func (u *Update) deletes() bool { return u.New.IsZero() && u.Symbolic == "" }

// reached reports whether the ref is what it shall be.
func (u *Update) reached(r Ref) bool {
	return !r.Damaged && r.ID == u.New && r.Symbolic == u.Symbolic
}

// ours reports whether what stands there is what we may have set.
func (u *Update) ours(r Ref) bool {
	if r.Damaged {
		return false
	}
	if u.reached(r) || r.Symbolic == "" && r.ID == u.Noted {
		return true
	}
	return r.Symbolic == "" && slices.Contains(u.Also, r.ID)
}

func (u *Update) content() string {
	if u.Symbolic != "" {
		return "ref: " + u.Symbolic + "\n"
	}
	return u.New.String() + "\n"
}

// Foreign is a value that somebody else had set where a ref of ours belongs.
type Foreign struct {
	Ref      string
	ID       object.ID // zero: removed, damaged, or symbolic to nothing
	Symbolic string    // what it pointed at, if it was symbolic
	Damaged  bool
	KeptAs   string // "refs/foreign/<n>", empty where there is nothing to keep
}

// maxBatch bounds how many temporary files and locks one Update has at a time.
const maxBatch = 128

// Update moves refs, in the given order, and returns once that is durable. At
// the first error it stops: what stands before it in the order may have been
// moved, and the same updates can be given again. A *LockedError tells of a
// lock that was held until ctx's deadline (10 s where it has none). The values
// that others had set are returned in any case. When ShadowRef is set, HeadRef
// is made to point at it.
func (s *Store) Update(ctx context.Context, updates []Update) ([]Foreign, error) {
	for i := range updates {
		if u := &updates[i]; !ValidName(u.Name) || u.Symbolic != "" && !ValidName(u.Symbolic) {
			return nil, fmt.Errorf("refs: %q is not a ref name", u.Name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &batch{s: s, dirs: make(map[string]bool)}
	for chunk := range slices.Chunk(updates, maxBatch) {
		if slices.ContainsFunc(chunk, func(u Update) bool { return u.Name == ShadowRef && !u.deletes() }) {
			chunk = append(slices.Clip(chunk), Update{Name: HeadRef, Symbolic: ShadowRef})
		}
		if err := b.run(ctx, chunk); err != nil {
			return b.foreign, err
		}
	}
	return b.foreign, nil
}

// EnsureLinks puts the symbolic refs right: HEAD where it is missing or
// damaged (a person may point it elsewhere), HeadRef in any case once
// ShadowRef is there, for git-fsck(1) objects to one that points at nothing.
func (s *Store) EnsureLinks(ctx context.Context) ([]Foreign, error) {
	var updates []Update
	head, err := s.read(HEAD)
	if err != nil {
		return nil, err
	}
	if !head.found() {
		updates = append(updates, Update{Name: HEAD, Symbolic: ShadowRef})
	}
	shadow, err := s.read(ShadowRef)
	if err != nil {
		return nil, err
	}
	if shadow.found() {
		updates = append(updates, Update{Name: HeadRef, Symbolic: ShadowRef})
	}
	return s.Update(ctx, updates)
}

// batch is one chunk of an Update at work, s.mu held.
type batch struct {
	s       *Store
	dirs    map[string]bool // of the repository, to be synced
	foreign []Foreign
}

func (b *batch) run(ctx context.Context, updates []Update) (err error) {
	temps, err := b.write(updates)
	defer func() {
		for _, t := range temps {
			if t != "" {
				b.s.fs.Remove(t) // what is left goes at the next Open
			}
		}
	}()
	for i := 0; err == nil && i < len(updates); {
		if !updates[i].deletes() {
			err = b.set(ctx, &updates[i], &temps[i])
			i++
			continue
		}
		n := 1
		for i+n < len(updates) && updates[i+n].deletes() {
			n++
		}
		err = b.delete(ctx, updates[i:i+n])
		i += n
	}
	// What was renamed before an error is made durable all the same.
	return errors.Join(err, b.sync())
}

// write puts the new values into temporary files, on disk when it returns:
// all are begun before the first is waited for. A ref that is already what it
// shall be gets none.
func (b *batch) write(updates []Update) (temps []string, err error) {
	temps = make([]string, len(updates))
	files := make([]vfs.File, 0, len(updates))
	for i := range updates {
		u := &updates[i]
		if u.deletes() {
			continue
		}
		if r, err := b.s.read(u.Name); err == nil && u.reached(r) {
			continue
		}
		var f vfs.File
		if f, err = b.s.createTemp(&temps[i], []byte(u.content())); err != nil {
			break
		}
		files = append(files, f)
	}
	for _, f := range files {
		if err == nil {
			err = f.Sync()
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	return temps, err
}

// createTemp makes a temporary file whose write-out has begun.
func (s *Store) createTemp(name *string, data []byte) (vfs.File, error) {
	temp := s.tempName()
	f, err := s.fs.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	*name = temp
	if _, err = f.Write(data); err == nil {
		err = f.StartWriteout()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// writeTemp makes a temporary file that is on disk.
func (s *Store) writeTemp(data []byte) (string, error) {
	var temp string
	f, err := s.createTemp(&temp, data)
	if err == nil {
		err = f.Sync()
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil && temp != "" {
		s.fs.Remove(temp)
	}
	return temp, err
}

// set moves one ref under its lock.
func (b *batch) set(ctx context.Context, u *Update, temp *string) (err error) {
	if *temp == "" {
		b.reached(u.Name)
		return nil
	}
	unlock, err := b.lockRef(ctx, u.Name)
	if err != nil {
		return err
	}
	defer func() {
		if uerr := unlock(); err == nil {
			err = uerr
		}
	}()
	cur, err := b.s.read(u.Name)
	if err != nil {
		return err
	}
	if !u.ours(cur) {
		if err := b.keep(ctx, cur); err != nil {
			return err
		}
	}
	if !cur.found() {
		if err := b.clearWay(ctx, u.Name); err != nil {
			return err
		}
	}
	err = b.s.fs.Rename(*temp, b.s.path(u.Name))
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		// The ref is packed, and a folder of that name is left over.
		if err = b.removeTree(u.Name); err == nil {
			err = b.s.fs.Rename(*temp, b.s.path(u.Name))
		}
	}
	if err != nil {
		return err
	}
	*temp = ""
	b.touch(u.Name)
	return nil
}

// lockRef takes a ref's lock. The folder is made if need be: git removes
// empty ones at any time.
func (b *batch) lockRef(ctx context.Context, name string) (func() error, error) {
	const tries = 10
	for try := 0; ; try++ {
		unlock, err := b.s.lock(ctx, name)
		if err == nil || try == tries {
			return unlock, err
		}
		switch {
		case notExist(err):
			err = b.mkdir(parent(name))
		case errors.Is(err, syscall.ENOTDIR):
			err = nil
		default:
			return nil, err
		}
		if err == nil || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			err = b.clearParents(ctx, name)
		}
		if err != nil {
			return nil, err
		}
	}
}

// mkdir makes a folder of the repository and those above it, to be synced
// with the batch.
func (b *batch) mkdir(dir string) error {
	err := b.s.fs.Mkdir(b.s.path(dir), 0o777)
	if notExist(err) && parent(dir) != "." {
		if err = b.mkdir(parent(dir)); err == nil {
			err = b.s.fs.Mkdir(b.s.path(dir), 0o777)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		info, lerr := b.s.fs.Lstat(b.s.path(dir))
		switch {
		case lerr == nil && !info.IsDir():
			return err
		case lerr != nil && !notExist(lerr):
			return lerr
		}
		err = nil
	}
	if err == nil {
		b.dirs[dir] = true
		b.dirs[parent(dir)] = true
	}
	return err
}

// touch has the folder of a changed file synced, and the first time those
// above it too: a process that was killed may have made them.
func (b *batch) touch(name string) {
	dir := parent(name)
	b.dirs[dir] = true
	for !b.s.settled[dir] && dir != "." {
		dir = parent(dir)
		b.dirs[dir] = true
	}
	if b.s.packedPending {
		b.dirs["."] = true
	}
}

// reached is touch for a ref that was found to be what it shall be.
func (b *batch) reached(name string) {
	if !b.s.settled[parent(name)] || b.s.packedPending {
		b.touch(name)
	}
}

// sync makes the folders' entries durable, each folder once.
func (b *batch) sync() error {
	var failed error
	for dir := range b.dirs {
		if err := b.s.syncDir(dir); err != nil {
			failed = err
		}
	}
	clear(b.dirs)
	return failed
}

// syncDir syncs a folder of the repository, or if it went meanwhile the one
// that it went from.
func (s *Store) syncDir(dir string) error {
	err := s.fs.SyncDir(s.repoPath(dir))
	if err == nil {
		s.settled[dir] = true
		if dir == "." {
			s.packedPending = false
		}
		return nil
	}
	delete(s.settled, dir)
	if dir != "." && (notExist(err) || errors.Is(err, syscall.ENOTDIR)) {
		return s.syncDir(parent(dir))
	}
	return err
}

// repoPath is path for folders, "." being the repository itself.
func (s *Store) repoPath(dir string) string {
	if dir == "." {
		return s.repo
	}
	return s.path(dir)
}

func parent(name string) string { return path.Dir(name) }
