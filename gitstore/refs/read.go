package refs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"umbra/gitstore/object"
)

// Ref is one ref as it is.
type Ref struct {
	Name     string
	ID       object.ID // zero if symbolic or damaged
	Symbolic string    // the name it points at, if it is symbolic
	Damaged  bool      // its file is empty or no ref's
	loose    bool
}

func (r Ref) found() bool { return r.Symbolic != "" || !r.ID.IsZero() }

// DamagedError describes a loose ref that is empty or holds no value. Whatever
// packed-refs says is older, and is not taken in its place.
type DamagedError struct{ Name string }

func (e *DamagedError) Error() string { return fmt.Sprintf("refs: %s is damaged", e.Name) }

// Read gives a ref's value: an id, or the name that a symbolic ref points at.
// A *DamagedError is for a file that holds neither.
func (s *Store) Read(name string) (id object.ID, symbolic string, found bool, err error) {
	r, err := s.read(name)
	if err == nil && r.Damaged {
		err = &DamagedError{Name: name}
	}
	return r.ID, r.Symbolic, r.found(), err
}

// Resolve follows symbolic refs to an id. found is false where one of them
// points at nothing.
func (s *Store) Resolve(name string) (id object.ID, found bool, err error) {
	const depth = 5 // as git
	for range depth {
		id, next, found, err := s.Read(name)
		if err != nil || !found || next == "" {
			return id, found, err
		}
		name = next
	}
	return object.Zero, false, &DamagedError{Name: name}
}

func (s *Store) read(name string) (Ref, error) {
	if !ValidName(name) {
		return Ref{}, fmt.Errorf("refs: %q is not a ref name", name)
	}
	return s.readAny(name)
}

// readAny is like read, for the file of any name below refs/.
func (s *Store) readAny(name string) (Ref, error) {
	r, ok, err := s.readLoose(name)
	if err != nil || ok {
		return r, err
	}
	p, err := s.packed()
	if err != nil {
		return Ref{}, err
	}
	r = Ref{Name: name}
	if i, ok := p.find(name); ok {
		r.ID = p.refs[i].id
	}
	return r, nil
}

// maxLoose bounds what is read of a loose ref: a symbolic one's target is a
// file name.
const maxLoose = 4200

// readLoose gives ok false where there is no file of that name.
func (s *Store) readLoose(name string) (_ Ref, ok bool, _ error) {
	r := Ref{Name: name, loose: true}
	f, err := s.fs.Open(s.path(name))
	switch {
	case notExist(err), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return Ref{}, false, nil
	case errors.Is(err, syscall.ELOOP):
		// A symbolic link was how git once made a symbolic ref.
		target, err := s.fs.Readlink(s.path(name))
		if err != nil {
			return Ref{}, false, err
		}
		r.Symbolic = target
		if !ValidName(target) || !strings.HasPrefix(target, "refs/") {
			r.Symbolic, r.Damaged = "", true
		}
		return r, true, nil
	case err != nil:
		return Ref{}, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Ref{}, false, err
	}
	if info.IsDir() {
		return Ref{}, false, nil
	}
	if !info.IsRegular() {
		r.Damaged = true
		return r, true, nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLoose))
	if err != nil {
		return Ref{}, false, err
	}
	r.parse(string(data))
	return r, true, nil
}

// parse reads a loose ref's bytes: "ref: <name>" or 40 hex digits, then white
// space.
func (r *Ref) parse(data string) {
	if target, ok := strings.CutPrefix(data, "ref:"); ok {
		target = strings.Trim(target, " \t\r\n")
		if ValidName(target) && target != HEAD {
			r.Symbolic = target
			return
		}
	} else if len(data) >= 40 && (len(data) == 40 || strings.IndexByte(" \t\r\n", data[40]) >= 0) {
		if id, err := object.ParseID(data[:40]); err == nil && !id.IsZero() {
			r.ID = id
			return
		}
	}
	r.Damaged = true
}

// List gives the refs whose names begin with prefix, sorted by name, damaged
// ones included.
func (s *Store) List(prefix string) ([]Ref, error) {
	// Loose before packed: what is being packed meanwhile is seen twice
	// rather than never.
	loose, err := s.listLoose(prefix)
	if err != nil {
		return nil, err
	}
	p, err := s.packed()
	if err != nil {
		return nil, err
	}
	have := make(map[string]bool, len(loose))
	for _, r := range loose {
		have[r.Name] = true
	}
	for _, r := range p.under(prefix) {
		if !have[r.name] && ValidName(r.name) {
			loose = append(loose, Ref{Name: r.name, ID: r.id})
		}
	}
	slices.SortFunc(loose, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return loose, nil
}

func (s *Store) listLoose(prefix string) ([]Ref, error) {
	dir := "refs"
	if i := strings.LastIndexByte(prefix, '/'); i > 0 {
		dir = prefix[:i]
	}
	var out []Ref
	err := s.walk(dir, func(name string) error {
		if !strings.HasPrefix(name, prefix) || !ValidName(name) {
			return nil
		}
		r, ok, err := s.readLoose(name)
		if ok {
			out = append(out, r)
		}
		return err
	})
	return out, err
}

// walk visits every file under a folder of the repository, in no particular
// order. What vanishes meanwhile is passed over.
func (s *Store) walk(dir string, visit func(name string) error) error {
	entries, err := s.fs.ReadDir(s.path(dir))
	if notExist(err) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := dir + "/" + e.Name
		if e.Type.IsDir() {
			err = s.walk(name, visit)
		} else {
			err = visit(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func notExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
