package pack

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"umbra/gitstore/object"
)

// MergeOptions says what of several packs goes into one, and how.
type MergeOptions struct {
	// Keep reports whether an object is wanted; nil selects all.
	Keep func(object.ID) bool
	// Delta names an object that this one, if it is whole, is likely close to:
	// the version of the file or folder before. It is used if it has been
	// written by then and saves a third. Nil: nothing is made a delta again.
	Delta func(object.ID) (base object.ID, ok bool)
	// MetaFirst puts what is no blob before the blobs: who reads a history over a
	// network finds its commits and trees together.
	MetaFirst bool
	// Last lists objects in the order of their importance, which need not be in a source.
	// As many as take LastMax bytes of the pack are written at its end, whole, the first of
	// them last: one range of the file has them and the index behind it.
	Last    []object.ID
	LastMax int64
	// Between is called now and then between two objects; an error ends the merge.
	Between  func() error
	MaxDepth int   // deltas on each other; 0: 50, as git
	MaxDelta int64 // largest object made a new delta, bytes; 0: 4 MiB
}

const (
	defaultMaxDepth = 50
	defaultMaxDelta = 4 << 20
	// betweenEvery is after how many objects MergeOptions.Between is called.
	betweenEvery = 256
	// maxLast is the largest blob that MergeOptions.Last puts at the end, in bytes.
	maxLast = 64 << 10
)

// MergeStats counts what Merge did, in objects.
type MergeStats struct {
	Copied     int   // as they were, or whole at the end
	Compressed int   // were stored
	Deltified  int   // made a delta
	Inflated   int   // were a delta, now whole
	Duplicates int   // were there already; with MetaFirst each object that is no blob once more
	Dropped    int   // not kept
	Bytes      int64 // by which the pack has grown
}

// Merge writes the objects of several packs, in this order, each once. Compressed
// data is copied as it is, once its checksum is verified; a small object that was
// only stored is compressed, and a delta that would depend on too many others, or
// whose base is not kept, is made again. Memory: the indexes of dst and of one
// source, LastMax, and a few objects. It leaves dst open for more; on an error dst is of no
// use any longer.
func Merge(ctx context.Context, dst *Writer, src []*Pack, opt MergeOptions) (MergeStats, error) {
	m := &merger{w: dst, src: src, opt: opt}
	if m.opt.MaxDepth <= 0 {
		m.opt.MaxDepth = defaultMaxDepth
	}
	if m.opt.MaxDelta <= 0 {
		m.opt.MaxDelta = defaultMaxDelta
	}
	before := dst.Size()
	last, err := m.encodeLast()
	if err != nil {
		return m.stats, err
	}
	if opt.MetaFirst {
		for _, p := range src {
			if err := m.pack(ctx, p, true); err != nil {
				return m.stats, err
			}
		}
	}
	for _, p := range src {
		if err := m.pack(ctx, p, false); err != nil {
			return m.stats, err
		}
	}
	for _, e := range slices.Backward(last) {
		if m.w.Has(e.id) {
			continue // the base of a delta that a source has
		}
		m.stats.Copied++
		if err := m.w.AddEncoded(e.id, e.entry); err != nil {
			return m.stats, err
		}
	}
	m.stats.Bytes = dst.Size() - before
	return m.stats, nil
}

// encoded is an object's entry.
type encoded struct {
	id    object.ID
	entry []byte
}

// encodeLast returns the entries for the end of the pack.
func (m *merger) encodeLast() (last []encoded, err error) {
	m.last = make(map[object.ID]bool)
	size := int64(0)
	for _, id := range m.opt.Last {
		if m.last[id] || m.w.Has(id) || !m.keep(id) {
			continue
		}
		for _, p := range m.src {
			if ok, err := p.Has(id); err != nil {
				return nil, err
			} else if !ok {
				continue
			}
			kind, n, err := p.Info(id)
			if err != nil {
				return nil, err
			}
			if kind == object.Blob && n > maxLast {
				break
			}
			kind, data, err := m.get(p, id)
			if err != nil {
				return nil, err
			}
			e := encoded{id, AppendEntry(nil, kind, data, m.w.level)}
			if size += int64(len(e.entry)); size > m.opt.LastMax {
				return last, nil
			}
			m.last[id] = true
			last = append(last, e)
			break
		}
	}
	return last, nil
}

type merger struct {
	w     *Writer
	src   []*Pack
	opt   MergeOptions
	stats MergeStats
	last  map[object.ID]bool // are written at the end
	seen  int                // objects of the sources so far
}

