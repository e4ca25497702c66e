package lineage

import (
	"context"
	"fmt"
	"testing"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// history is a store whose commits only say what they did.
func history(t *testing.T, messages ...message.Message) *gitstore.Store {
	t.Helper()
	files, err := vfs.OS(t.TempDir())
	need.NoError(t, err)
	st, err := gitstore.Open(t.Context(), gitstore.Options{FS: files, Foreground: true})
	need.NoError(t, err)
	t.Cleanup(func() {
		if err := st.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	var last object.ID
	for _, m := range messages {
		if m.Source == message.Rollback {
			m.Reverts = []object.ID{last}
		}
		c, err := st.Commit(t.Context(), gitstore.Draft{Message: m, Entries: len(m.Entries), AllowEmpty: true})
		need.NoError(t, err)
		last = c.Commit
	}
	return st
}

func renaming(s message.Source, moved ...wspath.Move) message.Message {
	m := message.Message{Actor: "tester", Source: s}
	for _, x := range moved {
		m.Entries = append(m.Entries, message.Entry{Operation: message.Rename, Path: string(x.To), OldPath: string(x.From)})
	}
	return m
}

func TestSince(t *testing.T) {
	whole := renaming(message.API, wspath.Move{From: "d/x", To: "e/x"})
	whole.Extra = op.FolderTrailers([]wspath.Move{{From: "d", To: "e"}})
	st := history(t,
		renaming(message.API, wspath.Move{From: "before", To: "it"}),
		renaming(message.API, wspath.Move{From: "a", To: "b"}),
		whole,
		renaming(message.Rollback, wspath.Move{From: "e/x", To: "d/x"}), // the disk refused it
		renaming(message.API, wspath.Move{From: "empty/", To: "full/"}),
		whole,
		renaming(message.API, wspath.Move{From: "later", To: "than that"}))
	for _, c := range []struct {
		own  uint64
		want string
	}{
		{0, "[2 a b][5 empty full dir][6 d/x e/x][6 d e dir whole]"},
		{3, "[2 a b][3 d/x e/x][4 e/x d/x][5 empty full dir][6 d/x e/x][6 d e dir whole]"},
		{6, "[2 a b][5 empty full dir][6 d/x e/x]"},
	} {
		got := ""
		all, err := Since(t.Context(), st, 2, 6, func(seq uint64) bool { return seq == c.own })
		need.NoError(t, err)
		for _, m := range all {
			got += fmt.Sprintf("[%d %s %s", m.Seq, m.From, m.To)
			if m.Dir {
				got += " dir"
			}
			if m.Whole {
				got += " whole"
			}
			got += "]"
		}
		if got != c.want {
			t.Errorf("own %d: %s, want %s", c.own, got, c.want)
		}
	}
}
