package packset

import (
	"fmt"
	"strconv"
	"strings"
)

// Keep is the text of one of our .keep files, "umbra through <seq>", and
// " superseded <unix seconds>" once the pack was merged into another. A
// person's .keep has other words.
type Keep struct {
	Through    uint64 // the pack holds nothing newer than this commit's number
	Superseded int64  // when its grace began; 0: in use
	Laid       bool   // a merge made the pack. Not in the text
	Plain      bool   // small objects in the pack are not compressed. Not in the text
	Object     string // where the pack is linked with one; see File. Not in the text
}

const keepWord = "umbra"

// String gives the text of the file.
func (k Keep) String() string {
	if k.Superseded != 0 {
		return fmt.Sprintf("%s through %d superseded %d\n", keepWord, k.Through, k.Superseded)
	}
	return fmt.Sprintf("%s through %d\n", keepWord, k.Through)
}

// ParseKeep reads a .keep file; ours is false for one of a person.
func ParseKeep(text string) (k Keep, ours bool) {
	words := strings.Fields(text)
	if len(words) == 0 || words[0] != keepWord {
		return k, false
	}
	for i := 1; i+1 < len(words); i += 2 {
		switch words[i] {
		case "through":
			k.Through, _ = strconv.ParseUint(words[i+1], 10, 64)
		case "superseded":
			k.Superseded, _ = strconv.ParseInt(words[i+1], 10, 64)
		}
	}
	return k, true
}
