package revert

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/wspath"
)

// folderMove is a folder that the selected changes moved as one, from where it
// was before the first to where the last left it.
type folderMove struct{ first, last string }

// follow gives where an empty folder is now that moved along with others.
func (f *folder) follow(moves []movedIn) {
	for _, m := range moves {
		if f.last == "" || m.seq <= f.entries[len(f.entries)-1].Seq {
			continue
		}
		if under(f.last, m.first) {
			f.last = m.last + f.last[len(m.first):]
		}
	}
}

// movedIn is one folder's move in one commit.
type movedIn struct {
	folderMove
	seq uint64
}

// folderMoves finds them, on the whole and one by one: history tells of the files alone, and what is in no
// history went along.
func folderMoves(ctx context.Context, st *gitstore.Store, entries []*history.Entry) (net []folderMove, each []movedIn, err error) {
	var out []folderMove
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].Commit == entries[0].Commit {
			n++
		}
		moves, err := movesOf(ctx, st, entries[:n])
		if err != nil {
			return nil, nil, err
		}
		seq := entries[0].Seq
		entries = entries[n:]
		for _, m := range moves {
			each = append(each, movedIn{m, seq})
			again := false
			for i := range out {
				if out[i].last == m.first {
					out[i].last, again = m.last, true
				} else if under(out[i].last, m.first) {
					out[i].last = m.last + out[i].last[len(m.first):]
				}
			}
			if !again {
				out = append(out, m)
			}
		}
	}
	return out, each, nil
}

// movesOf finds the folders that one commit moved: a folder is gone, each of
// its files has the same name in another, and that has no others.
func movesOf(ctx context.Context, st *gitstore.Store, entries []*history.Entry) ([]folderMove, error) {
	renames := make(map[string]string)
	for _, e := range entries {
		if e.Operation == message.Rename && !e.IsFolder() {
			renames[e.Path] = e.NewPath
		}
	}
	if len(renames) == 0 {
		return nil, nil
	}
	c, err := st.ReadCommit(ctx, entries[0].Commit)
	if err != nil {
		return nil, err
	}
	before, err := st.SnapshotOf(ctx, c.Parent)
	if err != nil {
		return nil, err
	}
	after, err := st.SnapshotOf(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	var out []folderMove
	seen := make(map[folderMove]bool)
	for _, e := range entries {
		if e.Operation != message.Rename || e.IsFolder() {
			continue
		}
		from, to := folderPair(e.Path, e.NewPath)
		m := folderMove{from, to}
		if from == "" || seen[m] {
			continue
		}
		seen[m] = true
		whole, err := allMoved(before, after, renames, from, to)
		if err != nil {
			return nil, err
		}
		if whole {
			out = append(out, m)
		}
	}
	return out, nil
}

func allMoved(before, after gitstore.Snapshot, renames map[string]string, from, to string) (bool, error) {
	if left, err := at(after, from); err != nil || left.Mode == object.Dir {
		return false, err
	}
	whole, n := true, 0
	if err := before.Walk(wspath.Path(from), func(e gitstore.Entry) error {
		p := string(e.Path)
		whole = whole && renames[p] == to+p[len(from):]
		n++
		return nil
	}); err != nil || !whole {
		return false, err
	}
	err := after.Walk(wspath.Path(to), func(gitstore.Entry) error {
		n--
		return nil
	})
	return n == 0, err
}
