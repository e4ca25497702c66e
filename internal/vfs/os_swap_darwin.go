package vfs

import (
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Exchange is FS.Exchange, by renameatx_np(2). File systems without it (HFS+ on
// some versions, network ones) report ENOTSUP, which is errors.ErrUnsupported.
func (o *osFS) Exchange(a, b string) error {
	return o.renamex("exchange", a, b, unix.RENAME_SWAP)
}

// RenameNoReplace is FS.RenameNoReplace, by renameatx_np(2).
func (o *osFS) RenameNoReplace(oldname, newname string) error {
	return o.renamex("rename-noreplace", oldname, newname, unix.RENAME_EXCL)
}

// renamex renames below directories that os.Root opened, so no component of
// either path leads out of the root. Links in the last component are not
// followed.
func (o *osFS) renamex(op, a, b string, flag uint32) error {
	return o.entry(op, a, func() error {
		return o.entry(op, b, func() error {
			from, err := o.root.Open(path.Dir(a))
			if err != nil {
				return err
			}
			defer from.Close()
			to, err := o.root.Open(path.Dir(b))
			if err != nil {
				return err
			}
			defer to.Close()
			if err := unix.RenameatxNp(int(from.Fd()), path.Base(a), int(to.Fd()), path.Base(b), flag); err != nil {
				return &os.LinkError{Op: op, Old: a, New: b, Err: err}
			}
			return nil
		})
	})
}
