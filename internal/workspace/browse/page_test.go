package browse

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// What is on a page is told in order, whatever runs it is looked at in; what
// went since is left out.
func TestPageLooksInOrder(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	var p page
	var want []string
	for d := range 5 {
		dir := wspath.Path(fmt.Sprintf("d%d", d))
		need.NoError(t, mem.Mkdir(string(dir), 0o755))
		var list []vfs.DirEntry
		for i := range 700 {
			name := fmt.Sprintf("f%03d", i)
			list = append(list, vfs.DirEntry{Name: name})
			if i%7 == d {
				continue // went
			}
			need.NoError(t, mem.Symlink("x", string(dir.Join(name))))
			if i >= 10*d {
				want = append(want, "shown/"+string(dir.Join(name)))
			}
		}
		p.add(dir, wspath.Path("shown").Join(string(dir)), list, 10*d, 300)
		p.add(dir, wspath.Path("shown").Join(string(dir)), list, 300, 301)
		p.add(dir, wspath.Path("shown").Join(string(dir)), list, 301, len(list))
	}
	p.add("gone", "shown/gone", []vfs.DirEntry{{Name: "f"}}, 0, 1)
	got, err := p.look(context.Background(), mem)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d entries, %v; want %d", len(got), err, len(want))
	}
	for i := range got {
		if string(got[i].Path) != want[i] {
			t.Fatalf("%d: %s, want %s", i, got[i].Path, want[i])
		}
	}
	broken := vfs.Inject(mem, &vfs.Hook{Reads: true, OnCall: func(c vfs.Call) error {
		if c.Op == vfs.OpLstat && c.Name == "d3/f420" {
			return syscall.EIO
		}
		return nil
	}})
	if got, err := p.look(context.Background(), broken); err == nil {
		t.Errorf("%d entries of a disk that fails", len(got))
	}
}
