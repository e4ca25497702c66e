//go:build darwin || freebsd || netbsd

package vfs

import (
	"io/fs"
	"syscall"
)

func addNumbers(info *Info, fi fs.FileInfo) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	info.Dev = uint64(st.Dev)     //nolint:unconvert // differs between systems
	info.Ino = uint64(st.Ino)     //nolint:unconvert
	info.Nlink = uint64(st.Nlink) //nolint:unconvert
	info.UID, info.GID = st.Uid, st.Gid
	info.MtimeNs = st.Mtimespec.Nano()
	info.CtimeNs = st.Ctimespec.Nano()
}
