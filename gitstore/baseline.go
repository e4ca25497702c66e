package gitstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sort"
	"strings"
	"sync"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/pace"
	"umbra/gitstore/pack"
	"umbra/gitstore/packset"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// AddFile records one file of a baseline: size bytes from r, which must give
// exactly that many. Several goroutines may call it at once.
type AddFile func(p wspath.Path, mode Mode, r io.Reader, size int64) (ID, error)

// Baseline commits a whole tree. fill calls add for every file; their contents
// go into packs of their own, hashed and compressed where add is called.
// The first commit of a store is made this way; on a store with history the
// tree replaces what was there. m is the message, without entries: Files is
// set to the number of files.
func (s *Store) Baseline(ctx context.Context, m message.Message, fill func(add AddFile) error) (Committed, error) {
	return s.BaselineOf(ctx, m, func(f Fill) error { return fill(f.Add()) })
}

// BaselineOf is Baseline for who may also borrow objects, or go on with a
// baseline that was cut off: each time so many bytes have been written
// (Options.BaselinePart) they are made durable as a pack that a later attempt
// finds.
func (s *Store) BaselineOf(ctx context.Context, m message.Message, fill func(Fill) error) (Committed, error) {
	if err := s.opt.Room(1); err != nil {
		return Committed{}, err
	}
	b := &baseline{ctx: ctx, s: s}
	if err := b.begin(); err != nil {
		return Committed{}, errs.Wrap(err, "")
	}
	defer func() { b.parts.Wait(); b.abandon() }()
	if err := fill(Fill{b}); err != nil {
		return Committed{}, errs.Wrap(err, "")
	}
	root, err := b.trees()
	if err != nil {
		return Committed{}, errs.Wrap(err, "")
	}
	b.parts.Wait()
	last := b.current
	b.current = nil
	s.r.Upkeep.Rooting.RLock()
	defer s.r.Upkeep.Rooting.RUnlock()
	if err := errors.Join(b.failed, b.end(last)); err != nil {
		return Committed{}, errs.Wrap(err, "")
	}
	m.Files = len(b.files)
	return s.Commit(ctx, Draft{Root: root, Message: m, AllowEmpty: true})
}

type baselineFile struct {
	path wspath.Path
	mode Mode
	id   ID
}

type baseline struct {
	ctx    context.Context
	s      *Store
	onPart func() // called when a part is durable; may be nil

	mu      sync.Mutex // what follows
	current *packset.Writer
	files   []baselineFile
	ending  map[*packset.Writer]func(ID) bool // full ones that are not in the set yet
	ended   int                               // how many were
	failed  error                             // of a part that could not be made durable
	parts   sync.WaitGroup                    // those that are being made durable
}

// begin starts a pack. Called with the lock, or before anybody else has b.
func (b *baseline) begin() (err error) {
	b.current, err = b.s.r.Packs.Begin(packset.NewName())
	return err
}

// end makes a pack durable and takes it into the set.
func (b *baseline) end(p *packset.Writer) error {
	defer b.drop(p)
	sum, err := p.Finish()
	if err != nil {
		return err
	}
	base, err := b.s.r.Packs.Link(p.Name+storedir.Prepared, p.Name+storedir.Idx, sum, packset.Keep{Through: b.s.Tip().Seq + 1})
	if err != nil {
		return err
	}
	return b.s.putBaseline(b.ctx, base)
}

// drop removes what is left of a pack in journal/.
func (b *baseline) drop(p *packset.Writer) {
	p.File.Close()
	b.s.r.Packs.RemovePrepared(p.Name)
}

// abandon drops the pack that was not finished.
func (b *baseline) abandon() {
	if b.current != nil {
		b.drop(b.current)
	}
}

// part closes the current pack if it is large enough, while others add to it.
// The caller must hold the lock.
func (b *baseline) part() error {
	if b.failed != nil || b.current.Pack.Size() < b.s.opt.BaselinePart {
		return b.failed
	}
	full := b.current
	b.current = nil
	if b.ending == nil {
		b.ending = make(map[*packset.Writer]func(ID) bool)
	}
	b.ending[full] = full.Pack.Holds()
	end := func() error {
		err := b.end(full)
		if err == nil && b.onPart != nil {
			b.onPart()
		}
		return err
	}
	var err error
	if b.s.opt.Foreground {
		err = end()
		delete(b.ending, full)
		b.ended++
	} else {
		b.parts.Go(func() {
			err := end()
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.ending, full)
			b.ended++
			b.failed = errors.Join(b.failed, err)
		})
	}
	if err == nil {
		err = b.begin()
	}
	b.failed = errors.Join(b.failed, err)
	return err
}

