package workspace

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/lineage"
	"umbra/internal/workspace/reconcile"
	"umbra/internal/wspath"
)

// lineageBlobs gives what a path's contents were, as texts.
func lineageBlobs(t *testing.T, b *bench, path string) (names, texts []string) {
	t.Helper()
	l, err := lineage.Of(t.Context(), b.w.store, wspath.Path(path), func(int64, int64) {})
	must(t, err)
	for id := range l.Blobs {
		data, err := b.w.store.ReadBlob(t.Context(), id, 1<<20)
		must(t, err)
		texts = append(texts, string(data))
	}
	slices.Sort(texts)
	return slices.Sorted(maps.Keys(l.Names)), texts
}

func TestLineage(t *testing.T) {
	b := newBench(t, map[string]string{"a": "a1", "other": "o1", "dir/x": "x1"})
	put := func(p, data string) Op { return Op{Kind: OpWrite, Path: wspath.Path(p), Data: []byte(data)} }
	move := func(from, to string) Op { return Op{Kind: OpRename, Path: wspath.Path(from), To: wspath.Path(to)} }
	b.ok(put("a", "a2"))
	b.ok(move("a", "b"))
	b.ok(put("a", "another file of that name"))
	b.ok(put("b", "a3"))
	b.ok(move("b", "dir/c"))
	b.ok(put("dir/c", "a4"))
	b.ok(move("dir", "moved"))
	b.ok(put("moved/c", "a5"))
	b.ok(Op{Kind: OpDelete, Path: "moved/c"})
	b.ok(put("moved/c", "made anew"))
	for path, want := range map[string]string{
		"b":       "[a b dir/c moved/c] [a1 a2 a3 a4 a5]",
		"dir/c":   "[a b dir/c moved/c] [a1 a2 a3 a4 a5]",
		"moved/c": "[a b dir/c moved/c] [a1 a2 a3 a4 a5 made anew]",
		"a":       "[a b dir/c moved/c] [a1 a2 a3 a4 a5 another file of that name]",
		"other":   "[other] [o1]",
		"moved/x": "[dir/x moved/x] [x1]",
		"never":   "[never] []",
	} {
		if names, texts := lineageBlobs(t, b, path); fmt.Sprint(names, texts) != want {
			t.Errorf("%s: %v %v, want %s", path, names, texts, want)
		}
	}
	// Two files that change their names with each other in one commit.
	b.ok(move("other", "t"), move("moved/x", "other"), move("t", "moved/x"))
	b.ok(put("other", "x2"))
	if _, texts := lineageBlobs(t, b, "moved/x"); fmt.Sprint(texts) != "[o1 x1]" && fmt.Sprint(texts) != "[o1 x1 x2]" {
		t.Errorf("after a swap: %v", texts)
	}
	b.same()
}

func TestPurgeOfWhatIsWrittenMeanwhile(t *testing.T) {
	b := newBench(t, map[string]string{"key": "secret one", "x": "x"})
	b.ok(Op{Kind: OpWrite, Path: "key", Data: []byte("vault one")})
	wrote := false
	res, err := b.w.Purge(t.Context(), PurgeRequest{Path: "key", Progress: func(step string, _, _ int64) {
		if step == "rewriting history" && !wrote {
			wrote = true // another version comes, and goes
			b.ok(Op{Kind: OpWrite, Path: "key", Data: []byte("secret two")})
			b.ok(Op{Kind: OpWrite, Path: "key", Data: []byte("vault two")})
		}
	}})
	must(t, err)
	if len(res.Blobs) != 3 {
		t.Errorf("%d contents went, want 3", len(res.Blobs))
	}
	for _, text := range []string{"secret one", "vault one", "secret two"} {
		if b.w.store.HasBlob(object.Hash(object.Blob, []byte(text))) {
			t.Errorf("%q is still there", text)
		}
	}
	b.ok(Op{Kind: OpWrite, Path: "key", Data: []byte("goes on")})
	b.same()
	if diff, err := b.w.Compare(t.Context()); err != nil || len(diff) > 0 {
		t.Errorf("compare: %v %v", diff, err)
	}
}

