//go:build linux

package tests

import "golang.org/x/sys/unix"

// exchange swaps two names, as an editor does that wants to see what it
// replaces.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
