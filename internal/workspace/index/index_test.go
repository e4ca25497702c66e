package index

import (
	"bufio"
	"bytes"
	"testing"

	"umbra/internal/wspath"
)

func FuzzStatCache(f *testing.F) {
	x := New()
	x.dirs.Put("d", &listing{files: []File{{Name: "a", ino: 1, size: -1, mtime: 5, ctime: 6}, {Name: "b"}}})
	var b bytes.Buffer
	out := bufio.NewWriter(&b)
	x.write(out)
	if err := out.Flush(); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{})
	f.Add([]byte{1, 'd', 200, 200, 1})
	f.Add([]byte{1, 'd', 1, 1, 'a', 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, b []byte) {
		x := New()
		x.read(b)
		for dir, d := range x.dirs.All() {
			if len(d.files) > len(b) || len(dir) > wspath.MaxPath {
				t.Errorf("%q has %d files of %d bytes", dir, len(d.files), len(b))
			}
		}
	})
}
