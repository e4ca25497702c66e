package lineage

import (
	"context"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// Move is a rename in one commit.
type Move struct {
	Seq uint64
	wspath.Move
	Dir   bool // of a directory
	Whole bool // a request moved it as one; its files have moves of their own
}

// Since returns what commits renamed, from a number to another, both included, the
// oldest first. Left out is what has no effect: a commit that the disk refused names
// what it moved, and the one that took it back does not.
//
// own are commits of which the caller knows what they did: of these only the entries'
// renames are returned, whether they were taken back or not. It may be nil.
func Since(ctx context.Context, st *gitstore.Store, from, upTo uint64, own func(seq uint64) bool) (out []Move, err error) {
	seqs := make(map[object.ID]uint64) // of commits that may be taken back
	err = st.Records(ctx, from, upTo, func(r gitstore.Record) error {
		if !r.Renames || r.Seq < from {
			return nil
		}
		c, err := st.ReadCommit(ctx, r.Commit)
		if err != nil {
			return err
		}
		gone := make(map[wspath.Move]bool) // that it takes back
		if s := c.Message.Source; s == message.Rollback || s == message.External {
			for _, id := range c.Message.Reverts {
				seq, ok := seqs[id]
				if !ok {
					continue
				}
				out = slices.DeleteFunc(out, func(m Move) bool {
					if m.Seq == seq {
						gone[m.Back()] = true
					}
					return m.Seq == seq
				})
			}
		}
		mine := own != nil && own(r.Seq)
		if !mine {
			seqs[r.Commit] = r.Seq
		}
		for _, m := range Renames(c.Message) {
			if m.Seq = r.Seq; !gone[m.Move] && !(mine && m.Whole) {
				out = append(out, m)
			}
		}
		return nil
	})
	return out, err
}

// Renames returns what a commit renamed, without its number: entries, which are files
// and empty directories, and then directories that a request moved as one.
func Renames(m *message.Message) (out []Move) {
	for i := range m.Entries {
		if e := &m.Entries[i]; e.OldPath != "" {
			from, dir := strings.CutSuffix(e.OldPath, "/")
			to := strings.TrimSuffix(e.Path, "/")
			out = append(out, Move{Move: wspath.Move{From: wspath.Path(from), To: wspath.Path(to)}, Dir: dir})
		}
	}
	for _, d := range op.FolderMoves(m) {
		out = append(out, Move{Move: d, Dir: true, Whole: true})
	}
	return out
}

// Before returns the name from which a commit renamed the file at a path.
func Before(m *message.Message, path string) (from string, ok bool) {
	for i := range m.Entries {
		if e := &m.Entries[i]; e.OldPath != "" && e.Path == path {
			return e.OldPath, true
		}
	}
	return "", false
}

// After returns the name to which a commit renamed the file that was at a path.
func After(m *message.Message, path string) (to string, ok bool) {
	for i := range m.Entries {
		if e := &m.Entries[i]; e.OldPath != "" && e.OldPath == path {
			return e.Path, true
		}
	}
	return "", false
}
