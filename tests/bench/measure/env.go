// Package measure runs subjects side by side: in a loop, in turns short enough
// that a machine which changes its pace changes it for all of them, or at the
// pace of an agent.
//
// Whatever a row makes (folders,
// processes) hangs on its Env and goes when that is closed, also where the run
// was stopped.
package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"umbra/tests/bench/disk"
)

// Env is what one row works with, on one disk.
type Env struct {
	Scale Scale
	Disk  disk.Disk
	Umbra string // the server's program
	Self  string // this program, which is a peer's server too
	// Log reports progress.
	Log func(format string, args ...any)

	root  string
	made  int
	loops uint64
	undos []undo
}

type undo struct {
	what string
	do   func() error
}

// NewEnv makes an empty folder on the disk to work in.
func NewEnv(scale Scale, d disk.Disk, umbra, self string, log func(string, ...any)) (*Env, error) {
	root, err := os.MkdirTemp(d.Dir, "umbra-bench-")
	if err != nil {
		return nil, err
	}
	return &Env{Scale: scale, Disk: d, Umbra: umbra, Self: self, Log: log, root: root}, nil
}

// Dir makes a new directory; name says what it is for.
func (e *Env) Dir(name string) (string, error) {
	e.made++
	dir := filepath.Join(e.root, fmt.Sprintf("%03d-%s", e.made, name))
	return dir, os.Mkdir(dir, 0o755)
}

// firstSeed makes every run do the same changes.
const firstSeed = 20_260_101

// nextSeed gives each loop changes of its own: one that a subject had before
// would find the file as it should become, and change nothing.
func (e *Env) nextSeed() uint64 {
	e.loops++
	return firstSeed + e.loops<<32
}

// Defer has something undone when the row ends: the last first.
func (e *Env) Defer(what string, do func() error) {
	e.undos = append(e.undos, undo{what, do})
}

// Part gives an Env of a part of the row, in the same folder. What hangs on it
// goes when it is closed, before the rest.
func (e *Env) Part() (*Env, error) {
	root, err := os.MkdirTemp(e.root, "part-")
	if err != nil {
		return nil, err
	}
	part := *e
	part.root, part.made, part.undos = root, 0, nil
	return &part, nil
}

// Close undoes everything and removes the folder. All is tried, whatever fails.
func (e *Env) Close() error {
	var all error
	for i := len(e.undos) - 1; i >= 0; i-- {
		if err := e.undos[i].do(); err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", e.undos[i].what, err))
		}
	}
	e.undos = nil
	return errors.Join(all, os.RemoveAll(e.root))
}
