package workspaces

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"umbra/gitstore/object"
	"umbra/gitstore/remote"
	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// TestTrimCaches: copies of closed workspaces are removed, those used longest ago first,
// until the rest is within the limit; what is open, is a history of its own or was put
// aside stays, and a workspace whose copy is gone is opened as before.
func TestTrimCaches(t *testing.T) {
	s := newShop(t)
	var limit atomic.Int64 // the manager asks, too
	limit.Store(1 << 40)
	s.cacheLimit = func(int64) int64 { return limit.Load() }
	a := s.server("a")
	var ids []string
	for _, name := range []string{"first", "second", "open"} {
		w := a.open(name)
		put(t, w, "f", strings.Repeat(name, 100))
		ids = append(ids, w.ID())
		if name == "open" {
			defer w.Release()
			break
		}
		w.Release()
		must(t, a.m.putAway(t.Context(), w.ID(), nil, false))
	}
	dir := func(i int) string { return a.m.dirOf(ids[i]) }
	journals := func(i int) string { return filepath.Join(dir(i), "journal") }
	older, err := os.Stat(journals(1))
	must(t, err)
	must(t, os.Chtimes(journals(0), older.ModTime(), older.ModTime().Add(-1e9)))
	ignored := filepath.Join(a.m.LayerDirOf(ids[0]), "files", "ignored") // no log has it
	must(t, os.MkdirAll(filepath.Dir(ignored), 0o700))
	must(t, os.WriteFile(ignored, make([]byte, 1<<20), 0o600))
	own := a.m.dirOf("own-00000000")
	must(t, os.MkdirAll(filepath.Join(own, "repo.git"), 0o700))

	must(t, a.m.TrimCaches(t.Context()))
	all := a.m.Cached()
	if all == 0 || all >= 1<<20 || !exists(dir(0)) {
		t.Fatalf("%d bytes, of which none are too many", all)
	}
	limit.Store(all - 1)
	must(t, a.m.TrimCaches(t.Context()))
	if !exists(ignored) {
		t.Error("a file of a layer was removed")
	}
	if exists(filepath.Join(dir(0), "repo.git")) || !exists(dir(1)) || a.m.Cached() >= all {
		t.Errorf("the one used first is there: %v, the other: %v; %d of %d bytes", exists(filepath.Join(dir(0), "repo.git")), exists(dir(1)), a.m.Cached(), all)
	}
	aside := filepath.Join(journals(1), remote.Orphaned+"3-4", "repo.git")
	must(t, os.MkdirAll(aside, 0o700))
	limit.Store(0)
	must(t, a.m.TrimCaches(t.Context()))
	if exists(filepath.Join(dir(1), "repo.git")) || !exists(aside) || !exists(own) || !exists(filepath.Join(dir(2), "repo.git")) {
		t.Error("too much was removed, or too little")
	}
	for i, name := range []string{"first", "second", "open"} {
		w, err := a.m.Get(t.Context(), ids[i])
		must(t, err)
		if got := read(t, w, "f"); got != strings.Repeat(name, 100) {
			t.Errorf("%s has %q", name, got)
		}
		w.Release()
	}
}

// TestDropCopiesOfALayer: a purge removes the files with its contents from the layer of the
// node that had the fork before, also where the copy of its history was removed; of those that the
// layer shows in place of a deleted directory's it does so where that is asked for.
func TestDropCopiesOfALayer(t *testing.T) {
	s := newShop(t)
	a := s.server("a")
	w := a.open("first")
	w.Release()
	r, err := a.m.record(w.ID())
	must(t, err)
	r.Fork = &Fork{Kind: LayerKind, Whole: true, Below: "below"}
	must(t, a.m.putAway(t.Context(), w.ID(), nil, false))
	must(t, a.m.opt.Records.Put(r))
	files, below := filepath.Join(a.m.LayerDirOf(w.ID()), "files"), a.m.BelowDir("below")
	purged := Purged{Blobs: []string{object.Hash(object.Blob, []byte("secret")).String()}}
	for _, before := range []func() error{
		func() error { return nil },
		func() error { _, err := a.m.dropCache(w.ID(), Purged{}); return err },
	} {
		for name, content := range map[string]string{"d/key": "secret", "ignored": "other"} {
			for _, dir := range []string{files, below} {
				must(t, os.MkdirAll(filepath.Join(dir, "d"), 0o700))
				must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
			}
		}
		must(t, before())
		for _, purged.Ignored = range []bool{false, true} {
			must(t, a.m.DropCopies(t.Context(), w.ID(), purged))
			if exists(filepath.Join(files, "d/key")) || exists(filepath.Join(below, "d/key")) == purged.Ignored {
				t.Errorf("ignored %v: the layer has the secret: %v, what it shows: %v", purged.Ignored, exists(filepath.Join(files, "d/key")), exists(filepath.Join(below, "d/key")))
			}
		}
		if !exists(filepath.Join(files, "ignored")) || !exists(filepath.Join(below, "ignored")) {
			t.Error("another file was removed")
		}
	}
}

// TestPurgeHeldElsewhere: a purge of a fork is refused where a server that had it before has
// ignored files with the content.
func TestPurgeHeldElsewhere(t *testing.T) {
	s := newShop(t)
	a, b := s.server("a"), s.server("b")
	b.m.SetHeldElsewhere(a.m.HeldFiles)
	w := a.open("first")
	put(t, w, "key", "secret")
	put(t, w, "key", "none")
	id := w.ID()
	w.Release()
	must(t, a.m.putAway(t.Context(), id, nil, false))
	r, err := a.m.record(id)
	must(t, err)
	r.Fork = &Fork{Kind: LayerKind, Whole: true, Below: "below"}
	must(t, a.m.opt.Records.Put(r))
	files := filepath.Join(a.m.LayerDirOf(id), "files")
	for _, name := range []string{filepath.Join(a.m.BelowDir("below"), "env"), filepath.Join(files, "own"), filepath.Join(files, "key")} { // which history had
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, []byte("secret"), 0o600))
	}
	w = b.open("first")
	defer w.Release()
	if _, err := w.Purge(t.Context(), workspace.PurgeRequest{Path: "key"}); errs.CodeOf(err) != "purge_on_disk" {
		t.Errorf("%v", err)
	}
	done, err := w.Purge(t.Context(), workspace.PurgeRequest{Path: "key", DryRun: true})
	if must(t, err); !done.Refused || len(done.OnDisk) != 2 {
		t.Errorf("the dry run says %+v", done)
	}
	b.m.SetHeldElsewhere(nil)
	_, err = w.Purge(t.Context(), workspace.PurgeRequest{Path: "key", Ignore: true})
	must(t, err)
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
