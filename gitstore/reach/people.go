package reach

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/index"

	"umbra/gitstore/object"
	"umbra/gitstore/packset"
	"umbra/gitstore/rawpack"
	"umbra/gitstore/refs"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// PeoplesRoots gives the objects from which what people put into the repository
// is reached, as git-gc(1) has it: refs that are not ours, HEAD where it does
// not lead to our history, reflogs but for those of our tasks' records, and the
// HEADs, refs, reflogs and indexes of worktrees. A ref of the store that another process
// moved counts for theirs.
func PeoplesRoots(ctx context.Context, s *repo.Repo) ([]object.ID, error) {
	p := &rootFinder{s: s, seen: make(map[object.ID]bool)}
	for _, step := range []func() error{p.refs, p.logs, p.worktrees} {
		if err := step(); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	if err := p.index(storedir.Repo + "/index"); err != nil {
		return nil, err
	}
	return p.out, nil
}

type rootFinder struct {
	s    *repo.Repo
	seen map[object.ID]bool
	out  []object.ID
}

func (p *rootFinder) add(ids ...object.ID) {
	for _, id := range ids {
		if !id.IsZero() && !p.seen[id] {
			p.seen[id] = true
			p.out = append(p.out, id)
		}
	}
}

func (p *rootFinder) refs() error {
	list, err := p.s.Refs.List("refs/")
	if err != nil {
		return err
	}
	for _, r := range list {
		if noted, ok := p.s.Note.Get(r.Name); !ok || noted != r.ID {
			p.add(r.ID) // zero for a symbolic one: what it leads to is in the list
		}
	}
	id, symbolic, _, err := p.s.Refs.Read(refs.HEAD)
	if _, damaged := errors.AsType[*refs.DamagedError](err); err != nil && !damaged {
		return err
	}
	if err == nil && symbolic == "" {
		p.add(id)
	}
	return nil
}

func (p *rootFinder) logs() error {
	return p.tree(storedir.Repo+"/logs", func(name string, data []byte) {
		rest, ours := strings.CutPrefix(name, storedir.Repo+"/logs/"+storedir.Tasks)
		if ours && path.Base(rest) == "info" {
			return
		}
		p.add(repo.ReflogIDs(data)...)
	})
}

// worktrees reads what git keeps of each (gitrepository-layout(5)).
func (p *rootFinder) worktrees() error {
	list, err := p.s.FS.ReadDir(storedir.Repo + "/worktrees")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		dir := storedir.Repo + "/worktrees/" + e.Name
		if err != nil || !e.Type.IsDir() {
			continue
		}
		names, lerr := p.s.FS.ReadDir(dir)
		if lerr != nil && !errors.Is(lerr, fs.ErrNotExist) {
			return lerr
		}
		for _, f := range names {
			if strings.HasSuffix(f.Name, "HEAD") && f.Type.IsRegular() {
				if data, err := vfs.ReadFile(p.s.FS, dir+"/"+f.Name); err == nil {
					p.value(data)
				}
			}
		}
		if err = p.tree(dir+"/logs", func(_ string, data []byte) { p.add(repo.ReflogIDs(data)...) }); err == nil {
			err = p.tree(dir+"/refs", func(_ string, data []byte) { p.value(data) })
		}
		if err == nil {
			err = p.index(dir + "/index")
		}
		if err != nil {
			return err
		}
	}
	return err
}

// value reads a loose ref's value; a symbolic one is no root.
func (p *rootFinder) value(data []byte) {
	data, _, _ = bytes.Cut(data, []byte("\n"))
	if id, err := object.ParseID(string(bytes.TrimSpace(data))); err == nil {
		p.add(id)
	}
}

// tree reads every file below a folder.
func (p *rootFinder) tree(dir string, fn func(name string, data []byte)) error {
	list, err := p.s.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		name := dir + "/" + e.Name
		if e.Type.IsDir() {
			if err := p.tree(name, fn); err != nil {
				return err
			}
			continue
		}
		if !e.Type.IsRegular() || strings.HasSuffix(e.Name, ".lock") {
			continue
		}
		data, err := vfs.ReadFile(p.s.FS, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		fn(name, data)
	}
	return nil
}

