package js

import (
	"os/exec"
	"syscall"
)

// isolate puts the child into a session of its own, so that no terminal and no
// signal of the server's group reaches it.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}
