//go:build !linux

package need

import "syscall"

// dieWith does nothing: this system cannot end a process with its parent.
func dieWith(*syscall.SysProcAttr) {}
