package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// oddNames are names that a reader may stumble over: other encodings, control
// characters, quotes, what sorts in a surprising way beside a folder.
var oddNames = []string{"plain", "with space", " leading", "trailing ", "tab\there", "new\nline", "quote\"d", "it's", "-dash", "--help",
	"ümlaut", "日本語", "e\u0301", "\xff\xfe latin", "caf\xe9", "a", "a-b", "a.b", "a0", "*", "?", "[x]", "#hash", "~tilde",
	"del\x7f", "\x01", "CON", "dots...", "…", "=", "trailer: value", "%41", "😀"}

// withBackslash is refused by isomorphic-git for the whole folder that holds it.
const withBackslash = "back\\slash"

// file is what the model knows of one path.
type file struct {
	mode object.Mode
	data string
}

// history is a store with commits of every sort in it, and a model of what
// they must have come to.
type history struct {
	dir, repo string
	store     *gitstore.Store
	now       time.Time
	rnd       *rand.Rand
	names     []string
	tree      map[string]file
	tasks     []string
	taskOf    []string          // by sequence number
	trees     []map[string]file // by sequence number, shared with what did not change
	large     string
}

// historyOptions say how much of it there is.
type historyOptions struct {
	commits, tasks int
	names          []string
}

// newHistory makes the history through gitstore, publishing and maintaining it
// on the way, so that packs were merged and removed, and refs packed. The store
// is left open and published.
func newHistory(t testing.TB, opt historyOptions) *history {
	t.Helper()
	h := &history{dir: scratch(t), now: time.Unix(1_700_000_000, 0), rnd: rand.New(rand.NewPCG(1, 2)),
		names: opt.names, tree: map[string]file{}}
	h.repo = repoOf(h.dir)
	h.store = open(t, h.dir, gitstore.Options{Foreground: true, InlineBlob: 64 << 10, MergeGrace: time.Minute,
		Now: func() time.Time { h.now = h.now.Add(time.Second); return h.now }})
	t.Cleanup(func() { h.store.Close(context.Background()) })
	h.baseline(t)
	for i := range opt.tasks {
		h.putTask(t, fmt.Sprintf("task-%03d", i), "executing")
	}
	for i := range opt.commits {
		h.change(t, i)
		if i%7 == 6 {
			h.publish(t)
		}
		if i%40 == 39 {
			h.now = h.now.Add(2 * time.Minute) // the grace of merged packs ends
		}
	}
	for _, id := range h.tasks[:len(h.tasks)/2] {
		h.putTask(t, id, "completed")
	}
	h.publish(t)
	h.checkPacked(t)
	return h
}

// checkPacked sees to it that the history has what it is for: packs that were
// merged and went, and packed refs.
func (h *history) checkPacked(t testing.TB) {
	t.Helper()
	packs, err := filepath.Glob(filepath.Join(h.repo, "objects/pack/*.pack"))
	if err != nil || len(packs) > len(h.trees)/7 {
		t.Fatalf("%d packs of %d commits, %v", len(packs), len(h.trees), err)
	}
	refs, err := os.ReadFile(filepath.Join(h.repo, "packed-refs"))
	if err != nil || !strings.Contains(string(refs), "refs/umbra/tasks/") {
		t.Fatalf("no refs were packed: %v", err)
	}
}

func (h *history) publish(t testing.TB) {
	t.Helper()
	need.NoError(t, h.store.Publish(t.Context()))
	need.NoError(t, h.store.Maintain(t.Context()))
}

func (h *history) baseline(t testing.TB) {
	t.Helper()
	put := func(p, data string, mode object.Mode) { h.tree[p] = file{mode, data} }
	for i := range 120 {
		put(fmt.Sprintf("src/pkg%d/file%d.go", i%9, i), text(h.rnd, 20+i), object.Regular)
	}
	for i, name := range h.names {
		put("odd/"+name, fmt.Sprintf("odd name %d\n", i), object.Regular)
		put("odd.d/"+name+"/inside", fmt.Sprintf("in an odd folder %d\n", i), object.Regular)
	}
	put("empty", "", object.Regular)
	put("crlf.txt", "one\r\ntwo\r\nno newline at the end", object.Regular)
	put("binary", "\x00\x01\xff\xfe\r\n\x00", object.Regular)
	put("run.sh", "#!/bin/sh\nexit 0\n", object.Executable)
	put("link", "src/pkg0/file0.go", object.Symlink)
	put("dangling", "no/where/\xff", object.Symlink)
	put(".gitattributes", "*.txt text eol=crlf\n*.go ident\n", object.Regular)
	put(".gitignore", "*.log\n", object.Regular)
	c, err := h.store.Baseline(t.Context(), message.Message{Source: message.Baseline}, func(add gitstore.AddFile) error {
		for p, f := range h.tree {
			if _, err := add(wspath.Path(p), f.mode, strings.NewReader(f.data), int64(len(f.data))); err != nil {
				return err
			}
		}
		return nil
	})
	need.NoError(t, err)
	h.acked(t, c, "")
}

