//go:build !linux

package tests

import (
	"net"
	"testing"

	"umbra/internal/need"
)

// as dials as another user, which a thread alone can be on Linux only.
func as(t *testing.T, _ int, _ string) net.Conn {
	t.Helper()
	need.Missing(t, "a thread cannot be another user here")
	return nil
}

// smallDisk mounts a file system in memory, which is done in another way here.
func smallDisk(t *testing.T, _ string) string {
	t.Helper()
	need.Missing(t, "no tmpfs")
	return ""
}

// bind shows a directory at another one too, which no system here does.
func bind(t *testing.T, _, _ string) {
	t.Helper()
	need.Missing(t, "no bind mounts")
}

// freeOf is asked of smallDisk's file systems alone.
func freeOf(string) (int64, error) { return 0, nil }
