package purge

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/rawpack"
	"umbra/gitstore/repo"
	"umbra/gitstore/rewrite"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
)

// finder finds out which objects lead to something that a rewriter replaces, also
// those that people's git wrote into the repository.
type finder struct {
	s     *Purger
	r     *rewrite.Rewriter
	packs []*foreignPack
	memo  map[object.ID]bool
}

// foreignPack is a pack in the repository that is not one of the store's.
type foreignPack struct {
	base string
	p    *pack.Pack
	keep []byte // its .keep, nil if it has none
}

// openForeign opens everything in objects/pack that is not one of the store's. unreadable
// are packs that cannot be looked into; what has no index is no pack to git.
func (h *finder) openForeign() (unreadable []string, err error) {
	names, err := h.s.FS.ReadDir(storedir.Packs)
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool)
	for _, e := range names {
		there[e.Name] = true
	}
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name, ".pack")
		if !ok || h.s.Packs.Has(base) {
			continue
		}
		if !there[base+storedir.Idx] {
			unreadable = append(unreadable, base)
			continue
		}
		p, err := pack.Open(h.s.FS, path.Join(storedir.Packs, base+".pack"), path.Join(storedir.Packs, base+storedir.Idx), pack.Options{MaxObject: object.MaxMeta})
		if errors.Is(err, pack.ErrCorrupt) {
			unreadable = append(unreadable, base)
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by a gc
		}
		if err != nil {
			return nil, err
		}
		f := &foreignPack{base: base, p: p}
		h.packs = append(h.packs, f)
		if there[base+".keep"] {
			if f.keep, err = readAll(h.s, path.Join(storedir.Packs, base+".keep")); err != nil {
				return nil, err
			}
		}
	}
	return unreadable, nil
}

func (h *finder) close() {
	for _, f := range h.packs {
		f.p.Close()
	}
}

// frame is an object whose kin are being checked.
type frame struct {
	id   object.ID
	kin  []object.ID
	next int
}

// from reports whether an object is replaced or leads to one that is. A missing
// object leads to none.
func (h *finder) from(ctx context.Context, id object.ID) (bool, error) {
	if v, ok := h.memo[id]; ok {
		return v, nil
	}
	stack := []frame{{id: id}}
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		if f.next == 0 && f.kin == nil {
			if err := ctx.Err(); err != nil {
				return false, errs.Wrap(err, "")
			}
			done, err := h.open(f)
			if err != nil {
				return false, err
			}
			if done {
				stack = stack[:len(stack)-1]
				continue
			}
		}
		deeper := false
		for f.next < len(f.kin) {
			v, known := h.memo[f.kin[f.next]]
			if !known {
				stack = append(stack, frame{id: f.kin[f.next]})
				deeper = true
				break
			}
			if v {
				h.memo[f.id] = true
				break
			}
			f.next++
		}
		if deeper {
			continue
		}
		if !h.memo[f.id] {
			h.memo[f.id] = false
		}
		stack = stack[:len(stack)-1]
	}
	return h.memo[id], nil
}

// open settles an object, or finds what it refers to.
func (h *finder) open(f *frame) (done bool, err error) {
	if h.r.Changed(f.id) {
		h.memo[f.id] = true
		return true, nil
	}
	if _, looked := h.r.Trees[f.id]; looked {
		h.memo[f.id] = false
		return true, nil
	}
	kind, data, err := h.read(f.id)
	if err != nil {
		return false, err
	}
	switch kind {
	case object.Commit:
		if c, err := repo.ParseCommit(f.id, data); err == nil && c.Seq > 0 && c.Seq <= h.r.Seq {
			if rec, err := h.s.Index.At(c.Seq); err == nil && rec.Commit == f.id {
				break // ours, of before the first that changes
			}
		}
		f.kin = namedIn(data, "tree", "parent")
	case object.Tag:
		f.kin = namedIn(data, "object")
	case object.Tree:
		if h.entries(f, data) {
			h.memo[f.id] = true
			return true, nil
		}
	}
	if len(f.kin) == 0 {
		h.memo[f.id] = false
		return true, nil
	}
	return false, nil
}

// entries adds the folders of a tree, which may be one that we would not write,
// and reports whether one of its files goes.
func (h *finder) entries(f *frame, data []byte) (gone bool) {
	for len(data) > 0 {
		mode, rest, _ := bytes.Cut(data, []byte(" "))
		_, rest, ok := bytes.Cut(rest, []byte{0})
		if !ok || len(rest) < len(object.ID{}) {
			return false
		}
		id := object.ID(rest[:len(object.ID{})])
		data = rest[len(id):]
		switch string(mode) {
		case "40000", "040000":
			f.kin = append(f.kin, id)
		case "160000": // a commit of another repository
		default:
			if h.r.Blobs[id] {
				return true
			}
		}
	}
	return false
}

// namedIn gives the ids in the header lines of a commit or tag that have one of
// the keys.
func namedIn(data []byte, keys ...string) (out []object.ID) {
	head, _, _ := bytes.Cut(data, []byte("\n\n"))
	for line := range bytes.Lines(head) {
		for _, key := range keys {
			if rest, ok := bytes.CutPrefix(line, []byte(key+" ")); ok {
				if id, err := object.ParseID(string(bytes.TrimRight(rest, "\n"))); err == nil {
					out = append(out, id)
				}
			}
		}
	}
	return out
}

// read gives anybody's object; kind 0 where there is none, or one too large to
// refer to anything.
func (h *finder) read(id object.ID) (object.Kind, []byte, error) {
	if f, err := h.s.Holder(id); err != nil {
		return 0, nil, err
	} else if f != nil {
		defer f.Release()
		return kinOnly(f.Pack, id)
	}
	for _, f := range h.packs {
		if ok, err := f.p.Has(id); err == nil && ok {
			kind, data, err := kinOnly(f.p, id)
			if errors.Is(err, pack.ErrCorrupt) || errors.Is(err, pack.ErrNotFound) {
				continue
			}
			return kind, data, err
		}
	}
	kind, data, _ := rawpack.Loose(h.s.FS, storedir.Repo+"/objects", object.MaxMeta, id)
	return kind, data, nil
}

// kinOnly reads an object unless it is a blob, which refers to nothing.
func kinOnly(p *pack.Pack, id object.ID) (object.Kind, []byte, error) {
	kind, size, err := p.Info(id)
	if err != nil || kind == object.Blob || size > object.MaxMeta {
		return kind, nil, err
	}
	return p.Get(id)
}
