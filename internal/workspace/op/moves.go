package op

import (
	"umbra/gitstore/message"
	"umbra/internal/wspath"
)

// The trailers of a directory that a request moved as one, with all in it, also what
// no history has: the renames of its files do not show that. The first says where it
// was, the second where it is; they repeat in the order of the moves. An empty
// directory's move is an entry itself.
const (
	keyOldFolder = "Old-Folder"
	keyFolder    = "Folder"
)

// FolderTrailers returns the trailers of a commit whose request made the moves.
func FolderTrailers(moves []wspath.Move) []message.Trailer {
	out := make([]message.Trailer, 0, 2*len(moves))
	for _, m := range moves {
		out = append(out, message.Trailer{Key: keyOldFolder, Value: string(m.From)}, message.Trailer{Key: keyFolder, Value: string(m.To)})
	}
	return out
}

// FolderMoves returns the directories that a commit's request moved as one, in order. There
// are none in a commit of user edits.
func FolderMoves(m *message.Message) []wspath.Move {
	var out []wspath.Move
	from, known := "", false
	for _, t := range m.Extra {
		switch t.Key {
		case keyOldFolder:
			from, known = t.Value, true
		case keyFolder:
			if known {
				out = append(out, wspath.Move{From: wspath.Path(from), To: wspath.Path(t.Value)})
			}
			known = false
		}
	}
	return out
}

// KeyFilled is the trailer that names a directory which existed on disk, in no
// history since it held nothing that is recorded, when the change set put
// something into it: it is not the change set's, and stays when that is undone.
const KeyFilled = "Filled"

// KeyRemade is the trailer that names a directory which the change set removed and
// made again, so that for a moment none of its files is there.
const KeyRemade = "Remade"

// Filled returns the directories that existed before a commit's request put
// something into them, though the tree before it does not have them.
func Filled(m *message.Message) []wspath.Path {
	var out []wspath.Path
	for _, t := range m.Extra {
		if t.Key == KeyFilled {
			out = append(out, wspath.Path(t.Value))
		}
	}
	return out
}
