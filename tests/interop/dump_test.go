package interop

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sort"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// A dump is what a reader sees of a repository, one line a fact:
//
//	ref <name> <id>
//	tag <id> <target> <hex of the name>
//	commit <id> <tree> <parent or -> <unix seconds> <message, hashed as a blob>
//	entry <tree> <octal mode> <hex of the name> <id>
//	blob <id> <size> <id recomputed from the bytes>
//
// Lines come in any order. Each reader writes it in its own language.

// compareDumps tells what two dumps do not have in common.
func compareDumps(t testing.TB, reader string, got, want []string) {
	t.Helper()
	have := make(map[string]bool, len(got))
	for _, line := range got {
		if line != "" {
			have[line] = true
		}
	}
	bad := 0
	for _, line := range want {
		if !have[line] {
			if bad++; bad <= 10 {
				t.Errorf("%s does not see: %s", reader, line)
			}
		}
		delete(have, line)
	}
	for _, line := range slices.Sorted(maps.Keys(have)) {
		if bad++; bad <= 20 {
			t.Errorf("%s alone sees: %s", reader, line)
		}
	}
	if bad > 20 {
		t.Errorf("%s: %d differences in all", reader, bad)
	}
}

// messageID is how a message stands in a dump.
func messageID(m string) object.ID { return object.Hash(object.Blob, []byte(m)) }

func entryLine(tree object.ID, mode object.Mode, name string, id object.ID) string {
	return fmt.Sprintf("entry %v %o %s %v", tree, uint32(mode), hex.EncodeToString([]byte(name)), id)
}

// dump is what the store says of itself.
func (h *history) dump(t testing.TB) []string {
	t.Helper()
	ctx := t.Context()
	var out []string
	seen := make(map[object.ID]bool)
	tip := h.store.Tip()
	for _, name := range []string{"refs/heads/shadow", "refs/umbra/head"} {
		out = append(out, fmt.Sprintf("ref %s %v", name, tip.Commit))
	}
	for _, task := range h.store.Tasks() {
		prefix := "refs/umbra/tasks/" + task.ID
		out = append(out, fmt.Sprintf("ref %s/base %v", prefix, task.Base), fmt.Sprintf("ref %s/head %v", prefix, task.Head),
			fmt.Sprintf("ref %s/info %v", prefix, task.InfoTag),
			fmt.Sprintf("tag %v %v %s", task.InfoTag, task.Base, hex.EncodeToString([]byte(task.Info.TagName()))))
	}
	for seq := tip.Seq; seq > 0; seq-- {
		id, err := h.store.CommitAt(ctx, seq)
		need.NoError(t, err)
		c, err := h.store.ReadCommit(ctx, id)
		need.NoError(t, err)
		parent := "-"
		if !c.Parent.IsZero() {
			parent = c.Parent.String()
		}
		out = append(out, fmt.Sprintf("commit %v %v %s %d %v", id, c.Tree, parent, c.When.Unix(), messageID(c.Message.Encode())))
		out = append(out, h.dumpTree(t, id, seen)...)
	}
	sort.Strings(out)
	return out
}

func (h *history) dumpTree(t testing.TB, commit object.ID, seen map[object.ID]bool) (out []string) {
	t.Helper()
	ctx := t.Context()
	snap, err := h.store.SnapshotOf(ctx, commit)
	need.NoError(t, err)
	var folder func(p wspath.Path, id object.ID)
	folder = func(p wspath.Path, id object.ID) {
		if seen[id] {
			return
		}
		seen[id] = true
		list, err := snap.List(p)
		need.NoError(t, err)
		for _, e := range list {
			out = append(out, entryLine(id, e.Mode, e.Path.Base(), e.ID))
			if e.Mode == object.Dir {
				folder(e.Path, e.ID)
				continue
			}
			if seen[e.ID] {
				continue
			}
			seen[e.ID] = true
			data, err := h.store.ReadBlob(ctx, e.ID, 1<<20)
			need.NoError(t, err)
			out = append(out, fmt.Sprintf("blob %v %d %v", e.ID, len(data), object.Hash(object.Blob, data)))
		}
	}
	folder(wspath.Root, snap.Tree())
	return out
}
