package revert

import (
	"context"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// movesOf gives the folders that one commit moved as one, with what is in no history:
// recorded by the commit, or else inferred from the files' names.
func movesOf(ctx context.Context, st *gitstore.Store, entries []*history.Entry) (moves []wspath.Move, recorded bool, err error) {
	renames := make(map[string]string)
	for _, e := range entries {
		recorded = recorded || e.Folders
		if e.Operation == message.Rename && !e.IsFolder() {
			renames[e.Path] = e.NewPath
		}
	}
	if !recorded && (len(renames) == 0 || !found(entries[0].Source)) {
		return nil, false, nil
	}
	c, err := st.ReadCommit(ctx, entries[0].Commit)
	if err != nil {
		return nil, false, err
	}
	if !recorded {
		moves, err = foundMoves(ctx, st, c, entries, renames)
		return moves, false, err
	}
	return workspace.FolderMoves(c.Message), true, nil // one after the other
}

// foundMoves finds the folders that a person moved: a folder is gone, each of
// its files has the same name in another, and that has no others.
func foundMoves(ctx context.Context, st *gitstore.Store, c *gitstore.Commit, entries []*history.Entry, renames map[string]string) ([]wspath.Move, error) {
	before, err := st.SnapshotOf(ctx, c.Parent)
	if err != nil {
		return nil, err
	}
	after, err := st.SnapshotOf(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	var out []wspath.Move
	seen := make(map[wspath.Move]bool)
	for _, e := range entries {
		if e.Operation != message.Rename || e.IsFolder() {
			continue
		}
		from, to := folderPair(e.Path, e.NewPath)
		m := wspath.Move{From: wspath.Path(from), To: wspath.Path(to)}
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

// folderPair strips the common end of two paths: the folders that differ.
func folderPair(now, want string) (from, to string) {
	a, b := strings.Split(now, "/"), strings.Split(want, "/")
	n := 0
	for n < len(a)-1 && n < len(b)-1 && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	if n == 0 {
		return "", ""
	}
	return strings.Join(a[:len(a)-n], "/"), strings.Join(b[:len(b)-n], "/")
}

// found reports whether changes of a source were found on disk, so that no request
// names the directories that moved.
func found(s message.Source) bool {
	return s == message.External || s == message.Call || s == message.Shared
}
