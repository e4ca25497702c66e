//go:build !linux && !darwin

package vfs

import "errors"

// RenameNoReplace is not supported here.
func (o *osFS) RenameNoReplace(_, newname string) error {
	return pathErr("rename-noreplace", newname, errors.ErrUnsupported)
}

// Exchange is not supported here.
func (o *osFS) Exchange(a, _ string) error {
	return pathErr("exchange", a, errors.ErrUnsupported)
}
