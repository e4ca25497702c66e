package recordrow

import (
	"cmp"
	"slices"
)

// Direction is that of a walk: the statements of a page, which is between a bound and
// the end of the bucket, without packs and with them.
type Direction struct {
	Rows, Packed string
	Sign         int // of the order of keys
}

// The two directions.
var (
	Ascending = &Direction{`SELECT key, value, NULL::bytea FROM record WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3`,
		`(SELECT key, value, NULL::bytea FROM record WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3) UNION ALL
		(SELECT first, data, last FROM packed
		WHERE first >= coalesce((SELECT first FROM packed WHERE first <= $1 ORDER BY first DESC LIMIT 1), $1) AND first < $2 AND last >= $1
		ORDER BY first LIMIT $4)`, 1}

	Descending = &Direction{`SELECT key, value, NULL::bytea FROM record WHERE key < $1 AND key >= $2 ORDER BY key DESC LIMIT $3`,
		`(SELECT key, value, NULL::bytea FROM record WHERE key < $1 AND key >= $2 ORDER BY key DESC LIMIT $3) UNION ALL
		(SELECT first, data, last FROM packed WHERE first < $1 AND first >= $2 ORDER BY first DESC LIMIT $4)`, -1}
)

// Walk is a walk in a bucket from a bound, which it has upwards and has not downwards.
type Walk struct {
	d          *Direction
	prefix     string
	Start, End []byte // the keys of rows between which the rest of the walk is
}

// From returns a walk.
func (d *Direction) From(bucket, bound string) Walk {
	w := Walk{d, Prefix(bucket), Key(bucket, bound), End(bucket)}
	if d == Descending {
		w.End = []byte(w.prefix)
	}
	return w
}

// PacksOf returns how many packs a page of so many rows has at most.
func PacksOf(size int) int { return max(1, size/PackSize) }

// Page returns the records of a page in the order of the walk, under their keys in the
// bucket, from what the direction's statement read with a limit of size rows, and the
// bound of the page after it if there may be more.
func (w Walk) Page(rows []Pair, packs []Pack, size int) (list []Pair, next string, more bool) {
	// All that is up to the end of what was cut off at its limit is here.
	cut := func(to string) {
		if !more || cmp.Compare(to, next) == -w.d.Sign {
			next, more = to, true
		}
	}
	if len(rows) == size {
		cut(rows[size-1].Key)
	}
	if n := len(packs); n == PacksOf(size) && w.d == Ascending {
		cut(string(packs[n-1].Last))
	} else if n == PacksOf(size) {
		cut(string(packs[n-1].First))
	}
	start := string(w.Start)
	list = slices.DeleteFunc(Overridden(rows, packs), func(p Pair) bool {
		return w.d == Ascending && p.Key < start || w.d == Descending && p.Key >= start || more && cmp.Compare(p.Key, next) == w.d.Sign
	})
	slices.SortFunc(list, func(a, b Pair) int { return w.d.Sign * cmp.Compare(a.Key, b.Key) })
	for i := range list {
		list[i].Key = list[i].Key[len(w.prefix):]
	}
	if more {
		if next = next[len(w.prefix):]; w.d == Ascending {
			next += "\x00"
		}
	}
	return list, next, more
}
