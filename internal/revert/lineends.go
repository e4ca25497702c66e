package revert

import (
	"bytes"

	"umbra/gitstore/merge3"
)

// The ends of lines that a text may have throughout.
var (
	lf   = []byte("\n")
	crlf = []byte("\r\n")
)

// lineEnd returns what all lines of a text end in; nil for one that mixes ends, or has
// none.
func lineEnd(text []byte) []byte {
	all, long := bytes.Count(text, lf), bytes.Count(text, crlf)
	switch {
	case all == 0 || long > 0 && long < all:
		return nil
	case long > 0:
		return crlf
	}
	return lf
}

// mergeLineEnds undoes a change of all line ends, and what else that change did, on a
// text of which others changed lines since: their lines stay, with the ends that the
// file had before. ok is false where the change is no such one, or where the same lines
// were changed in other ways too.
func mergeLineEnds(after, cur, before []byte) (text []byte, ok bool) {
	end := lineEnd(before)
	if now := lineEnd(after); end == nil || now == nil || bytes.Equal(now, end) {
		return nil, false
	}
	plain := func(text []byte) []byte { return bytes.ReplaceAll(text, crlf, lf) }
	res, err := merge3.Merge(plain(after), plain(cur), plain(before), merge3.Options{})
	if err != nil || !res.Clean {
		return nil, false
	}
	return append([]byte{}, bytes.ReplaceAll(res.Merged, lf, end)...), true
}
