//go:build !linux

package doctor

import (
	"errors"
	"io/fs"
	"syscall"
)

// fsKind is what is known of a folder's file system.
type fsKind struct {
	name                     string
	network, layered, memory bool
	unsafe                   string
}

func fileSystem(string) fsKind { return fsKind{name: "a file system of this system"} }

func freeNames(string) (percent int, known bool) { return 0, false }

func ownerOf(fs.FileInfo) (uid int, ok bool) { return 0, false }

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) }

func isReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

func tryInstance() error { return nil }

func openFiles() (n uint64, known bool) { return 0, false }
