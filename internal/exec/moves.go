package exec

import (
	"encoding/json"
	"slices"

	"umbra/internal/wspath"
)

// move is what is done to the disk for a path that no history has.
type move struct {
	Op   string `json:"op"`
	Path string `json:"path"` // in JSON as wspath.Text writes it
	Perm uint32 `json:"perm,omitempty"`
}

// movesText encodes a list of moves.
func movesText(list []move) ([]byte, error) {
	list = slices.Clone(list)
	for i := range list {
		list[i].Path = wspath.Text(list[i].Path)
	}
	return json.Marshal(list)
}

// movesOf decodes a list of moves.
func movesOf(raw []byte) (list []move, err error) {
	err = json.Unmarshal(raw, &list)
	for i := range list {
		list[i].Path = wspath.OfText(list[i].Path)
	}
	return list, err
}
