package sink

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"slices"
	"strings"

	"umbra/gitstore/object"
)

// Manifest is a workspace up to a position of its log.
type Manifest struct {
	Version uint64 // 1 for the first; each Swap adds one
	Base    uint64 // the last position that it includes
	Seq     uint64 // the newest commit that it includes; 0: none
	// Packs hold every object that Refs lead to, back to the boundary. Their order
	// means nothing.
	Packs []Pack
	// Refs are the values of the ref log: refs/heads/shadow, the tasks', and
	// refs/umbra/boundary where history was dropped.
	Refs []Ref
	// Files are what else of the workspace's directory belongs to history: the maps of
	// purges, the list of dropped commits, the rules of exclude; and the indexes of the ends
	// of large packs, which an open reads first.
	Files []File
}

// Ref is a ref's value.
type Ref struct {
	Name string
	ID   object.ID
}

// File is a file below the workspace's directory.
type File struct {
	Name   string // slash-separated
	Size   int64
	Object string // the object with the content; empty: Data has it
	Data   []byte
}

// MaxInline is the size above which a file is an object of its own.
const MaxInline = 4 << 10

const (
	manifestMagic  = "umbra manifest "
	manifestHeader = manifestMagic + "1\n"
)

// Encode returns the manifest's bytes: the header "umbra manifest 1" with a line
// end; varints of Version, Base and Seq; packs, refs and files, each after their
// number; CRC-32C of all that (4 bytes, big-endian). Strings and Data have their
// length before them, ids are 20 bytes. Refs and files are sorted by name, packs by
// checksum: equal manifests have equal bytes.
func (m *Manifest) Encode() []byte {
	b := []byte(manifestHeader)
	b = binary.AppendUvarint(b, m.Version)
	b = binary.AppendUvarint(b, m.Base)
	b = binary.AppendUvarint(b, m.Seq)
	packs := slices.SortedFunc(slices.Values(m.Packs), func(x, y Pack) int { return bytes.Compare(x.Sum[:], y.Sum[:]) })
	b = binary.AppendUvarint(b, uint64(len(packs)))
	for i := range packs {
		b = packs[i].appendTo(b)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Refs)))
	for _, r := range slices.SortedFunc(slices.Values(m.Refs), func(x, y Ref) int { return cmp.Compare(x.Name, y.Name) }) {
		b = append(appendString(b, r.Name), r.ID[:]...)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Files)))
	for _, f := range slices.SortedFunc(slices.Values(m.Files), func(x, y File) int { return cmp.Compare(x.Name, y.Name) }) {
		b = appendString(b, f.Name)
		b = binary.AppendUvarint(b, uint64(f.Size))
		b = appendString(appendString(b, f.Object), string(f.Data))
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// DecodeManifest reads what Encode wrote: ErrDamaged, ErrNewer. Nothing of b is kept.
func DecodeManifest(b []byte) (*Manifest, error) {
	if !bytes.HasPrefix(b, []byte(manifestHeader)) {
		if bytes.HasPrefix(b, []byte(manifestMagic)) {
			return nil, fmt.Errorf("manifest: %w", ErrNewer)
		}
		return nil, fmt.Errorf("manifest: no header: %w", ErrDamaged)
	}
	end := len(b) - 4
	if end < len(manifestHeader) || binary.BigEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], castagnoli) {
		return nil, fmt.Errorf("manifest: wrong checksum: %w", ErrDamaged)
	}
	d := decoder{b: b[:end], at: len(manifestHeader)}
	m := &Manifest{Version: d.uvarint(), Base: d.uvarint(), Seq: d.uvarint()}
	m.Packs = d.packs()
	for n, last := d.count(21), ""; n > 0 && d.err == nil; n-- {
		r := Ref{Name: d.string()}
		copy(r.ID[:], d.take(len(r.ID)))
		d.check(r.Name > last)
		m.Refs, last = append(m.Refs, r), r.Name
	}
	for n, last := d.count(4), ""; n > 0 && d.err == nil; n-- {
		f := File{Name: d.string(), Size: d.size(), Object: d.string()}
		f.Data = []byte(d.string())
		d.check(f.Name > last && fs.ValidPath(f.Name) && f.Name != "." && (f.Object == "" && int64(len(f.Data)) == f.Size || f.Object != "" && len(f.Data) == 0))
		m.Files, last = append(m.Files, f), f.Name
	}
	d.check(d.at == end)
	if d.err != nil {
		return nil, fmt.Errorf("manifest: %w", d.err)
	}
	return m, nil
}

// Objects returns the names of all objects that the manifest needs.
func (m *Manifest) Objects() (out []string) {
	for _, p := range m.Packs {
		out = append(out, p.Name)
	}
	for _, f := range m.Files {
		if f.Object != "" {
			out = append(out, f.Object)
		}
	}
	return out
}

// decoder reads values one after the other; the first error stays, and what is read
// after it is zero.
type decoder struct {
	b   []byte
	at  int
	err error
}

func (d *decoder) check(ok bool) {
	if !ok && d.err == nil {
		d.err = fmt.Errorf("at byte %d: %w", d.at, ErrDamaged)
	}
}

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b[d.at:])
	d.check(n > 0)
	d.at += max(n, 0)
	return v
}

// size reads a length in bytes.
func (d *decoder) size() int64 {
	v := d.uvarint()
	d.check(v <= math.MaxInt64)
	return int64(v & math.MaxInt64)
}

// count reads the number of elements of at least least bytes each.
func (d *decoder) count(least int) int {
	v := d.uvarint()
	if d.check(v <= uint64((len(d.b)-d.at)/least)); d.err != nil {
		return 0
	}
	return int(v)
}

func (d *decoder) take(n int) []byte {
	if d.check(n <= len(d.b)-d.at); d.err != nil {
		return make([]byte, min(n, 64))
	}
	d.at += n
	return d.b[d.at-n : d.at]
}

func (d *decoder) string() string {
	n := d.uvarint()
	if d.check(n <= uint64(len(d.b)-d.at)); d.err != nil {
		return ""
	}
	return strings.Clone(string(d.take(int(n))))
}

func (d *decoder) packs() (out []Pack) {
	for n := d.count(25); n > 0 && d.err == nil; n-- {
		p := Pack{Name: d.string()}
		copy(p.Sum[:], d.take(len(p.Sum)))
		p.Size, p.Idx = d.size(), d.size()
		count := d.uvarint()
		p.Through = d.uvarint()
		d.check(count <= math.MaxUint32 && p.Name != "" && p.Size <= math.MaxInt64-p.Idx)
		p.Count = uint32(count)
		out = append(out, p)
	}
	return out
}