// TestPurgeBesideRetention: history may be dropped while a purge looks at it. What
// is left of the bytes is purged, and what was dropped goes with it.
func TestPurgeBesideRetention(t *testing.T) {
	texts := []string{"secret one", "secret two", "secret three"}
	// after counts what is reported before history is dropped: it may be while the
	// purge goes backward, or forward again.
	for _, at := range []string{"looking for versions", "looking at the directory"} {
		for n := range 2 * 8 {
			all, after := n%2 == 1, n/2
			if after > 0 && at != "looking for versions" {
				break
			}
			b := newBench(t, map[string]string{"key": texts[0], "x": "x"})
			b.ok(write("key", texts[1]))
			b.ok(write("x", "x1"))
			from := b.w.store.Tip().Seq
			b.ok(write("x", "x2"))
			b.ok(write("key", texts[2]))
			b.ok(del("key"))
			b.ok(write("x", "x3"))
			if all {
				from = b.w.store.Tip().Seq
			}
			dropped := false
			_, err := b.w.Purge(t.Context(), PurgeRequest{Path: "key", Progress: func(step string, _, _ int64) {
				if step == at {
					after--
				}
				if after < 0 && !dropped {
					dropped = true
					_, err := b.w.Retain(t.Context(), gitstore.RetainOptions{Before: time.Now().Add(time.Hour), Through: from})
					must(t, err)
				}
			}})
			if b.w.store.Boundary().Seq != from {
				t.Fatalf("%s: history begins at %v, want %d", at, b.w.store.Boundary(), from)
			}
			if all {
				if errs.CodeOf(err) != "path_not_in_history" {
					t.Errorf("%s, and nothing is left: %v", at, err)
				}
				continue
			}
			must(t, err)
			for _, text := range texts {
				if b.w.store.HasBlob(object.Hash(object.Blob, []byte(text))) {
					t.Errorf("%s: %q is still there", at, text)
				}
			}
			b.same()
		}
	}
}

func TestPurgeRefusals(t *testing.T) {
	b := newBench(t, map[string]string{"key": "secret", "empty": ""})
	purge := func(req PurgeRequest) error {
		t.Helper()
		_, err := b.w.Purge(t.Context(), req)
		return err
	}
	for code, req := range map[string]PurgeRequest{
		"purge_only_on_disk":  {Path: "key"},
		"purge_on_disk":       {Blob: object.Hash(object.Blob, []byte("secret"))},
		"purge_empty":         {Blob: object.Hash(object.Blob, nil)},
		"path_not_in_history": {Path: "empty"},
		"blob_not_found":      {Blob: object.Hash(object.Blob, []byte("never"))},
	} {
		if err := purge(req); errs.CodeOf(err) != code {
			t.Errorf("%+v: %v, want %s", req, err, code)
		}
	}
	tip := b.w.store.Tip()
	res, err := b.w.Purge(t.Context(), PurgeRequest{Path: "key", Ignore: true, DryRun: true})
	if must(t, err); res.Refused || len(res.OnDisk) != 1 || b.w.store.Tip() != tip {
		t.Errorf("dry run: %+v", res)
	}
	must(t, purge(PurgeRequest{Path: "key", Ignore: true}))
	if _, ok, err := b.w.store.Snapshot().Lookup("key"); ok || err != nil {
		t.Errorf("it is still in the tip: %v", err)
	}
	if _, err := b.w.Sync(t.Context(), reconcile.SyncOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := b.w.store.Snapshot().Lookup("key"); ok {
		t.Error("it was captured again")
	}
}

func TestExcludeRule(t *testing.T) {
	for _, name := range []string{"a", "a b", " a ", "!a", "#a", "a*b", "a?b", "[ab]", `a\b`, "d/e/f g", "a\nb", "ä", "a]"} {
		root, err := ignore.NewRoot(ignore.Options{ReadFile: func(wspath.Path) ([]byte, error) { return nil, fs.ErrNotExist },
			UmbraExclude: []byte(excludeRule(wspath.Path(name)) + "\n")})
		must(t, err)
		at := root
		parts := strings.Split(name, "/")
		for _, p := range parts[:len(parts)-1] {
			at, err = at.Child(p)
			must(t, err)
		}
		if v := at.Match(parts[len(parts)-1], false); !v.ByUmbra() {
			t.Errorf("%q is not excluded by %q", name, excludeRule(wspath.Path(name)))
		}
		if v := root.Match("other", false); v.ByUmbra() {
			t.Errorf("the rule of %q excludes others", name)
		}
	}
}
