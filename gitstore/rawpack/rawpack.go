// Package rawpack reads packs and journals that may be damaged, for repair: as far as
// an index leads, or else as far as a scan comes. What it returns has the hash that
// was asked for.
package rawpack

import (
	"bufio"
	"compress/zlib"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"maps"
	"slices"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/vfs"
)

// Pack is one file. It is for one goroutine.
type Pack struct {
	Name    string          // as Open got it
	Whole   bool            // the trailer is that of its bytes
	Entries []pack.IdxEntry // found by UseIdx or Scan

	f          vfs.File
	size       int64
	byID       map[object.ID]int64
	ends       map[int64]int64 // where each entry ends, by where it begins
	cache      map[int64]Object
	cacheBytes int
}

// Object is an object's kind and bytes.
type Object struct {
	Kind object.Kind
	Data []byte
}

const (
	// repairMax bounds what of a damaged pack is taken into memory.
	repairMax = 2 << 30
	// CacheBytes bounds the inflated objects kept for deltas on them.
	CacheBytes = 64 << 20
	// maxRawDepth is more than the deltas that anybody's git puts on each other.
	maxRawDepth = 4096
)

// Open opens a file and finds out whether its bytes are whole. name is for messages.
func Open(fsys vfs.FS, name, file string) (*Pack, error) {
	f, err := fsys.Open(file)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	p := &Pack{Name: name, f: f, size: info.Size}
	if p.Whole, err = p.sound(); err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

// Close frees the file.
func (p *Pack) Close() { p.f.Close() }

// Holds returns the IDs of the entries that were found, in no order.
func (p *Pack) Holds() iter.Seq[object.ID] { return maps.Keys(p.byID) }

// Trailer reads the last bytes of the file, where a whole pack has its checksum.
func (p *Pack) Trailer() (sum [pack.TrailerSize]byte, err error) {
	_, err = p.f.ReadAt(sum[:], p.size-pack.TrailerSize)
	return sum, err
}

// sound compares a pack's bytes with its trailer.
func (p *Pack) sound() (bool, error) {
	if p.size < pack.HeaderSize+pack.TrailerSize {
		return false, nil
	}
	sum := sha1.New()
	if _, err := io.Copy(sum, io.NewSectionReader(p.f, 0, p.size-pack.TrailerSize)); err != nil {
		return false, err
	}
	var trailer [pack.TrailerSize]byte
	if _, err := p.f.ReadAt(trailer[:], p.size-pack.TrailerSize); err != nil && err != io.EOF {
		return false, err
	}
	return string(sum.Sum(nil)) == string(trailer[:]), nil
}

// UseIdx takes the entries from an index, if that one is whole.
func (p *Pack) UseIdx(fsys vfs.FS, name string) bool {
	f, err := fsys.Open(name)
	if err != nil {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return false
	}
	x, err := pack.OpenIdx(f, info.Size, pack.IdxOptions{Verify: true})
	if err != nil {
		f.Close()
		return false
	}
	defer x.Close()
	var list []pack.IdxEntry
	for e, err := range x.All() {
		if err != nil || e.Offset < pack.HeaderSize || e.Offset >= uint64(p.size) {
			return false
		}
		list = append(list, e)
	}
	p.take(list)
	return true
}

func (p *Pack) take(list []pack.IdxEntry) {
	p.Entries = list
	p.byID, p.ends = make(map[object.ID]int64, len(list)), make(map[int64]int64, len(list))
	starts := make([]int64, 0, len(list))
	for _, e := range list {
		p.byID[e.ID] = int64(e.Offset)
		starts = append(starts, int64(e.Offset))
	}
	slices.Sort(starts)
	for i, at := range starts {
		p.ends[at] = p.size - pack.TrailerSize
		if i+1 < len(starts) {
			p.ends[at] = starts[i+1]
		}
	}
}

// Scan finds the entries by reading them one after the other, up to the first
// that cannot be read.
func (p *Pack) Scan() error {
	p.byID, p.ends = make(map[object.ID]int64), make(map[int64]int64)
	if one, err := p.scanLarge(); one || err != nil {
		return err
	}
	sc := pack.NewScanner(p.f, p.size, pack.ScanOptions{MaxObject: repairMax})
	var later []pack.Scanned
	add := func(e pack.Scanned) bool {
		kind, data, err := p.object(e.Offset, 0)
		if err != nil {
			return false
		}
		id := object.Hash(kind, data)
		p.byID[id] = e.Offset
		p.Entries = append(p.Entries, pack.IdxEntry{ID: id, Offset: uint64(e.Offset), CRC: e.CRC})
		return true
	}
	for {
		e, err := sc.Next()
		if err == io.EOF || errors.Is(err, pack.ErrTorn) {
			break
		}
		if err != nil {
			return err
		}
		e.Data = nil
		p.ends[e.Offset] = e.End
		if !add(e) {
			later = append(later, e)
		}
	}
	// Deltas on what is behind them, as others write them.
	for more := true; more && len(later) > 0; {
		more = false
		left := later[:0]
		for _, e := range later {
			if add(e) {
				more = true
			} else {
				left = append(left, e)
			}
		}
		later = left
	}
	if len(later) > 0 {
		p.Whole = false
	}
	return nil
}

// scanLarge reads a pack of one large blob without taking it into memory.
func (p *Pack) scanLarge() (bool, error) {
	var head [pack.HeaderSize + 32]byte
	n, err := p.f.ReadAt(head[:], 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	if !p.Whole || p.size < CacheBytes || n < len(head) || [pack.HeaderSize]byte(head[:pack.HeaderSize]) != pack.Header(1) {
		return false, nil
	}
	h, err := pack.ParseHeader(head[pack.HeaderSize:])
	if err != nil || h.Kind != object.Blob {
		return false, nil
	}
	end := p.size - pack.TrailerSize
	begin := int64(pack.HeaderSize + h.HeaderLen)
	z, err := zlib.NewReader(bufio.NewReaderSize(io.NewSectionReader(p.f, begin, end-begin), 1<<20))
	if err != nil {
		return false, nil
	}
	sum, crc := sha1.New(), crc32.NewIEEE()
	sum.Write(object.Header(object.Blob, h.Size))
	if n, err := io.Copy(sum, z); err != nil || n != h.Size {
		return false, nil
	}
	if _, err := io.Copy(crc, io.NewSectionReader(p.f, pack.HeaderSize, end-pack.HeaderSize)); err != nil {
		return false, err
	}
	var id object.ID
	sum.Sum(id[:0])
	p.take([]pack.IdxEntry{{ID: id, Offset: pack.HeaderSize, CRC: crc.Sum32()}})
	return true, nil
}

// Get returns an object with this id, whatever else is damaged.
func (p *Pack) Get(id object.ID) (object.Kind, []byte, bool) {
	at, ok := p.byID[id]
	if !ok {
		return 0, nil, false
	}
	kind, data, err := p.object(at, 0)
	if err != nil || object.Hash(kind, data) != id {
		return 0, nil, false
	}
	return kind, data, true
}

// object reads the entry at an offset, and what it is a delta of.
func (p *Pack) object(at int64, depth int) (object.Kind, []byte, error) {
	if o, ok := p.cache[at]; ok {
		return o.Kind, o.Data, nil
	}
	end, ok := p.ends[at]
	if !ok || end-at > repairMax || depth > maxRawDepth {
		return 0, nil, fmt.Errorf("no entry at byte %d: %w", at, pack.ErrCorrupt)
	}
	buf := make([]byte, end-at)
	if _, err := p.f.ReadAt(buf, at); err != nil && err != io.EOF {
		return 0, nil, err
	}
	h, data, err := pack.InflateEntry(buf)
	if err != nil {
		return 0, nil, err
	}
	kind := h.Kind
	if kind == pack.OfsDelta || kind == pack.RefDelta {
		from := at - int64(h.BaseDistance)
		if kind == pack.RefDelta {
			if from, ok = p.byID[h.BaseID]; !ok {
				return 0, nil, pack.ErrNotFound
			}
		}
		var base []byte
		if kind, base, err = p.object(from, depth+1); err != nil {
			return 0, nil, err
		}
		if data, err = pack.ApplyDelta(base, data); err != nil {
			return 0, nil, err
		}
	}
	if p.cache == nil || p.cacheBytes+len(data) > CacheBytes {
		p.cache, p.cacheBytes = make(map[int64]Object), 0
	}
	if len(data) < CacheBytes/4 {
		p.cache[at] = Object{kind, data}
		p.cacheBytes += len(data)
	}
	return kind, data, nil
}