func (b *baseline) add(p wspath.Path, mode Mode, r io.Reader, size int64) (ID, error) {
	if err := b.ctx.Err(); err != nil {
		return ID{}, err
	}
	if size <= b.s.opt.InlineBlob {
		data := bytes.NewBuffer(make([]byte, 0, size+1))
		n, err := io.Copy(data, io.LimitReader(r, size+1))
		if err == nil && n != size {
			err = pack.ErrLonger
		}
		if err != nil {
			return ID{}, err
		}
		return (&Adder{b: b}).Bytes(p, mode, data.Bytes())
	}
	// The floor of free room holds for a long baseline too: it ends, and what it
	// wrote goes.
	if err := b.s.opt.Room(size); err != nil {
		return ID{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil {
		return ID{}, b.failed // the next pack could not be begun
	}
	id, err := b.current.Pack.AddStream(object.Blob, size, pace.Reader(b.ctx, r))
	if err != nil {
		return id, collision(err)
	}
	return id, b.added(baselineFile{p, mode, id})
}

// added notes a file whose content is in the current pack, or elsewhere. Called
// with the lock.
func (b *baseline) added(f baselineFile) error {
	b.files = append(b.files, f)
	return b.part()
}

// Adder records files that were read whole, for one goroutine: it compresses
// into the same memory again and again.
type Adder struct {
	b     *baseline
	entry []byte
}

// keptEntry is how much memory an Adder keeps, in bytes.
const keptEntry = 1 << 20

// Bytes is AddFile for what is in memory. It keeps nothing of data.
func (a *Adder) Bytes(p wspath.Path, mode Mode, data []byte) (ID, error) {
	b := a.b
	if err := b.ctx.Err(); err != nil {
		return ID{}, err
	}
	if int64(len(data)) > b.s.opt.InlineBlob {
		return b.add(p, mode, bytes.NewReader(data), int64(len(data)))
	}
	id := object.Hash(object.Blob, data)
	b.mu.Lock()
	ended := b.ended
	b.mu.Unlock()
	known, err := b.s.r.Packs.HasObject(id)
	if err == nil && known {
		err = checkKnown(data)
	}
	if err != nil {
		return id, err
	}
	if !known {
		a.entry = pack.AppendEntry(a.entry[:0], object.Blob, data, pack.Fast)
		if err := b.s.opt.Room(int64(len(a.entry))); err != nil {
			return id, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil {
		return id, b.failed
	}
	if !known {
		if known, err = b.written(id, ended); err == nil && known {
			err = checkKnown(data)
		}
		if err != nil {
			return id, err
		}
	}
	if !known {
		if err := b.current.Pack.AddEncoded(id, a.entry); err != nil {
			return id, err
		}
	}
	if cap(a.entry) > keptEntry {
		a.entry = nil
	}
	return id, b.added(baselineFile{p, mode, id})
}

// checkKnown fails if data, whose id is another object's already, is part of a
// collision. Only then could bytes get lost, so other files need no check: it
// would cost a baseline 7% of its processor time.
func checkKnown(data []byte) error {
	_, err := object.HashChecked(object.Blob, data)
	return collision(err)
}

// written reports whether the baseline itself has written an object. ended is
// b.ended from before the store was asked. Called with the lock.
func (b *baseline) written(id ID, ended int) (bool, error) {
	if b.current.Pack.Has(id) {
		return true, nil
	}
	for _, has := range b.ending {
		if has(id) {
			return true, nil
		}
	}
	if b.ended == ended {
		return false, nil
	}
	return b.s.r.Packs.HasObject(id)
}

// known records a file whose content an earlier attempt has made durable.
func (b *baseline) known(p wspath.Path, mode Mode, id ID) (bool, error) {
	if ok, err := b.s.r.Packs.HasObject(id); !ok || err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files = append(b.files, baselineFile{p, mode, id})
	return true, nil
}

// trees writes the folders, deepest first, and gives the root.
func (b *baseline) trees() (ID, error) {
	sort.Slice(b.files, func(i, j int) bool { return b.files[i].path < b.files[j].path })
	return b.folder("", b.files)
}

// folder writes the tree of the files that begin with prefix; files under one
// name are neighbors in byte order of their paths with "/" after the prefix,
// but "a-b" sorts between "a" and "a/c": they are gathered by name.
func (b *baseline) folder(prefix string, files []baselineFile) (ID, error) {
	var entries []object.Entry
	below := make(map[string][]baselineFile)
	var names []string
	for _, f := range files {
		name, _, deeper := strings.Cut(string(f.path)[len(prefix):], "/")
		if !deeper {
			entries = append(entries, object.Entry{Name: name, Mode: f.mode, ID: f.id})
			continue
		}
		if below[name] == nil {
			names = append(names, name)
		}
		below[name] = append(below[name], f)
	}
	for _, name := range names {
		id, err := b.folder(prefix+name+"/", below[name])
		if err != nil {
			return id, err
		}
		entries = append(entries, object.Entry{Name: name, Mode: object.Dir, ID: id})
	}
	t, err := object.EncodeTree(entries)
	if err != nil {
		return ID{}, err
	}
	if err := checkTree(t); err != nil {
		return ID{}, err
	}
	return b.current.Pack.Add(object.Tree, t.Bytes())
}
