package sink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"umbra/gitstore/object"
)

// ErrDamaged is returned for bytes that are not an encoded group or manifest.
var ErrDamaged = errors.New("damaged")

// ErrNewer is returned for a version that this program does not know.
var ErrNewer = errors.New("written by a newer program")

// Group is what one Append makes durable.
type Group struct {
	Pos uint64 // from 1; not part of the encoding
	// Seq is the number of the newest commit once the group is applied.
	Seq uint64
	// Data are pack entries (gitformat-pack(5)), as the local journal has them: the
	// groups from a manifest's base on, one after the other behind a pack header,
	// are a journal. Empty for the row of a claim.
	Data []byte
	// Packs hold objects that commits of the group need, which neither Data nor the
	// manifest nor an earlier group names: large files, a baseline.
	Packs []Pack
	// Records are written in the same transaction, in this order; not part of the
	// encoding, and empty in a Tail.
	Records []Record
}

// Pack is a pack in the object store: its bytes, followed by its index (version 2).
type Pack struct {
	Name    string    // of the object, as Put returned it
	Sum     object.ID // the pack's checksum, which is its trailer: the file is pack-<Sum>.pack
	Size    int64     // of the pack, in bytes
	Idx     int64     // of the index behind it, in bytes
	Count   uint32    // objects
	Through uint64    // number of the newest commit that has objects in it
}

const groupVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendTo appends the encoding to b: a byte with the version (1), varints of Seq and
// of the number of packs, the packs, CRC-32C of all that (4 bytes, big-endian), Data.
// A group without Data is nothing.
func (g *Group) AppendTo(b []byte) []byte {
	if len(g.Data) == 0 {
		return b
	}
	begin := len(b)
	b = append(b, groupVersion)
	b = binary.AppendUvarint(b, g.Seq)
	b = binary.AppendUvarint(b, uint64(len(g.Packs)))
	for i := range g.Packs {
		b = g.Packs[i].appendTo(b)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b[begin:], castagnoli))
	return append(b, g.Data...)
}

// DecodeGroup reads an encoded group: ErrDamaged, ErrNewer. Data is a part of b.
func DecodeGroup(pos uint64, b []byte) (Group, error) {
	g := Group{Pos: pos}
	if len(b) == 0 {
		return g, nil
	}
	if b[0] != groupVersion {
		return g, fmt.Errorf("group %d: version %d: %w", pos, b[0], ErrNewer)
	}
	d := decoder{b: b, at: 1}
	g.Seq = d.uvarint()
	g.Packs = d.packs()
	end := d.at
	if sum := d.take(4); d.err != nil || binary.BigEndian.Uint32(sum) != crc32.Checksum(b[:end], castagnoli) || d.at == len(b) {
		return Group{Pos: pos}, fmt.Errorf("group %d: %w", pos, ErrDamaged)
	}
	g.Data = b[d.at:]
	return g, nil
}

func (p *Pack) appendTo(b []byte) []byte {
	b = appendString(b, p.Name)
	b = append(b, p.Sum[:]...)
	b = binary.AppendUvarint(b, uint64(p.Size))
	b = binary.AppendUvarint(b, uint64(p.Idx))
	b = binary.AppendUvarint(b, uint64(p.Count))
	return binary.AppendUvarint(b, p.Through)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
