package need

import "syscall"

// dieWith has the kernel end a process with the thread that started it (prctl(2),
// PR_SET_PDEATHSIG).
func dieWith(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