// index adds what a person has staged. One that does not read is passed over, as
// git would not read it either.
func (p *rootFinder) index(name string) error {
	data, err := vfs.ReadFile(p.s.FS, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var x index.Index
	if err := index.NewDecoder(bytes.NewReader(data)).Decode(&x); err != nil {
		p.s.Log.Warn("a worktree's index is not read", "index", name, "error", err)
		return nil
	}
	for _, e := range x.Entries {
		if uint32(e.Mode)&0o170000 != 0o160000 {
			p.add(object.ID(e.Hash))
		}
	}
	return nil
}

// PeoplesLimit gives the number of the oldest of our commits that must stay for
// people: of each of their roots, the newest that it reaches. 0: none.
func PeoplesLimit(ctx context.Context, s *repo.Repo, theirs *Theirs) (uint64, error) {
	roots, err := PeoplesRoots(ctx, s)
	if err != nil {
		return 0, err
	}
	var limit uint64
	seen := make(map[object.ID]bool)
	for len(roots) > 0 {
		id := roots[len(roots)-1]
		roots = roots[:len(roots)-1]
		if seen[id] {
			continue
		}
		seen[id] = true
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		kind, data, ok, err := theirs.Meta(id)
		if err != nil {
			return 0, err
		}
		switch {
		case !ok:
		case kind == object.Tag:
			if tag, err := object.ParseTag(data); err == nil {
				roots = append(roots, tag.Object)
			}
		case kind == object.Commit:
			if c, err := repo.ParseCommit(id, data); err == nil && c.Seq > 0 {
				if rec, err := s.Index.At(c.Seq); err == nil && rec.Commit == id {
					if limit == 0 || c.Seq < limit {
						limit = c.Seq
					}
					continue
				}
			}
			c, err := object.ParseCommit(data)
			if err != nil {
				continue
			}
			roots = append(roots, c.Parents...)
		}
	}
	return limit, nil
}

// Theirs reads all objects of the repository: ours, and those in packs and
// loose files that users made. For one goroutine; close frees
// the packs.
type Theirs struct {
	s     *repo.Repo
	Packs []*TheirPack
}

// TheirPack is a pack that is not one of the store's.
type TheirPack struct {
	*packset.File
	Kept  bool      // has a .keep, of the person's
	Since time.Time // when it was written
}

// OpenTheirs opens the packs that are not ours.
func OpenTheirs(s *repo.Repo) (*Theirs, error) {
	t := &Theirs{s: s}
	names, err := s.FS.ReadDir(storedir.Packs)
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool)
	for _, e := range names {
		there[e.Name] = true
	}
	bases := make([]string, 0, len(names))
	for name := range there {
		if base, ok := strings.CutSuffix(name, storedir.Idx); ok && there[base+".pack"] {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	for _, base := range bases {
		if s.Packs.Has(base) {
			continue
		}
		if there[base+".keep"] {
			text, err := vfs.ReadFile(s.FS, path.Join(storedir.Packs, base+".keep"))
			if _, ours := packset.ParseKeep(string(text)); err == nil && ours {
				continue // one that is being linked, or removed
			}
		}
		info, err := s.FS.Lstat(path.Join(storedir.Packs, base+".pack"))
		var f *packset.File
		if err == nil {
			f, err = s.Packs.Open(base)
		}
		if err != nil {
			continue // it is gone, or no git could read it
		}
		t.Packs = append(t.Packs, &TheirPack{File: f, Kept: there[base+".keep"], Since: time.Unix(0, info.MtimeNs)})
	}
	return t, nil
}

// Close releases the packs.
func (t *Theirs) Close() {
	for _, f := range t.Packs {
		f.Release()
	}
}

// holder gives the pack of others that has an object; nil if none has.
func (t *Theirs) holder(id object.ID) (*TheirPack, error) {
	for _, f := range t.Packs {
		if ok, err := f.Pack.Has(id); ok || err != nil {
			return f, err
		}
	}
	return nil, nil
}

// Meta gives an object, the bytes of a blob excepted. ok is false for what is
// nowhere.
func (t *Theirs) Meta(id object.ID) (kind object.Kind, data []byte, ok bool, err error) {
	if kind, data, err := t.s.ReadMeta(id); err == nil {
		return kind, data, true, nil
	} else if !repo.IsAbsent(err) {
		return 0, nil, false, err
	}
	f, err := t.holder(id)
	if err != nil {
		return 0, nil, false, err
	}
	if f != nil {
		kind, _, err := f.Pack.Info(id)
		if err == nil && kind != object.Blob {
			kind, data, err = f.Pack.Get(id)
		}
		return kind, data, err == nil, err
	}
	return rawpack.LooseMeta(t.s.FS, storedir.Repo+"/objects", object.MaxMeta, id)
}
