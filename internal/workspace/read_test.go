package workspace

import (
	"fmt"
	"io"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// A file that is replaced each time that it is read is still answered: as it was
// when it was opened.
func TestReadOfWhatIsReplaced(t *testing.T) {
	b := newBench(t, scenarioFiles())
	defer b.stop()
	writes, within := 0, false
	b.hook.Reads = true
	b.on(func(c vfs.Call) error {
		if c.Op == vfs.OpRead && c.Name == "ws/a" && !within {
			within = true
			writes++
			b.ok(write("a", fmt.Sprint("write ", writes)))
			b.w.disk.Index.DropFile("a") // as if it were too young to be known by its stat data
			within = false
		}
		return nil
	})
	b.w.disk.Index.DropFile("a")
	o, err := b.w.OpenFile(t.Context(), "a")
	must(t, err)
	defer o.Close()
	b.on(nil)
	data, err := io.ReadAll(io.NewSectionReader(o, 0, o.Info.Size))
	must(t, err)
	if writes == 0 || string(data) != "A" || o.Blob != object.Hash(object.Blob, data) {
		t.Errorf("after %d writes: %q, %v", writes, data, o.Blob)
	}
	if _, known := b.w.disk.Index.Lookup("a", o.Info); known {
		t.Error("what was replaced is known as the path's")
	}
}
