// Package rewrite gives history other bytes: what a purge writes.
// It reads through a Source and adds to one pack.
package rewrite

import (
	"bytes"
	"context"
	"fmt"

	"umbra/gitstore/cache"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/errs"
)

// Source is the history as it is.
type Source interface {
	// Object returns an object of a kind, whole.
	Object(id object.ID, kind object.Kind) ([]byte, error)
	// CommitAt returns the commit with a number.
	CommitAt(ctx context.Context, seq uint64) (object.ID, error)
}

// Tip is a commit, its tree and its number.
type Tip struct {
	Commit, Tree object.ID
	Seq          uint64
}

// Rewriter replaces some blobs by another one in every commit, and so the trees, the
// commits and the tags above them change. It reads commits oldest first and writes
// what is new into one pack. It is not safe for concurrent use.
//
// Memory: an id and where it leads to for every tree and every changed commit,
// and two caches of trees.
type Rewriter struct {
	Blobs   map[object.ID]bool      // to be replaced
	Trees   map[object.ID]object.ID // every tree that was checked, and what it becomes
	Commits map[object.ID]object.ID // the changed ones
	Tags    map[object.ID]object.ID

	Seq     uint64    // the last one that was checked
	Prev    object.ID // its tree, as it was
	First   uint64    // the first that changes; 0: none does
	Touched uint64    // commits whose tree holds a replaced blob
	Tip     Tip       // the last one, as it becomes

	src  Source
	sums map[string]bool // After-Hash of the blobs
	by   object.ID       // the blob in their place
	w    *pack.Writer    // nil: only count
	old  trees           // as they are
	made trees           // as they become, for deltas
}

type trees = *cache.Cache[object.ID, *object.TreeData]

const (
	// cacheBytes bounds each of the two caches.
	cacheBytes = 32 << 20
	// maxDepth is git's own default of a chain's length (gc.aggressive excepted).
	maxDepth = 50
)

// New returns a rewriter that puts text in place of blobs, whose After-Hash are sums;
// w nil: it counts only.
func New(src Source, blobs map[object.ID]bool, sums map[string]bool, text string, w *pack.Writer) (*Rewriter, error) {
	r := &Rewriter{src: src, Blobs: blobs, sums: sums, by: object.Hash(object.Blob, []byte(text)), w: w,
		Trees: make(map[object.ID]object.ID), Commits: make(map[object.ID]object.ID), Tags: make(map[object.ID]object.ID),
		old:  cache.New[object.ID, *object.TreeData](cache.NewBudget(cacheBytes)),
		made: cache.New[object.ID, *object.TreeData](cache.NewBudget(cacheBytes))}
	if w == nil {
		return r, nil
	}
	_, err := w.Add(object.Blob, []byte(text))
	return r, err
}

// Through rewrites the history up to a number, continuing where it stopped, and
// reports the progress to its last argument.
func (r *Rewriter) Through(ctx context.Context, seq uint64, progress func(done, all int64)) error {
	for r.Seq < seq {
		if err := ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		next := r.Seq + 1
		id, err := r.src.CommitAt(ctx, next)
		if err == nil {
			err = r.commit(id, next)
		}
		if r.First == 0 && r.Tip.Seq == 0 && (errs.Is(err, errs.Gone) || errs.Is(err, errs.NotFound)) {
			err = nil // dropped: history begins later
		}
		if err != nil {
			return fmt.Errorf("commit number %d: %w", next, err)
		}
		r.Seq = next
		progress(int64(next), int64(seq))
	}
	return nil
}

// Changed reports whether an object is replaced by another.
func (r *Rewriter) Changed(id object.ID) bool {
	if r.Blobs[id] {
		return true
	}
	if to, ok := r.Trees[id]; ok {
		return to != id
	}
	if _, ok := r.Commits[id]; ok {
		return true
	}
	_, ok := r.Tags[id]
	return ok
}

// Is gives what a commit becomes.
func (r *Rewriter) Is(id object.ID) object.ID {
	if to, ok := r.Commits[id]; ok {
		return to
	}
	return id
}

func (r *Rewriter) commit(id object.ID, seq uint64) error {
	data, err := r.src.Object(id, object.Commit)
	if err != nil {
		return err
	}
	c, err := object.ParseCommit(data)
	if err != nil {
		return err
	}
	tree, err := r.tree(c.Tree, r.Prev)
	if err != nil {
		return err
	}
	if tree != c.Tree {
		r.Touched++
	}
	now := r.rewriteText(data, c.Tree, tree)
	to := id
	if !bytes.Equal(now, data) {
		if to, err = r.add(object.Commit, now); err != nil {
			return err
		}
		r.Commits[id] = to
		if r.First == 0 {
			r.First = seq
		}
	}
	r.Prev, r.Tip = c.Tree, Tip{Commit: to, Tree: tree, Seq: seq}
	return nil
}

