package need

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts a program that ends with the test process, even if that is killed.
// The channel is closed when the program has exited.
func Start(cmd *exec.Cmd) (<-chan struct{}, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	dieWith(cmd.SysProcAttr)
	started, exited := make(chan error), make(chan struct{})
	go func() {
		// The kernel ends the program with the thread that started it: it is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(exited)
	}()
	return exited, <-started
}
