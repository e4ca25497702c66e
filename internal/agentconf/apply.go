package agentconf

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Change is what happens to one file.
type Change struct {
	Path   string `json:"path"`   // as the agent calls it; links are followed
	Action string `json:"action"` // created, changed, removed, unchanged or left
	Reason string `json:"reason,omitempty"`
	Before []byte `json:"-"` // nil: no such file
	After  []byte `json:"-"` // nil: no such file
	base   []byte // Before without umbra's part; nil: no file
	// Failed is true if the file had to be left and the agent is not wired by it.
	Failed bool `json:"failed,omitempty"`
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// target follows links to the file that is to be written, also where that does
// not exist.
func target(path string) (string, error) {
	for range 40 {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if !info.Mode().IsRegular() {
				return "", errors.New("it is not a regular file")
			}
			return path, nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return "", errors.New("too many links")
}

// maxFile bounds the files that are edited, in bytes.
const maxFile = 16 << 20

// read returns a file's content; nil if there is none.
func read(path string) (raw []byte, err error) {
	at, err := target(path)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(at) // once: another process may remove it at any moment
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(raw) > maxFile {
		return nil, errors.New("it is over 16 MiB")
	}
	return raw, err
}

// Plan returns what wiring an agent would change, without changing it; with
// remove, what taking it out would.
func (e *Env) Plan(s *Store, name string, remove bool) ([]Change, error) {
	a := find(name)
	if a == nil {
		return nil, fmt.Errorf("unknown agent %q", name)
	}
	_, records, err := s.load()
	if err != nil {
		return nil, err
	}
	var list []Change
	for _, f := range a.files(e) {
		if f.onlyRemove && !remove {
			continue
		}
		c := plan(&f, records, remove)
		if _, known := records[f.path]; f.onlyRemove && (c.Action == "unchanged" || c.Failed && !known) {
			continue
		}
		list = append(list, c)
	}
	return list, nil
}

func plan(f *file, records map[string]record, remove bool) Change {
	c := Change{Path: f.path}
	fail := func(err error) Change {
		c.Action, c.Reason, c.After, c.Failed = "left", err.Error(), c.Before, true
		return c
	}
	var err error
	if c.Before, err = read(f.path); err != nil {
		return fail(err)
	}
	had, known := records[f.path]
	if remove && known && c.Before != nil && sum(c.Before) == had.After {
		// It was not changed since: byte for byte as it was.
		c.After = had.Before
		if had.Absent {
			c.After = nil
		}
	} else if c.After, c.Reason, err = f.edit(c.Before, remove); err != nil {
		return fail(err)
	}
	if !remove && c.Before != nil {
		if c.base, _, err = f.edit(c.Before, true); err != nil {
			return fail(err)
		}
	}
	switch {
	case c.Before == nil && c.After == nil || c.Before != nil && c.After != nil && bytes.Equal(c.Before, c.After):
		c.Action = "unchanged"
		c.After = c.Before
	case c.Before == nil:
		c.Action = "created"
	case c.After == nil:
		c.Action = "removed"
	default:
		c.Action = "changed"
	}
	return c
}

// Apply does what Plan returned, and notes what was there before. A file that
// changed since the plan is left. What a process that was killed had begun is finished
// or taken back. Processes that share a store do so one after another.
func (e *Env) Apply(s *Store, list []Change, remove bool) error {
	free, err := s.lock()
	if err != nil {
		return err
	}
	defer free()
	records, err := s.recover()
	if err != nil {
		return err
	}
	for i := range list {
		c := &list[i]
		if c.Action == "left" || c.Action == "unchanged" {
			continue
		}
		if err := e.apply(s, records, c, remove); err != nil {
			c.Action, c.Reason, c.Failed = "left", err.Error(), true
		}
	}
	return nil
}

// apply makes one edit: the store has it before a file is touched, and again once it
// is done.
func (e *Env) apply(s *Store, records map[string]record, c *Change, remove bool) error {
	at, err := target(c.Path)
	if err != nil {
		return err
	}
	if same, err := c.unchanged(at); err != nil {
		return err
	} else if !same {
		if now, err := read(c.Path); err == nil && (now == nil) == (c.After == nil) && bytes.Equal(now, c.After) {
			c.Action = "unchanged" // another init did the same
			return nil
		}
		return errors.New("it was changed in the meantime")
	}
	had, known := records[c.Path]
	var like fs.FileInfo
	if c.Before != nil {
		if like, err = os.Stat(at); err != nil {
			return err
		}
		if like.Mode().Perm()&0o200 == 0 {
			return errors.New("it is read-only")
		}
	}
	d := &doing{Path: at, Temp: tempName(at)}
	if c.Before != nil {
		d.Was = sum(c.Before)
	}
	if c.After != nil {
		d.After, d.Made = sum(c.After), missingDirs(filepath.Dir(at))
	}
	if !remove {
		next := had
		next.Doing = nil
		if !known || c.Before == nil || sum(c.Before) != had.After {
			// What others changed since is theirs, and part of what is given back.
			next = record{Before: c.base, Absent: c.base == nil, Made: append(slices.Clone(d.Made), had.Made...)}
		}
		next.After = d.After
		d.Next = &next
	}
	begun := had
	begun.Doing = d
	records[c.Path] = begun
	if err := s.save(records); err != nil {
		restore(records, c.Path, had, known)
		return err
	}
	if err := s.make(d, c, at, like); err != nil {
		if done, _ := d.done(); !done {
			_ = s.remove(d.Temp)
			s.removeDirs(records, d.Made)
			restore(records, c.Path, had, known)
			return errors.Join(err, s.save(records))
		}
		// The file is as it should be; only its directory may not be on disk.
	}
	if d.Next != nil {
		records[c.Path] = *d.Next
	} else {
		delete(records, c.Path)
	}
	if d.After == "" {
		s.removeDirs(records, had.Made)
	}
	return s.save(records)
}

func restore(records map[string]record, path string, had record, known bool) {
	if known {
		records[path] = had
	} else {
		delete(records, path)
	}
}

// unchanged reports whether the file at is what the plan saw.
func (c *Change) unchanged(at string) (bool, error) {
	now, err := read(at)
	return (now == nil) == (c.Before == nil) && bytes.Equal(now, c.Before), err
}

// Wired reports whether an agent's files have umbra's hooks or plugin.
func (e *Env) Wired(name string) bool {
	a := find(name)
	if a == nil {
		return false
	}
	for _, f := range a.files(e) {
		text, err := read(f.path)
		if err != nil || text == nil {
			continue
		}
		switch {
		case f.kind == ownFile && bytes.Contains(text, []byte(madeBy)):
			return true
		case f.hook != nil && hasHook(f.hook.agent, string(text)):
			return true
		}
	}
	return false
}
