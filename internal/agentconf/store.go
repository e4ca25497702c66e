package agentconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"umbra/internal/filelock"
)

// record is what Remove needs to give a file back.
type record struct {
	Before []byte   `json:"before"` // nil: there was none
	After  string   `json:"after"`  // SHA-256 of what was written; empty: nothing was yet
	Made   []string `json:"made"`   // directories, the deepest first
	Absent bool     `json:"absent"` // there was no file
	// Doing is an edit that was begun. A process that is killed may or may not have
	// made it.
	Doing *doing `json:"doing,omitempty"`
}

// doing is one edit of a file.
type doing struct {
	Path  string   `json:"path"`  // of the file, links followed
	Temp  string   `json:"temp"`  // the file that takes its place, and then what it replaced
	Was   string   `json:"was"`   // SHA-256 of what it holds before; empty: it does not exist
	After string   `json:"after"` // SHA-256 of what it holds then; empty: it is gone
	Made  []string `json:"made"`  // directories that are made for it, the deepest first
	Next  *record  `json:"next"`  // the record once it is done; nil: none
}

// Store keeps, in one file, what was there before each edit.
type Store struct {
	Path string

	before func() // called before each change of a disk, by tests
}

func (s *Store) step() {
	if s.before != nil {
		s.before()
	}
}

// lock has one process at a time edit files and the store; calling what it returns
// frees it.
func (s *Store) lock() (free func(), err error) {
	f, err := filelock.Open(s.Path + ".lock")
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// load reads the records as they are on disk, and resolved: an edit that a killed
// process had begun counts as made or not, as its file is.
func (s *Store) load() (stored, resolved map[string]record, err error) {
	stored, resolved = map[string]record{}, map[string]record{}
	raw, err := os.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return stored, resolved, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(raw, &stored); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	for path, r := range stored {
		if r.Doing == nil {
			resolved[path] = r
			continue
		}
		if done, _ := r.Doing.done(); done {
			if r.Doing.Next != nil {
				resolved[path] = *r.Doing.Next
			}
		} else if r.After != "" {
			r.Doing = nil
			resolved[path] = r
		}
	}
	return stored, resolved, nil
}

// done reports whether the edit was made. One that replaced what the agent wrote after
// the plan was not: stray is true, and that is still in Temp.
func (d *doing) done() (done, stray bool) {
	now, err := read(d.Path)
	if err != nil || (now != nil) != (d.After != "") || now != nil && sum(now) != d.After {
		return false, false
	}
	old, err := read(d.Temp)
	if err == nil && old != nil && sum(old) != d.Was {
		return false, true
	}
	return true, false
}

// recover finishes edits that a killed process had begun, or takes them back. The
// caller must hold the lock.
func (s *Store) recover() (map[string]record, error) {
	stored, records, err := s.load()
	if err != nil {
		return nil, err
	}
	pending := false
	for _, r := range stored {
		d := r.Doing
		if d == nil {
			continue
		}
		pending = true
		done, stray := d.done()
		if stray {
			if err := s.takeBack(d); err != nil {
				return nil, err
			}
		}
		if err := s.remove(d.Temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		switch {
		case done && d.After == "":
			s.removeDirs(records, r.Made)
		case !done:
			s.removeDirs(records, d.Made)
		}
	}
	if pending {
		err = s.save(records)
	}
	return records, err
}

func (s *Store) save(m map[string]record) error {
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	// One of a process that was killed is written over.
	tmp := s.Path + ".new"
	if err := s.create(tmp, os.O_TRUNC, append(raw, '\n'), nil, 0o600); err != nil {
		return err
	}
	return s.rename(tmp, s.Path)
}

// handOver has a directory that was made, and is not empty yet, removed with
// another of the files in it.
func handOver(records map[string]record, dir string) {
	for path, r := range records {
		if strings.HasPrefix(path, dir+string(filepath.Separator)) {
			r.Made = append(r.Made, dir)
			records[path] = r
			return
		}
	}
}
