package index

import (
	"bufio"
	"bytes"
	"fmt"
	"testing"
	"time"

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

// A rename of a small directory costs by the directories in it, and not by all that
// are known.
func TestMoveTreeCost(t *testing.T) {
	cost := func(n int) time.Duration {
		x := New()
		for i := range n {
			x.dirs.Put(wspath.Path(fmt.Sprintf("d%d/e%d", i%100, i)), &listing{})
		}
		x.dirs.Put("small/a", &listing{})
		least := time.Hour
		from, to := wspath.Path("small"), wspath.Path("tiny")
		for range 200 {
			began := time.Now()
			x.MoveTree(from, to)
			least = min(least, time.Since(began))
			from, to = to, from
		}
		return least
	}
	few, many := cost(1000), cost(200_000)
	if many > 20*few+50*time.Microsecond {
		t.Errorf("%v among 1,000 directories, %v among 200,000", few, many)
	}
}
