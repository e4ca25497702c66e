package workspace

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

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
		w.index = newIndex()
		must(t, w.loadIndex())
		return w.index.size()
	}
	w := open()
	// Made a moment ago: their change times prove nothing yet.
	for _, d := range w.index.dirs.All() {
		for i := range d.files {
			d.files[i].racy = false
		}
	}
	w.index.dirs.Get("d1").files[0].racy = true
	must(t, w.saveIndex())
	before := w.index
	if n := reload(w); n != 49 {
		t.Fatalf("%d files are known, want all but the racy one", n)
	}
	for dir, d := range w.index.dirs.All() {
		for _, f := range d.files {
			info, err := w.fs.Lstat(string(dir.Join(f.name)))
			must(t, err)
			was, known := before.lookup(dir.Join(f.name), info)
			if now, ok := w.index.lookup(dir.Join(f.name), info); !known || !ok || now != was {
				t.Errorf("%s: %v %v, was %v %v", dir.Join(f.name), now, ok, was, known)
			}
		}
	}
	name := filepath.Join(data, "workspaces", id, statFile)
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
	epoch := w.progress.epoch
	w.progress.epoch = "another"
	if n := reload(w); n != 0 {
		t.Errorf("another epoch: %d files are known", n)
	}
	w.progress.epoch = epoch
	w.ino++
	if n := reload(w); n != 0 {
		t.Errorf("another folder: %d files are known", n)
	}
	w.ino--
	if n := reload(w); n != 49 {
		t.Errorf("%d files are known again", n)
	}
	must(t, os.Remove(name))
	if n := reload(w); n != 0 {
		t.Errorf("no file: %d files are known", n)
	}
}

func FuzzStatCache(f *testing.F) {
	x := newIndex()
	x.dirs.Put("d", &indexDir{files: []indexFile{{name: "a", ino: 1, size: -1, mtime: 5, ctime: 6}, {name: "b"}}})
	var b bytes.Buffer
	out := bufio.NewWriter(&b)
	x.write(out)
	must(f, out.Flush())
	f.Add(b.Bytes())
	f.Add([]byte{})
	f.Add([]byte{1, 'd', 200, 200, 1})
	f.Add([]byte{1, 'd', 1, 1, 'a', 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, b []byte) {
		x := newIndex()
		x.read(b)
		for dir, d := range x.dirs.All() {
			if len(d.files) > len(b) || len(dir) > wspath.MaxPath {
				t.Errorf("%q has %d files of %d bytes", dir, len(d.files), len(b))
			}
		}
	})
}
