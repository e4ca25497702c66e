//go:build !linux || (!amd64 && !arm64)

package js

// harden does nothing where the system has nothing to give rights away by: the
// engine and the server's own checks stand alone.
func harden() {}