// text gives lines that are alike enough for deltas and differ enough for a
// merge to have work.
func text(rnd *rand.Rand, lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "line %d: %x $Id$\n", i, rnd.Uint32N(1000))
	}
	return b.String()
}

func (h *history) putTask(t testing.TB, id, status string) {
	t.Helper()
	_, err := h.store.PutTask(t.Context(), message.Info{TaskID: id, Goal: "make " + id + " work\n\nand tell so: 日本", Status: status, Actor: "claude",
		Metadata: json.RawMessage(`{"n":1,"s":"x\ny"}`)}, object.Zero)
	need.NoError(t, err)
	if !slices.Contains(h.tasks, id) {
		h.tasks = append(h.tasks, id)
	}
}

// acked notes what a commit came to.
func (h *history) acked(t testing.TB, c gitstore.Committed, task string) {
	t.Helper()
	if c.NoChange || c.Seq != uint64(len(h.trees)+1) {
		t.Fatalf("commit %d after %d of them, no change: %v", c.Seq, len(h.trees), c.NoChange)
	}
	h.trees = append(h.trees, maps.Clone(h.tree))
	h.taskOf = append(h.taskOf, task)
}

// pick gives a path of the tree.
func (h *history) pick(is func(p string, f file) bool) string {
	paths := slices.Sorted(maps.Keys(h.tree))
	for {
		p := paths[h.rnd.IntN(len(paths))]
		if is(p, h.tree[p]) {
			return p
		}
	}
}

func code(p string, f file) bool { return strings.HasSuffix(p, ".go") && f.mode == object.Regular }

// change makes the i-th commit, of a kind that goes round.
func (h *history) change(t testing.TB, i int) {
	t.Helper()
	var d gitstore.Draft
	task := ""
	if i%5 != 0 {
		task = h.tasks[i%len(h.tasks)]
	}
	d.Message = message.Message{TaskID: task, Actor: "claude", Source: message.API, RequestID: fmt.Sprintf("r-%d", i)}
	if task != "" {
		d.Message.SubtaskID = fmt.Sprintf("sub-%d", i%3)
	}
	switch i % 12 {
	case 3:
		h.rename(&d, h.pick(code), fmt.Sprintf("moved/%d.go", i))
	case 5:
		h.remove(&d, h.pick(func(p string, f file) bool { return code(p, f) && len(h.tree) > 100 }))
	case 7:
		p := h.pick(code)
		h.put(t, &d, message.Chmod, p, file{object.Executable, h.tree[p].data})
	case 8:
		h.put(t, &d, message.Symlink, fmt.Sprintf("links/%d", i), file{object.Symlink, "../src/" + h.names[i%len(h.names)]})
	case 9:
		if h.large == "" || i%36 == 9 {
			h.large = noise(h.rnd, 100<<10) // above InlineBlob: a pack of its own
		}
		h.put(t, &d, message.Modify, "large.bin", file{object.Regular, h.large[:len(h.large)-i]})
	case 10:
		d.Message.Subject = "Tidy up: several files\n\nWith a body.\n---\ndiff --git a/x b/x\nTask-Id: forged"
		for range 3 {
			p := h.pick(code)
			h.put(t, &d, message.Modify, p, file{object.Regular, h.tree[p].data + "// tidied " + fmt.Sprint(i, h.rnd.Uint32()) + "\n"})
		}
	case 11:
		h.renameDir(&d, "odd.d/"+h.names[i%len(h.names)], fmt.Sprintf("odd.d/%s (%d)", h.names[i%len(h.names)], i))
	case 2:
		p := "odd/" + h.names[i%len(h.names)]
		h.put(t, &d, message.Modify, p, file{object.Regular, fmt.Sprintf("edited %d\n", i)})
	default:
		p := h.pick(code)
		lines := strings.SplitAfter(h.tree[p].data, "\n")
		lines[h.rnd.IntN(len(lines))] = fmt.Sprintf("edited in %d\n", i)
		h.put(t, &d, message.Modify, p, file{object.Regular, strings.Join(lines, "")})
	}
	d.Entries = len(d.Message.Entries)
	c, err := h.store.Commit(t.Context(), d)
	if err != nil {
		t.Fatalf("commit %d: %v", i, err)
	}
	h.acked(t, c, task)
}

