package workspace

import (
	"maps"
	"slices"

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

// keyFilled is the trailer that names a directory which existed on disk, in no
// history since it held nothing that is recorded, when the change set put
// something into it: it is not the change set's, and stays when that is undone.
const keyFilled = "Filled"

func filledTrailers(filled map[wspath.Path]bool, entries []netEntry) []message.Trailer {
	var out []message.Trailer
	for _, dir := range slices.Sorted(maps.Keys(filled)) {
		if filled[dir] && slices.ContainsFunc(entries, func(e netEntry) bool { return e.after.Mode != 0 && e.after.Path.IsUnder(dir) }) {
			out = append(out, message.Trailer{Key: keyFilled, Value: string(dir)})
		}
	}
	return out
}

// Filled returns the directories that existed before a commit's request put
// something into them, though the tree before it does not have them.
func Filled(m *message.Message) []wspath.Path {
	var out []wspath.Path
	for _, t := range m.Extra {
		if t.Key == keyFilled {
			out = append(out, wspath.Path(t.Value))
		}
	}
	return out
}
