package workspace

import (
	"umbra/gitstore/message"
	"umbra/internal/wspath"
)

// FolderMove is a folder that a request moved as one, with all in it: what is
// in no history too. The renames of its files do not tell that.
type FolderMove struct{ From, To wspath.Path }

// The trailers that tell of one: where it was, then where it came to. They
// repeat in the order of the moves. An empty folder's move is an entry itself.
const (
	keyOldFolder = "Old-Folder"
	keyFolder    = "Folder"
)

func folderTrailers(moves []FolderMove) []message.Trailer {
	out := make([]message.Trailer, 0, 2*len(moves))
	for _, m := range moves {
		out = append(out, message.Trailer{Key: keyOldFolder, Value: string(m.From)}, message.Trailer{Key: keyFolder, Value: string(m.To)})
	}
	return out
}

// FolderMoves gives the folders that a commit's request moved, in order. There
// are none in a commit of what a person did on disk.
func FolderMoves(m *message.Message) []FolderMove {
	var out []FolderMove
	from, known := "", false
	for _, t := range m.Extra {
		switch t.Key {
		case keyOldFolder:
			from, known = t.Value, true
		case keyFolder:
			if known {
				out = append(out, FolderMove{From: wspath.Path(from), To: wspath.Path(t.Value)})
			}
			known = false
		}
	}
	return out
}
