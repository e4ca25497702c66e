package wstest

import (
	"context"
	"strings"
	"testing"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// WriteOp writes a file.
func WriteOp(p, data string) op.Op {
	return op.Op{Kind: op.OpWrite, Path: wspath.Path(p), Data: []byte(data)}
}

// DeleteOp deletes a path with everything under it.
func DeleteOp(p string) op.Op {
	return op.Op{Kind: op.OpDelete, Path: wspath.Path(p), Recursive: true}
}

// RenameOp renames a path over whatever is at the target.
func RenameOp(from, to string) op.Op {
	return op.Op{Kind: op.OpRename, Path: wspath.Path(from), To: wspath.Path(to), Overwrite: true}
}

// MkdirOp creates a directory and its parents.
func MkdirOp(p string) op.Op {
	return op.Op{Kind: op.OpMkdir, Path: wspath.Path(p), Recursive: true}
}

// SymlinkOp creates a link.
func SymlinkOp(p, target string) op.Op {
	return op.Op{Kind: op.OpSymlink, Path: wspath.Path(p), Target: target}
}

// ChmodOp changes a file's mode.
func ChmodOp(p string, m object.Mode) op.Op {
	return op.Op{Kind: op.OpChmod, Path: wspath.Path(p), Mode: &m}
}

// CopyOp copies a path over whatever is at the target.
func CopyOp(from, to string) op.Op {
	return op.Op{Kind: op.OpCopy, Path: wspath.Path(from), To: wspath.Path(to), Overwrite: true}
}

// Brief returns entries in short: "modify a", "rename a -> b".
func Brief(entries []op.ChangeEntry) string {
	var out []string
	for _, e := range entries {
		s := string(e.Operation) + " " + e.Path
		if e.NewPath != "" {
			s += " -> " + e.NewPath
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// Tip returns the newest tree in the form of InFolder.
func Tip(t testing.TB, s *gitstore.Store) map[string]string {
	t.Helper()
	out := make(map[string]string)
	Must(t, s.Snapshot().Walk(wspath.Root, func(e gitstore.Entry) error {
		data, err := s.ReadBlob(context.Background(), e.ID, 1<<30)
		Must(t, err)
		p, text := string(e.Path), string(data)
		switch e.Mode {
		case object.Symlink:
			text = "->" + text
		case object.Executable:
			p += "*"
		}
		out[p] = text
		return nil
	}))
	return out
}