// rewriteText gives a commit's bytes with other ids in its header and in the
// trailers that name commits, and without the hashes of what is replaced. All
// else stays byte for byte.
func (r *Rewriter) rewriteText(data []byte, tree, newTree object.ID) []byte {
	head, body, _ := bytes.Cut(data, []byte("\n\n"))
	out := make([]byte, 0, len(data))
	for line := range bytes.Lines(head) {
		key, value, _ := bytes.Cut(bytes.TrimRight(line, "\n"), []byte(" "))
		id, err := object.ParseID(string(value))
		switch {
		case err == nil && string(key) == "tree" && id == tree:
			out = append(append(out, "tree "...), newTree.String()...)
			out = append(out, '\n')
		case err == nil && string(key) == "parent":
			out = append(append(out, "parent "...), r.Is(id).String()...)
			out = append(out, '\n')
		default:
			out = append(out, line...)
		}
	}
	// head lost its last line end to the cut.
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	out = append(out, '\n')
	block := max(bytes.LastIndex(bytes.TrimRight(body, "\n"), []byte("\n\n"))+1, 0)
	out = append(out, body[:block]...)
	for line := range bytes.Lines(body[block:]) {
		key, value, _ := bytes.Cut(bytes.TrimRight(line, "\n"), []byte(": "))
		switch string(key) {
		case "After-Hash":
			if r.sums[string(value)] {
				line = []byte("After-Hash: " + message.Purged + "\n")
			}
		case "Reverts":
			if id, err := object.ParseID(string(value)); err == nil {
				line = []byte("Reverts: " + r.Is(id).String() + "\n")
			}
		case message.KeyClaims:
			if id, err := object.ParseID(string(value)); err == nil {
				line = []byte(message.KeyClaims + ": " + r.Is(id).String() + "\n")
			}
		}
		out = append(out, line...)
	}
	return out
}

// Tag gives what an annotated tag becomes whose object changes.
func (r *Rewriter) Tag(id object.ID) (object.ID, error) {
	if to, ok := r.Tags[id]; ok {
		return to, nil
	}
	data, err := r.src.Object(id, object.Tag)
	if err != nil {
		return id, err
	}
	return r.TagText(id, data)
}

// TagText is like Tag, of a tag's bytes.
func (r *Rewriter) TagText(id object.ID, data []byte) (object.ID, error) {
	if to, ok := r.Tags[id]; ok {
		return to, nil
	}
	t, err := object.ParseTag(data)
	if err != nil {
		return id, err
	}
	to := r.Is(t.Object)
	if to == t.Object {
		return id, nil
	}
	data = bytes.Replace(data, []byte("object "+t.Object.String()), []byte("object "+to.String()), 1)
	now, err := r.add(object.Tag, data)
	if err == nil {
		r.Tags[id] = now
	}
	return now, err
}

func (r *Rewriter) add(kind object.Kind, data []byte) (object.ID, error) {
	if r.w == nil {
		return object.Hash(kind, data), nil
	}
	return r.w.Add(kind, data)
}

// read gives a tree as it is.
func (r *Rewriter) read(id object.ID) (*object.TreeData, error) {
	if t, ok := r.old.Get(id); ok {
		return t, nil
	}
	data, err := r.src.Object(id, object.Tree)
	if err != nil {
		return nil, err
	}
	t, err := object.NewTree(data)
	if err == nil {
		r.old.Put(id, t, int64(t.Size()))
	}
	return t, err
}

// tree gives what a tree becomes. was is the tree that was in its place in
// the commit before, zero if none did: what both have needs no second look.
func (r *Rewriter) tree(id, was object.ID) (object.ID, error) {
	if id == object.EmptyTree {
		return id, nil
	}
	if to, ok := r.Trees[id]; ok {
		return to, nil
	}
	t, err := r.read(id)
	if err != nil {
		return id, err
	}
	before, from, to, err := r.differs(t, was)
	if err != nil {
		return id, err
	}
	var set []object.Entry
	for i := from; i < to; i++ {
		e := t.At(i)
		now := e.ID
		switch {
		case e.Mode == object.Dir:
			var old object.ID
			if before != nil {
				if o, ok := before.Find(e.Name); ok && o.Mode == object.Dir {
					old = o.ID
				}
			}
			if now, err = r.tree(e.ID, old); err != nil {
				return id, err
			}
		case r.Blobs[e.ID]:
			now = r.by
		}
		if now != e.ID {
			e.ID = now
			set = append(set, e)
		}
	}
	now := id
	if len(set) > 0 {
		if now, err = r.makeTree(t, set, r.Trees[was]); err != nil {
			return id, err
		}
	}
	r.Trees[id] = now
	return now, nil
}

// differs gives the entries that have to be checked: all, or those in which
// the tree differs from one that stays as it is.
func (r *Rewriter) differs(t *object.TreeData, was object.ID) (before *object.TreeData, from, to int, err error) {
	if was.IsZero() || was == object.EmptyTree {
		return nil, 0, t.Len(), nil
	}
	if before, err = r.read(was); err != nil {
		if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Gone) {
			return nil, 0, t.Len(), nil
		}
		return nil, 0, 0, err
	}
	if same, known := r.Trees[was]; !known || same != was {
		return before, 0, t.Len(), nil
	}
	from, to, _, _ = t.Window(before)
	return before, from, to, nil
}

// makeTree writes a tree, as a delta of what was in its place before where
// that is at hand.
func (r *Rewriter) makeTree(t *object.TreeData, set []object.Entry, before object.ID) (object.ID, error) {
	n, err := t.With(set, nil)
	if err != nil {
		return object.ID{}, err
	}
	id := n.ID()
	if r.w == nil || r.w.Has(id) {
		return id, nil
	}
	r.made.Put(id, n, int64(n.Size()))
	if base, ok := r.made.Get(before); ok && before != id {
		if d, in := r.w.Depth(before); in && d < maxDepth {
			if delta := object.SpliceDelta(base.Bytes(), n.Bytes()); len(delta) < len(n.Bytes())/2 {
				return id, r.w.AddDelta(id, before, delta)
			}
		}
	}
	_, err = r.w.Add(object.Tree, n.Bytes())
	return id, err
}
