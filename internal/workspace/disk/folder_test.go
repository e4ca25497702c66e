package disk

import (
	"bytes"
	"testing"
)

// TestHeader: the file of the index belongs to one directory under its mounts.
func TestHeader(t *testing.T) {
	header := func(epoch string, dev, ino uint64, standIn bool) []byte {
		return (&folder{Disk: &Disk{Epoch: epoch}, dev: dev, ino: ino, standIn: standIn}).header()
	}
	is := header("one", 1, 2, false)
	for name, other := range map[string][]byte{"epoch": header("another", 1, 2, false), "device": header("one", 3, 2, false), "inode": header("one", 1, 3, false)} {
		if bytes.Equal(is, other) {
			t.Errorf("another %s has the same header", name)
		}
	}
	if h := header("one", 1, 2, true); h != nil {
		t.Errorf("the file of a missing directory is written: %q", h)
	}
}
