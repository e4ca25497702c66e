//go:build unix

package js

import "syscall"

// signalZero asks whether a process is there (kill(2)).
const signalZero = syscall.Signal(0)