// pack writes what one source has, or what of it is no blob.
func (m *merger) pack(ctx context.Context, p *Pack, meta bool) error {
	all, err := p.Layout()
	if err != nil {
		return err
	}
	for i := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if m.seen++; m.opt.Between != nil && m.seen%betweenEvery == 0 {
			if err := m.opt.Between(); err != nil {
				return err
			}
		}
		if m.last[all[i].ID] {
			continue
		}
		if meta {
			kind, _, err := p.Info(all[i].ID)
			if err != nil {
				return err
			}
			if kind == object.Blob {
				continue
			}
		}
		switch {
		case m.w.Has(all[i].ID):
			m.stats.Duplicates++
		case !m.keep(all[i].ID):
			m.stats.Dropped++
		default:
			if err := m.entry(p, all, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *merger) keep(id object.ID) bool { return m.opt.Keep == nil || m.opt.Keep(id) }

// entry writes entry i, and before it the bases that come only after it in its
// pack, as a REF_DELTA's may.
func (m *merger) entry(p *Pack, all []Located, i int) error {
	waiting := []int{i}
	for len(waiting) > 0 {
		e := all[waiting[len(waiting)-1]]
		if m.w.Has(e.ID) {
			// A base of two that waited. Counted when it was written.
			waiting = waiting[:len(waiting)-1]
			continue
		}
		h, err := p.header(e.Offset)
		if err != nil {
			return err
		}
		if h.Kind != OfsDelta && h.Kind != RefDelta {
			err = m.whole(p, e, h)
		} else {
			var b int
			if b, err = baseIndex(p, all, e, h); err != nil {
				return err
			}
			if base := all[b].ID; !m.w.Has(base) && m.keep(base) {
				if waiting = append(waiting, b); len(waiting) > maxChain {
					return corrupt("more than %d deltas on each other", maxChain)
				}
				continue
			}
			err = m.delta(p, e, all[b].ID)
		}
		if err != nil {
			return err
		}
		waiting = waiting[:len(waiting)-1]
	}
	return nil
}

// baseIndex finds a delta's base in the layout.
func baseIndex(p *Pack, all []Located, e Located, h EntryHeader) (int, error) {
	off, err := p.base(e.Offset, h)
	if err != nil {
		return 0, err
	}
	i, ok := slices.BinarySearchFunc(all, off, func(l Located, off int64) int { return cmp.Compare(l.Offset, off) })
	if !ok {
		return 0, corrupt("no entry at byte %d, the base of %v", off, e.ID)
	}
	return i, nil
}

// whole writes what is no delta: as one, if there is a good base, or as it is. What
// was only stored is compressed.
func (m *merger) whole(p *Pack, e Located, h EntryHeader) error {
	base, hinted := m.hint(e.ID)
	hinted = hinted && h.Size <= m.opt.MaxDelta
	size := e.End - e.Offset
	stored := size >= h.Size && h.Size >= storedBelow && h.Size <= smallMax
	if !hinted && !stored {
		m.stats.Copied++
		return m.w.CopyRaw(p, e, object.Zero)
	}
	kind, data, err := m.get(p, e.ID)
	if err != nil {
		return err
	}
	var entry []byte
	if stored {
		entry = AppendEntry(nil, kind, data, m.w.level)
		stored = int64(len(entry)) < size
		size = min(size, int64(len(entry)))
	}
	if hinted {
		if done, err := m.deltify(e.ID, kind, data, base, size); done || err != nil {
			return err
		}
	}
	if stored {
		m.stats.Compressed++
		return m.w.AddEncoded(e.ID, entry)
	}
	m.stats.Copied++
	return m.w.CopyRaw(p, e, object.Zero)
}

// delta copies a delta onto its base, or makes it again where it cannot be
// there.
func (m *merger) delta(p *Pack, e Located, base object.ID) error {
	if d, ok := m.w.Depth(base); ok && d < m.opt.MaxDepth {
		m.stats.Copied++
		return m.w.CopyRaw(p, e, base)
	}
	kind, data, err := m.get(p, e.ID)
	if err != nil {
		return err
	}
	entry := AppendEntry(nil, kind, data, m.w.level)
	if base, ok := m.hint(e.ID); ok && int64(len(data)) <= m.opt.MaxDelta {
		done, err := m.deltify(e.ID, kind, data, base, int64(len(entry)))
		if done || err != nil {
			return err
		}
	}
	m.stats.Inflated++
	return m.w.AddEncoded(e.ID, entry)
}

// get reads an object and checks its id, since it is going to be rewritten.
func (m *merger) get(p *Pack, id object.ID) (object.Kind, []byte, error) {
	kind, data, err := p.Get(id)
	if err == nil && !p.check && object.Hash(kind, data) != id {
		err = corrupt("object %v has other bytes", id)
	}
	return kind, data, err
}

// hint gives the base that the caller proposes, if a delta may be on it.
func (m *merger) hint(id object.ID) (object.ID, bool) {
	if m.opt.Delta == nil {
		return object.Zero, false
	}
	base, ok := m.opt.Delta(id)
	if !ok || base == id {
		return object.Zero, false
	}
	d, ok := m.w.Depth(base)
	return base, ok && d < m.opt.MaxDepth
}

// deltify writes an object as a delta of base if that takes at most two thirds
// of size bytes.
func (m *merger) deltify(id object.ID, kind object.Kind, data []byte, base object.ID, size int64) (bool, error) {
	baseData, ok, err := m.base(base, kind)
	if !ok || err != nil {
		return false, err
	}
	fits := func(stream []byte) bool { return 3*int64(len(stream)) <= 2*size }
	delta := object.SpliceDelta(baseData, data)
	var stream []byte
	// The cheap way is as good as the thorough one where one place was edited.
	if len(delta) <= len(data)/8 {
		stream = appendDeflated(nil, delta, m.w.level)
	}
	if stream == nil || !fits(stream) {
		delta = packfile.DiffDelta(baseData, data)
		// History must not depend on a foreign search.
		if again, err := ApplyDelta(baseData, delta); err != nil || !bytes.Equal(again, data) {
			return false, nil
		}
		stream = appendDeflated(nil, delta, m.w.level)
	}
	if !fits(stream) {
		return false, nil
	}
	m.stats.Deltified++
	return true, m.w.addDelta(id, base, int64(len(delta)), stream)
}

// base reads an object that dst holds from the source that it came from. False
// where it is of another kind, too large or from elsewhere.
func (m *merger) base(id object.ID, kind object.Kind) ([]byte, bool, error) {
	for _, p := range m.src {
		ok, err := p.Has(id)
		if err != nil {
			return nil, false, err
		}
		if !ok {
			continue
		}
		k, size, err := p.Info(id)
		if err != nil || k != kind || size > m.opt.MaxDelta {
			return nil, false, err
		}
		_, data, err := m.get(p, id)
		return data, err == nil, err
	}
	return nil, false, nil
}
