//go:build !linux

package exec

import (
	"os"
	"time"

	"umbra/gitstore"
	"umbra/internal/ignore"
	"umbra/internal/layer"
)

// mover has nothing to do where the system gives no layer.
type mover struct {
	step  func() error
	since time.Time
	kept  map[string]bool
	root  *os.Root
	upper string
	tip   gitstore.Snapshot
	rules func(dir string) (*ignore.Dir, error)
	left  []Skip
	away  string
}

func (m *mover) close() {}

func (m *mover) move([]move, string) error { return layer.ErrUnsupported }

func changedAt(string) time.Time { return time.Time{} }

func keepGit(string, string, string, time.Time) ([]move, error) { return nil, nil }

func syncFiles(string) error { return nil }

func locked(string) bool { return false }

// Hold returns ErrUnsupported.
func Hold(string) (release func(), err error) { return nil, layer.ErrUnsupported }

// HoldFile returns ErrUnsupported.
func HoldFile(string) (*os.File, error) { return nil, layer.ErrUnsupported }
