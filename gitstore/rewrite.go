package gitstore

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

// rewriter gives history other bytes: in every commit some blobs are another
// one, and so the trees, the commits and the tags above them change. It reads
// commits oldest first and writes what is new into one pack.
//
// Memory: an id and where it leads to for every tree and every changed commit,
// and two caches of trees.
type rewriter struct {
	s     *Store
	blobs map[ID]bool     // to be replaced
	sums  map[string]bool // their After-Hash
	by    ID              // the blob in their place
	w     *pack.Writer    // nil: only count

	trees   map[ID]ID // every tree that was looked at, and what it becomes
	commits map[ID]ID // the changed ones
	tags    map[ID]ID
	old     treeCache // trees as they are
	made    treeCache // trees as they become, for deltas

	seq     uint64 // the last one that was looked at
	prev    ID     // its tree, as it was
	first   uint64 // the first that changes; 0: none does
	touched uint64 // commits whose tree holds a replaced blob
	tip     Tip    // the last one, as it becomes
}

// rewriteCache bounds each of the two caches, in bytes.
const rewriteCache = 32 << 20

func newRewriter(s *Store, blobs map[ID]bool, sums map[string]bool, w *pack.Writer) (*rewriter, error) {
	r := &rewriter{s: s, blobs: blobs, sums: sums, by: PurgedBlob(), w: w, trees: make(map[ID]ID), commits: make(map[ID]ID), tags: make(map[ID]ID),
		old: newTreeCache(cache.NewBudget(rewriteCache)), made: newTreeCache(cache.NewBudget(rewriteCache))}
	if w == nil {
		return r, nil
	}
	_, err := w.Add(object.Blob, []byte(purgedText))
	return r, err
}

// through takes the history up to a number, going on where it left off. tell is
// told how far it is.
func (r *rewriter) through(ctx context.Context, seq uint64, tell func(done, all int64)) error {
	for r.seq < seq {
		if err := ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		next := r.seq + 1
		id, err := r.s.CommitAt(ctx, next)
		if err == nil {
			err = r.commit(id, next)
		}
		if r.first == 0 && r.tip.Seq == 0 && (errs.Is(err, errs.Gone) || errs.Is(err, errs.NotFound)) {
			err = nil // dropped: history begins later
		}
		if err != nil {
			return fmt.Errorf("commit number %d: %w", next, err)
		}
		r.seq = next
		tell(int64(next), int64(seq))
	}
	return nil
}

// changed reports whether an object is replaced by another.
func (r *rewriter) changed(id ID) bool {
	if r.blobs[id] {
		return true
	}
	if to, ok := r.trees[id]; ok {
		return to != id
	}
	if _, ok := r.commits[id]; ok {
		return true
	}
	_, ok := r.tags[id]
	return ok
}

// is gives what a commit becomes.
func (r *rewriter) is(id ID) ID {
	if to, ok := r.commits[id]; ok {
		return to
	}
	return id
}

func (r *rewriter) commit(id ID, seq uint64) error {
	kind, data, err := r.s.readObject(id, maxMeta)
	if err != nil {
		return err
	}
	if kind != object.Commit {
		return missing(id)
	}
	c, err := object.ParseCommit(data)
	if err != nil {
		return err
	}
	tree, err := r.tree(c.Tree, r.prev)
	if err != nil {
		return err
	}
	if tree != c.Tree {
		r.touched++
	}
	now := r.rewriteText(data, c.Tree, tree)
	to := id
	if !bytes.Equal(now, data) {
		if to, err = r.add(object.Commit, now); err != nil {
			return err
		}
		r.commits[id] = to
		if r.first == 0 {
			r.first = seq
		}
	}
	r.prev, r.tip = c.Tree, Tip{Commit: to, Tree: tree, Seq: seq}
	return nil
}

// rewriteText gives a commit's bytes with other ids in its header and in the
// trailers that name commits, and without the hashes of what is replaced. All
// else stays byte for byte.
func (r *rewriter) rewriteText(data []byte, tree, newTree ID) []byte {
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
			out = append(append(out, "parent "...), r.is(id).String()...)
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
				line = []byte("Reverts: " + r.is(id).String() + "\n")
			}
		case message.KeyClaims:
			if id, err := object.ParseID(string(value)); err == nil {
				line = []byte(message.KeyClaims + ": " + r.is(id).String() + "\n")
			}
		}
		out = append(out, line...)
	}
	return out
}