func noise(rnd *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return string(b)
}

func (h *history) put(t testing.TB, d *gitstore.Draft, op message.Operation, p string, f file) {
	t.Helper()
	b, err := h.store.StreamBlob(t.Context(), strings.NewReader(f.data), int64(len(f.data)))
	need.NoError(t, err)
	h.tree[p] = f
	d.Edits = append(d.Edits, gitstore.Edit{Path: wspath.Path(p), Mode: f.mode, Blob: b})
	// One path changed twice by a request is one entry.
	d.Message.Entries = slices.DeleteFunc(d.Message.Entries, func(e message.Entry) bool { return e.Path == p })
	d.Message.Entries = append(d.Message.Entries, message.Entry{Operation: op, Path: p, AfterHash: b.AfterHash()})
}

func (h *history) remove(d *gitstore.Draft, p string) {
	delete(h.tree, p)
	d.Edits = append(d.Edits, gitstore.Edit{Path: wspath.Path(p)})
	d.Message.Entries = append(d.Message.Entries, message.Entry{Operation: message.Delete, Path: p})
}

func (h *history) rename(d *gitstore.Draft, from, to string) {
	h.tree[to] = h.tree[from]
	delete(h.tree, from)
	d.Edits = append(d.Edits, gitstore.Edit{Path: wspath.Path(from), MoveTo: wspath.Path(to)})
	d.Message.Entries = append(d.Message.Entries, message.Entry{Operation: message.Rename, Path: to, OldPath: from})
}

// renameDir moves a folder that may be gone already: its files are put anew then.
func (h *history) renameDir(d *gitstore.Draft, from, to string) {
	if _, ok := h.tree[from+"/inside"]; !ok {
		h.remove(d, h.pick(code))
		return
	}
	d.Edits = append(d.Edits, gitstore.Edit{Path: wspath.Path(from), MoveTo: wspath.Path(to)})
	for _, p := range slices.Sorted(maps.Keys(h.tree)) {
		if rest, ok := strings.CutPrefix(p, from+"/"); ok {
			h.tree[to+"/"+rest] = h.tree[p]
			delete(h.tree, p)
			d.Message.Entries = append(d.Message.Entries, message.Entry{Operation: message.Rename, Path: to + "/" + rest, OldPath: p})
		}
	}
}

// checkModel compares the store's own view with the model, so that what other
// readers are compared with is right itself.
func (h *history) checkModel(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	for seq := range h.trees {
		id, err := h.store.CommitAt(ctx, uint64(seq+1))
		need.NoError(t, err)
		snap, err := h.store.SnapshotOf(ctx, id)
		need.NoError(t, err)
		seen := 0
		err = snap.Walk(wspath.Root, func(e gitstore.Entry) error {
			seen++
			f, ok := h.trees[seq][string(e.Path)]
			if !ok || f.mode != e.Mode || object.Hash(object.Blob, []byte(f.data)) != e.ID {
				return fmt.Errorf("commit %d has other bytes or another mode at %q", seq+1, e.Path)
			}
			return nil
		})
		need.NoError(t, err)
		if seen != len(h.trees[seq]) {
			t.Fatalf("commit %d has %d files, should have %d", seq+1, seen, len(h.trees[seq]))
		}
	}
	last := h.trees[len(h.trees)-1]
	e, _, err := h.store.Snapshot().Lookup("large.bin")
	need.NoError(t, err)
	if data, err := h.store.ReadBlob(ctx, e.ID, 1<<20); err != nil || !bytes.Equal(data, []byte(last["large.bin"].data)) {
		t.Fatalf("large.bin: %d bytes, %v", len(data), err)
	}
	if rep, err := h.store.Verify(ctx, nil); err != nil || len(rep.Problems) > 0 {
		t.Fatalf("verify: %v %v", rep.Problems, err)
	}
}
