//go:build linux

package js

import "golang.org/x/sys/unix"

// amd64Only are calls that the other machines have under newer names alone.
var amd64Only = []uintptr{unix.SYS_EPOLL_WAIT, unix.SYS_POLL, unix.SYS_ARCH_PRCTL, unix.SYS_TIME}
