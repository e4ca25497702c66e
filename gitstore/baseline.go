package gitstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"path"
	"sort"
	"strings"
	"sync"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// AddFile records one file of a baseline: size bytes from r, which must give
// exactly that many. Several goroutines may call it at once.
type AddFile func(p wspath.Path, mode Mode, r io.Reader, size int64) (ID, error)

// Baseline commits a whole tree. fill calls add for every file; their contents
// go into one pack of their own, hashed and compressed where add is called.
// The first commit of a store is made this way; on a store with history the
// tree replaces what was there. m is the message, without entries: Files is
// set to the number of files.
func (s *Store) Baseline(ctx context.Context, m message.Message, fill func(add AddFile) error) (Committed, error) {
	return s.BaselineOf(ctx, m, func(f Fill) error { return fill(f.Add()) })
}

// BaselineOf is Baseline for who may also borrow objects.
func (s *Store) BaselineOf(ctx context.Context, m message.Message, fill func(Fill) error) (Committed, error) {
	var rnd [8]byte
	rand.Read(rnd[:])
	name := path.Join(journalDir, "large-"+hex.EncodeToString(rnd[:]))
	b := &baseline{ctx: ctx, s: s}
	root, sum, err := s.writePack(name, func(w *pack.Writer) (ID, error) {
		b.w = w
		if err := fill(Fill{b}); err != nil {
			return ID{}, err
		}
		return b.trees()
	})
	defer s.removeLarge(name)
	if err != nil {
		return Committed{}, errs.Wrap(err, "")
	}
	if _, err := s.linkPack(name+largeSuffix, name+idxSuffix, sum, keepNote{through: s.Tip().Seq + 1}); err != nil {
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
	ctx context.Context
	s   *Store

	mu    sync.Mutex // w and files
	w     *pack.Writer
	files []baselineFile
}

func (b *baseline) add(p wspath.Path, mode Mode, r io.Reader, size int64) (ID, error) {
	if err := b.ctx.Err(); err != nil {
		return ID{}, err
	}
	id, entry, err := b.encode(r, size)
	if err != nil {
		return id, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if entry != nil {
		err = b.w.AddEncoded(id, entry)
	} else {
		id, err = b.w.AddStream(object.Blob, size, cancellable{b.ctx, r})
	}
	if err != nil {
		return id, err
	}
	b.files = append(b.files, baselineFile{p, mode, id})
	return id, nil
}

// encode hashes and compresses a file of moderate size; a larger one is left
// to the writer, which streams it.
func (b *baseline) encode(r io.Reader, size int64) (ID, []byte, error) {
	if size > b.s.opt.InlineBlob {
		return ID{}, nil, nil
	}
	buf := bytes.NewBuffer(make([]byte, 0, size+1))
	n, err := io.Copy(buf, io.LimitReader(r, size+1))
	if err != nil {
		return ID{}, nil, err
	}
	if n != size {
		return ID{}, nil, pack.ErrLonger
	}
	return object.Hash(object.Blob, buf.Bytes()), pack.AppendEntry(nil, object.Blob, buf.Bytes(), journalLevel), nil
}

// trees writes the folders, deepest first, and gives the root.
func (b *baseline) trees() (ID, error) {
	sort.Slice(b.files, func(i, j int) bool { return b.files[i].path < b.files[j].path })
	return b.folder("", b.files)
}

// folder writes the tree of the files that begin with prefix; files under one
// name are neighbours in byte order of their paths with "/" after the prefix,
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
	return b.w.Add(object.Tree, t.Bytes())
}
