// Package peers is what the benchmarks compare: umbra's engine, its write
// service and its server, and other programs that record or safely write a
// change. One subject a file.
//
// A subject hangs its processes and files on the Env that it is made with.
package peers

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// ErrMissing is returned for a peer that this machine does not have.
var ErrMissing = errors.New("not on this machine")

// project lays out the files of a project in a new folder.
func project(p Params, name string) (string, error) {
	dir, err := p.Env.Dir(name)
	if err != nil {
		return "", err
	}
	return dir, corpus.Write(p.Ctx, dir, p.Files)
}

// inWorktree is a subject that records the files of a working tree: a change
// is written there first, unmeasured.
type inWorktree struct{ dir string }

// Prepare writes the file as an editor would that saves in place.
func (w inWorktree) Prepare(c corpus.Change) error {
	return os.WriteFile(filepath.Join(w.dir, c.Path), c.Data, 0o644)
}

// Group is subjects that are measured in the same rounds.
type Group struct {
	Params  Params
	Lanes   []measure.Lane
	Missing []string // peers that this machine does not have, and why
}

// Add makes subjects; one that this machine does not have is left out and listed in Missing.
func (g *Group) Add(makers ...Maker) error {
	for _, m := range makers {
		s, err := m(g.Params)
		if errors.Is(err, ErrMissing) {
			g.Missing = append(g.Missing, err.Error())
			continue
		}
		if err != nil {
			return err
		}
		g.Lanes = append(g.Lanes, measure.Lane{Subject: s, Files: g.Params.Files})
	}
	return nil
}

// Find gives what was measured of the subject with a name.
func Find(list []measure.Measured, name string) (measure.Measured, bool) {
	i := slices.IndexFunc(list, func(m measure.Measured) bool { return m.Name == name })
	if i < 0 {
		return measure.Measured{}, false
	}
	return list[i], true
}
