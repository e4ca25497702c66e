package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/workspace/index"
	"umbra/internal/wspath"
)

// What the last run knew of the files is known again, unless the file that
// tells it is damaged, of another epoch or of another folder.
func TestStatCache(t *testing.T) {
	dir, data := filepath.Join(t.TempDir(), "ws"), filepath.Join(t.TempDir(), "data")
	for i := range 50 {
		name := filepath.Join(dir, fmt.Sprintf("d%d", i%4), fmt.Sprint("f", i))
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, fmt.Append(nil, "file ", i), 0o644))
		must(t, os.Chtimes(name, time.Now(), time.Now().Add(-time.Hour)))
	}
	recs := &memRecords{}
	var id string
	open := func() *Workspace {
		m := &opener{DataDir: data, Records: recs, Foreground: true}
		w, err := m.Open(t.Context(), dir)
		must(t, err)
		id = w.ID()
		w.Release()
		t.Cleanup(func() { _ = m.Close(context.Background()) })
		return w
	}
	// reload gives how many files the file tells of.
	reload := func(w *Workspace) int {
		w.disk.Index = index.New()
		must(t, w.disk.LoadIndex())
		return w.disk.Index.Len()
	}
	w := open()
	// Made a moment ago: their change times prove nothing yet.
	each := func(do func(p wspath.Path, f index.File, info vfs.Info)) {
		for i := range 4 {
			dir := wspath.Path(fmt.Sprintf("d%d", i))
			for _, f := range w.disk.Index.Files(dir) {
				info, err := w.disk.FS.Lstat(string(dir.Join(f.Name)))
				must(t, err)
				do(dir.Join(f.Name), f, info)
			}
		}
	}
	each(func(p wspath.Path, f index.File, info vfs.Info) {
		at := time.Now().Add(time.Hour)
		if p == "d1/f1" {
			at = time.Unix(0, info.CtimeNs) // racy
		}
		w.disk.Index.Put(p, info, f.ID, object.Regular, at)
	})
	must(t, w.disk.SaveIndex())
	before := w.disk.Index
	if n := reload(w); n != 49 {
		t.Fatalf("%d files are known, want all but the racy one", n)
	}
	each(func(p wspath.Path, _ index.File, info vfs.Info) {
		was, known := before.Lookup(p, info)
		if now, ok := w.disk.Index.Lookup(p, info); !known || !ok || now != was {
			t.Errorf("%s: %v %v, was %v %v", p, now, ok, was, known)
		}
	})
	name := filepath.Join(data, "workspaces", id, "stat")
	good, err := os.ReadFile(name)
	must(t, err)
	for _, at := range []int{0, 5, 40, len(good) / 2, len(good) - 1} {
		bad := append([]byte(nil), good...)
		bad[at] ^= 1
		must(t, os.WriteFile(name, bad, 0o600))
		if n := reload(w); n != 0 {
			t.Errorf("damaged at %d: %d files are known", at, n)
		}
	}
	for _, n := range []int{0, 10, 60, len(good) - 1} {
		must(t, os.WriteFile(name, good[:n], 0o600))
		if n := reload(w); n != 0 {
			t.Errorf("cut short: %d files are known", n)
		}
	}
	must(t, os.WriteFile(name, good, 0o600))
	epoch := w.disk.Epoch
	w.disk.Epoch = "another"
	if n := reload(w); n != 0 {
		t.Errorf("another epoch: %d files are known", n)
	}
	w.disk.Epoch = epoch
	if n := reload(w); n != 49 {
		t.Errorf("%d files are known again", n)
	}
	must(t, os.Remove(name))
	if n := reload(w); n != 0 {
		t.Errorf("no file: %d files are known", n)
	}
}
