package diff

import "bytes"

// sniff is how many bytes git reads to distinguish binary content from text.
const sniff = 8000

// Binary reports whether data is binary by git's rule: a NUL in the first 8000
// bytes, or too large to be handled as text.
func Binary(data []byte) bool {
	return len(data) > MaxText || bytes.IndexByte(data[:min(len(data), sniff)], 0) >= 0
}

// Stat counts the lines added and deleted from old to new, as `git diff
// --numstat` does; both are 0 where either is binary.
func Stat(old, new []byte) (additions, deletions int, binary bool) {
	if Binary(old) || Binary(new) {
		return 0, 0, true
	}
	if bytes.Equal(old, new) {
		return 0, 0, false
	}
	var t Table
	for _, c := range t.Compare(t.Cut(old), t.Cut(new), &Work{}) {
		additions += c.New.Len()
		deletions += c.Old.Len()
	}
	return additions, deletions, false
}
