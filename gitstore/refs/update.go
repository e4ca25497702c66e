package refs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// Update is what one ref of the server's shall be.
type Update struct {
	Name string
	New  object.ID // zero: the ref shall not be
	// Symbolic is set instead of New for a ref that shall point at another.
	Symbolic string
	// Before are the values besides New that the ref may have, zero: it may be
	// absent. Any other was set by another process. Nil: it may be absent.
	Before []object.ID
}

func (u *Update) deletes() bool { return u.New.IsZero() && u.Symbolic == "" }

// reached reports whether the ref is what it shall be.
func (u *Update) reached(r Ref) bool {
	return !r.Damaged && r.ID == u.New && r.Symbolic == u.Symbolic
}

// ours reports whether the ref has a value that we may have set.
func (u *Update) ours(r Ref) bool {
	if r.Damaged {
		return false
	}
	return u.reached(r) || r.Symbolic == "" && (slices.Contains(u.Before, r.ID) || u.Before == nil && r.ID.IsZero())
}

func (u *Update) content() string {
	if u.Symbolic != "" {
		return "ref: " + u.Symbolic + "\n"
	}
	return u.New.String() + "\n"
}

// Foreign is a value that another process had set where one of our refs belongs.
type Foreign struct {
	Ref      string
	ID       object.ID // zero: removed, damaged, or symbolic to nothing
	Symbolic string    // what it pointed at, if it was symbolic
	Damaged  bool
	KeptAs   string // "refs/foreign/<n>", empty where there is nothing to keep
}

// Failed is a ref that could not be moved, or not durably; the same update can be
// given again.
type Failed struct {
	Name string
	Err  error // *LockedError: another process held a lock until the deadline
}

// Join returns the errors of all refs that failed, nil for none.
func Join(failed []Failed) error {
	list := make([]error, len(failed))
	for i, f := range failed {
		list[i] = fmt.Errorf("%s: %w", f.Name, f.Err)
	}
	return errors.Join(list...)
}

// maxBatch bounds how many temporary files and locks one Update has at a time.
const maxBatch = 128

// Update moves refs, in the given order, and returns once that is durable. A ref
// that fails does not stop the others. One whose lock is held is tried again after
// them, until ctx's deadline (10 s if it has none). The values that others had set
// are returned in any case. When ShadowRef is set, HeadRef is made to point at it.
func (s *Store) Update(ctx context.Context, updates []Update) ([]Foreign, []Failed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &batch{s: s, dirs: make(map[string]bool), unsynced: make(map[string]error), failed: make(map[string]error)}
	at := func(when time.Time, list []Update) {
		ctx, cancel := context.WithDeadline(ctx, when)
		defer cancel()
		for chunk := range slices.Chunk(list, maxBatch) {
			b.run(ctx, chunk)
		}
	}
	at(time.Unix(0, 0), updates) // each lock is tried once
	var again []Update
	for _, u := range updates {
		if _, locked := errors.AsType[*LockedError](b.failed[u.Name]); locked {
			again = append(again, u)
			delete(b.failed, u.Name)
		}
	}
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(defaultWait)
	}
	at(until, again)
	var failed []Failed
	for _, u := range updates {
		if err := b.failed[u.Name]; err != nil {
			failed = append(failed, Failed{u.Name, err})
		}
	}
	return b.foreign, failed
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
	foreign, failed := s.Update(ctx, updates)
	return foreign, Join(failed)
}

// batch is an Update at work, s.mu held.
type batch struct {
	s        *Store
	dirs     map[string]bool  // of the repository, to be synced
	unsynced map[string]error // directories of the chunk that could not be
	failed   map[string]error // by ref
	foreign  []Foreign
}

// fail records that a ref could not be moved.
func (b *batch) fail(name string, err error) {
	if err != nil && b.failed[name] == nil {
		b.failed[name] = err
	}
}

// run moves a chunk of refs.
func (b *batch) run(ctx context.Context, updates []Update) {
	withHead := slices.ContainsFunc(updates, func(u Update) bool { return u.Name == ShadowRef && !u.deletes() })
	if withHead {
		updates = append(slices.Clip(updates), Update{Name: HeadRef, Symbolic: ShadowRef})
	}
	temps := b.write(updates)
	defer func() {
		for _, t := range temps {
			if t != "" {
				b.s.fs.Remove(t) // what is left goes at the next Open
			}
		}
	}()
	for i := 0; i < len(updates); {
		if u := &updates[i]; !u.deletes() {
			if b.failed[u.Name] == nil {
				b.fail(u.Name, b.set(ctx, u, &temps[i]))
			}
			i++
			continue
		}
		n := 1
		for i+n < len(updates) && updates[i+n].deletes() {
			n++
		}
		b.delete(ctx, updates[i:i+n])
		i += n
	}
	// What was renamed before an error is made durable all the same.
	_ = b.sync() // what failed is in b.unsynced
	for dir, err := range b.unsynced {
		for i := range updates {
			if name := updates[i].Name; name == dir || dir == "." || strings.HasPrefix(name, dir+"/") {
				b.fail(name, err)
			}
		}
	}
	clear(b.unsynced)
	if withHead {
		b.fail(ShadowRef, b.failed[HeadRef]) // the caller knows only of that one
		delete(b.failed, HeadRef)
	}
}

// write puts the new values into temporary files, on disk when it returns:
// all are begun before the first is waited for. A ref that is already what it
// shall be gets none.
func (b *batch) write(updates []Update) (temps []string) {
	temps = make([]string, len(updates))
	files := make([]vfs.File, len(updates))
	for i := range updates {
		u := &updates[i]
		if !ValidName(u.Name) || u.Symbolic != "" && !ValidName(u.Symbolic) {
			b.fail(u.Name, fmt.Errorf("refs: %q is not a ref name", u.Name))
			continue
		}
		if u.deletes() {
			continue
		}
		if r, err := b.s.read(u.Name); err == nil && u.reached(r) {
			continue
		}
		var err error
		if files[i], err = b.s.createTemp(&temps[i], []byte(u.content())); err != nil {
			b.fail(u.Name, err)
		}
	}
	for i, f := range files {
		if f == nil {
			continue
		}
		err := f.Sync()
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		b.fail(updates[i].Name, err)
	}
	return temps
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
			if err = b.mkdir(parent(name)); notExist(err) {
				err = nil // git removed one above it again
			}
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
			failed, b.unsynced[dir] = err, err
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
