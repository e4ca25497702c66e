//go:build !linux

package term_test

import (
	"os"
	"testing"

	"umbra/internal/need"
)

// pty opens a terminal as Linux does it.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	need.Missing(t, "terminals are opened in another way here")
	return nil, nil
}
