//go:build !linux

package peers

import (
	"errors"
	"os"
)

// The benchmarks are about Linux; elsewhere they build, and what only Linux has
// is refused.

func dataSync(f *os.File) error { return f.Sync() }

func writeOut(*os.File) error { return nil }

func exchange(string, string) error { return errors.ErrUnsupported }

func memoryFile(name string) (*os.File, error) {
	f, err := os.CreateTemp("", name)
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}
