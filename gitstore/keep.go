package gitstore

import (
	"fmt"
	"strconv"
	"strings"
)

// keepNote is the text of one of our .keep files, "umbra through <seq>", and
// " superseded <unix seconds>" once the pack was merged into another. A
// person's .keep has other words.
type keepNote struct {
	through    uint64 // the pack holds nothing newer than this commit's number
	superseded int64  // when its grace began; 0: in use
	laid       bool   // a merge made the pack. Not in the text
	object     string // where the pack is linked with one; see packFile. Not in the text
}

const keepWord = "umbra"

func (k keepNote) String() string {
	if k.superseded != 0 {
		return fmt.Sprintf("%s through %d superseded %d\n", keepWord, k.through, k.superseded)
	}
	return fmt.Sprintf("%s through %d\n", keepWord, k.through)
}

func parseKeep(text string) (k keepNote, ours bool) {
	words := strings.Fields(text)
	if len(words) == 0 || words[0] != keepWord {
		return k, false
	}
	for i := 1; i+1 < len(words); i += 2 {
		switch words[i] {
		case "through":
			k.through, _ = strconv.ParseUint(words[i+1], 10, 64)
		case "superseded":
			k.superseded, _ = strconv.ParseInt(words[i+1], 10, 64)
		}
	}
	return k, true
}
