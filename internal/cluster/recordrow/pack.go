// Package recordrow is the form of a cluster's records in PostgreSQL: the keys and values
// of rows, and packs.
//
// A row of the table packed is a pack: neighboring records of one bucket that nothing
// changed lately, deflated together. A row and its index entry cost a hundred bytes
// before the record's own, and a workspace at rest has nine records. The ranges of packs
// are disjoint. A row of the table record overrides what a pack has under its key, and
// one without a value says that the record was removed.
package recordrow

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/flate"
)

// PackSize is how many records a pack has at most, PackLeast how many make a pack of
// their own, and MaxValue the longest value that is packed.
const (
	PackSize  = 256
	PackLeast = 8
	MaxValue  = 1 << 10
)

// packFormat is what the data of a pack begins with.
const packFormat = 1

// Packable reports whether records of a bucket are packed. The lanes write and remove
// rows without a look at the packs: what they write (answers) is never packed.
func Packable(bucket string) bool {
	_, coded := Codes[bucket]
	return coded && bucket != "answers"
}

// Pair is a record under its key in a bucket, or under that of its row.
type Pair struct {
	Key   string
	Value []byte // nil: the record was removed
}

// Pack is a row of the table packed. The keys of its records are those of rows.
type Pack struct {
	First, Last []byte
	Records     []Pair
}

// NewPacks returns packs of records, which are in order.
func NewPacks(list []Pair) []Pack {
	if len(list) == 0 {
		return nil
	}
	var out []Pack
	parts := (len(list) + PackSize - 1) / PackSize
	for part := range slices.Chunk(list, (len(list)+parts-1)/parts) {
		out = append(out, Pack{[]byte(part[0].Key), []byte(part[len(part)-1].Key), part})
	}
	return out
}

// Encode returns the data of a pack: how many records, their keys without what each has
// in common with the one before, and their values.
func (p *Pack) Encode() ([]byte, error) {
	raw, values := binary.AppendUvarint(nil, uint64(len(p.Records))), []byte(nil)
	before := ""
	for _, r := range p.Records {
		n := 0
		for n < min(len(before), len(r.Key)) && before[n] == r.Key[n] {
			n++
		}
		raw = binary.AppendUvarint(binary.AppendUvarint(raw, uint64(n)), uint64(len(r.Key)-n))
		raw = append(raw, r.Key[n:]...)
		values = append(binary.AppendUvarint(values, uint64(len(r.Value))), r.Value...)
		before = r.Key
	}
	b := bytes.NewBuffer([]byte{packFormat})
	w, err := flate.NewWriterDict(b, flate.BestCompression, []byte(packDictionary))
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(append(raw, values...)); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

// DecodePack reads the records of a pack from its data.
func DecodePack(first, data []byte) ([]Pair, error) {
	damaged := func(why any) error { return fmt.Errorf("cluster: the pack of records from %q on: %v", first, why) }
	if len(data) == 0 || data[0] != packFormat {
		return nil, damaged("of another format")
	}
	raw, err := io.ReadAll(flate.NewReaderDict(bytes.NewReader(data[1:]), []byte(packDictionary)))
	if err != nil {
		return nil, damaged(err)
	}
	ok := true
	number := func(most int) int {
		n, size := binary.Uvarint(raw)
		if size <= 0 || n > uint64(most) {
			ok = false
			return 0
		}
		raw = raw[size:]
		return int(n)
	}
	take := func(n int) []byte {
		if n > len(raw) {
			ok = false
			return nil
		}
		part := raw[:n:n]
		raw = raw[n:]
		return part
	}
	list := make([]Pair, number(len(raw)))
	before := ""
	for i := range list {
		n := number(len(before))
		list[i].Key = before[:n] + string(take(number(len(raw))))
		before = list[i].Key
	}
	for i := range list {
		list[i].Value = take(number(len(raw)))
	}
	if !ok || len(raw) > 0 {
		return nil, damaged("damaged")
	}
	return list, nil
}

// Overridden returns the records of rows and of packs in order, without those that were
// removed: rows override. Both have the keys of rows.
func Overridden(rows []Pair, packs []Pack) []Pair {
	if len(packs) == 0 && !slices.ContainsFunc(rows, func(p Pair) bool { return p.Value == nil }) {
		return rows
	}
	all := slices.Clone(rows)
	for _, p := range packs {
		all = append(all, p.Records...)
	}
	slices.SortStableFunc(all, func(a, b Pair) int { return strings.Compare(a.Key, b.Key) })
	all = slices.CompactFunc(all, func(a, b Pair) bool { return a.Key == b.Key })
	return slices.DeleteFunc(all, func(p Pair) bool { return p.Value == nil })
}

// The part of a statement that is about the pack with a key, and whether there is one.
const (
	packBefore = `(SELECT first, last, data FROM packed WHERE first <= %[1]s ORDER BY first DESC LIMIT 1) p WHERE p.last >= %[1]s`
	Covers     = `EXISTS (SELECT FROM (SELECT last FROM packed WHERE first <= g.key ORDER BY first DESC LIMIT 1) p WHERE p.last >= g.key)`
)

// Statements that read records of buckets that are packed: rows with a value or without,
// and packs, which have the key of their last record too.
var (
	GetPacked = `SELECT key, value, NULL::bytea FROM record WHERE key = $1 UNION ALL
		SELECT first, data, last FROM ` + fmt.Sprintf(packBefore, "$1") + ` AND NOT EXISTS (SELECT FROM record WHERE key = $1)`
	GetManyPacked = `SELECT key, value, NULL::bytea FROM record WHERE key = ANY ($1) UNION ALL
		(SELECT DISTINCT ON (f.first) f.first, f.data, f.last FROM unnest($1::bytea[]) AS k (key)
		CROSS JOIN LATERAL (SELECT * FROM ` + fmt.Sprintf(packBefore, "k.key") + `) f
		WHERE NOT EXISTS (SELECT FROM record r WHERE r.Key = k.key))`
	EachPacked = `SELECT key, value, NULL::bytea FROM record UNION ALL SELECT first, data, last FROM packed ORDER BY 1`
)

// Merged calls fn with the records of rows and packs, which come in order.
type Merged struct {
	Fn     func(bucket, key string, value []byte) error
	packed []Pair // of the last pack, not yet passed to fn
	last   string // the key of the last row
}

// Rest passes what is left once all rows and packs have come.
func (e *Merged) Rest() error { return e.flush("") }

// flush passes what the last pack has before a key, "" for all of it.
func (e *Merged) flush(before string) error {
	for len(e.packed) > 0 && (before == "" || e.packed[0].Key < before) {
		p := e.packed[0]
		e.packed = e.packed[1:]
		bucket, key, err := RecordOf([]byte(p.Key))
		if err == nil && p.Key != e.last {
			err = e.Fn(bucket, key, p.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *Merged) Pack(first, data []byte) error {
	if err := e.flush(""); err != nil {
		return err
	}
	var err error
	e.packed, err = DecodePack(first, data)
	return err
}

func (e *Merged) Row(row, value []byte) error {
	if err := e.flush(string(row)); err != nil {
		return err
	}
	e.last = string(row)
	if value == nil {
		return nil
	}
	bucket, key, err := RecordOf(row)
	if err == nil {
		value, err = UnpackValue(key, value)
	}
	if err != nil {
		return err
	}
	return e.Fn(bucket, key, value)
}
