package materialize

import (
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// Rmdir removes a folder if it is one and is empty.
func Rmdir(d *disk.Disk, p wspath.Path) {
	if s, err := d.Lstat(p); err == nil && s.Kind == op.KindDir {
		_ = d.FS.Remove(string(p)) // one that is not empty stays
	}
}
