//go:build !linux

package exec

import (
	"os"

	"umbra/gitstore"
	"umbra/internal/ignore"
	"umbra/internal/layer"
)

// mover has nothing to do where the system gives no layer.
type mover struct {
	root  *os.Root
	upper string
	tip   gitstore.Snapshot
	rules func(dir string) (*ignore.Dir, error)
	left  []Skip
}

func (m *mover) move([]move, string) error { return layer.ErrUnsupported }

func locked(string) bool { return false }

// Hold returns ErrUnsupported.
func Hold(string) (release func(), err error) { return nil, layer.ErrUnsupported }

// HoldFile returns ErrUnsupported.
func HoldFile(string) (*os.File, error) { return nil, layer.ErrUnsupported }

func bootID() string { return "" }