// tag gives what an annotated tag becomes whose object changes.
func (r *rewriter) tag(id ID) (ID, error) {
	if to, ok := r.tags[id]; ok {
		return to, nil
	}
	kind, data, err := r.s.readObject(id, maxMeta)
	if err != nil {
		return id, err
	}
	if kind != object.Tag {
		return id, missing(id)
	}
	t, err := object.ParseTag(data)
	if err != nil {
		return id, err
	}
	to := r.is(t.Object)
	if to == t.Object {
		return id, nil
	}
	data = bytes.Replace(data, []byte("object "+t.Object.String()), []byte("object "+to.String()), 1)
	now, err := r.add(object.Tag, data)
	if err == nil {
		r.tags[id] = now
	}
	return now, err
}

func (r *rewriter) add(kind object.Kind, data []byte) (ID, error) {
	if r.w == nil {
		return object.Hash(kind, data), nil
	}
	return r.w.Add(kind, data)
}

// read gives a tree as it is.
func (r *rewriter) read(id ID) (*object.TreeData, error) {
	if t, ok := r.old.Get(id); ok {
		return t, nil
	}
	kind, data, err := r.s.readObject(id, maxMeta)
	if err != nil {
		return nil, err
	}
	if kind != object.Tree {
		return nil, missing(id)
	}
	t, err := object.NewTree(data)
	if err == nil {
		r.old.put(id, t)
	}
	return t, err
}

// tree gives what a tree becomes. was is the tree that stood in its place in
// the commit before, zero if none did: what both have needs no second look.
func (r *rewriter) tree(id, was ID) (ID, error) {
	if id == object.EmptyTree {
		return id, nil
	}
	if to, ok := r.trees[id]; ok {
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
			var old ID
			if before != nil {
				if o, ok := before.Find(e.Name); ok && o.Mode == object.Dir {
					old = o.ID
				}
			}
			if now, err = r.tree(e.ID, old); err != nil {
				return id, err
			}
		case r.blobs[e.ID]:
			now = r.by
		}
		if now != e.ID {
			e.ID = now
			set = append(set, e)
		}
	}
	now := id
	if len(set) > 0 {
		if now, err = r.makeTree(t, set, r.trees[was]); err != nil {
			return id, err
		}
	}
	r.trees[id] = now
	return now, nil
}

// differs gives the entries that have to be looked at: all, or those in which
// the tree differs from one that stays as it is.
func (r *rewriter) differs(t *object.TreeData, was ID) (before *object.TreeData, from, to int, err error) {
	if was.IsZero() || was == object.EmptyTree {
		return nil, 0, t.Len(), nil
	}
	if before, err = r.read(was); err != nil {
		if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Gone) {
			return nil, 0, t.Len(), nil
		}
		return nil, 0, 0, err
	}
	if same, known := r.trees[was]; !known || same != was {
		return before, 0, t.Len(), nil
	}
	from, to, _, _ = t.Window(before)
	return before, from, to, nil
}

// makeTree writes a tree, as a delta of what stood in its place before where
// that is at hand.
func (r *rewriter) makeTree(t *object.TreeData, set []object.Entry, before ID) (ID, error) {
	n, err := t.With(set, nil)
	if err != nil {
		return ID{}, err
	}
	id := n.ID()
	if r.w == nil || r.w.Has(id) {
		return id, nil
	}
	r.made.put(id, n)
	if base, ok := r.made.Get(before); ok && before != id {
		if d, in := r.w.Depth(before); in && d < maxDeltaDepth {
			if delta := object.SpliceDelta(base.Bytes(), n.Bytes()); len(delta) < len(n.Bytes())/2 {
				return id, r.w.AddDelta(id, before, delta)
			}
		}
	}
	_, err = r.w.Add(object.Tree, n.Bytes())
	return id, err
}
