package agentconf

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
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

// record is what Remove needs to give a file back.
type record struct {
	Before []byte   `json:"before"` // nil: there was none
	After  string   `json:"after"`  // SHA-256 of what was written
	Made   []string `json:"made"`   // directories, the deepest first
	Absent bool     `json:"absent"` // there was no file
}

// Store keeps, in one file, what was there before each edit.
type Store struct{ Path string }

func (s *Store) load() (map[string]record, error) {
	raw, err := os.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]record{}, nil
	}
	if err != nil {
		return nil, err
	}
	m := map[string]record{}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	return m, nil
}

func (s *Store) save(m map[string]record) error {
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o700); err != nil {
		return err
	}
	return write(s.Path, append(raw, '\n'), 0o600)
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
	info, err := os.Stat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, errors.New("it is over 16 MiB")
	}
	raw, err = os.ReadFile(at)
	if raw == nil && err == nil {
		raw = []byte{}
	}
	return raw, err
}

// write replaces a file at once; its mode stays if it exists.
func write(path string, text []byte, mode fs.FileMode) error {
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already after the rename
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// makeDirs makes a directory with its parents, and returns those that it made,
// the deepest first.
func makeDirs(dir string) (made []string, err error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		made = append(made, at)
	}
	return made, os.MkdirAll(dir, 0o755)
}

// madeBy marks files that are written as a whole.
const madeBy = "Made by `umbra init`"

// edit returns a file's content with umbra's part, or without it.
func (f *file) edit(text []byte, remove bool) ([]byte, string, error) {
	switch f.kind {
	case ownFile:
		if text != nil && !bytes.Contains(text, []byte(madeBy)) {
			if remove {
				return text, "", nil
			}
			return nil, "", errors.New("it is another file of this name")
		}
		if remove {
			return nil, "", nil
		}
		return []byte(f.text), "", nil
	case tomlFile:
		return f.editTOML(text, remove)
	}
	if remove && text == nil {
		return nil, "", nil
	}
	d, err := parseDocument(text)
	if err != nil {
		return nil, "", err
	}
	if remove {
		return f.strip(d, text)
	}
	note := ""
	if text == nil {
		for _, p := range f.first {
			if _, err := d.set(p.value, func(string) bool { return false }, p.name); err != nil {
				return nil, "", err
			}
		}
	}
	if f.hook != nil {
		for _, event := range f.hook.events {
			has := func(plain string) bool { return hasHook(f.hook.agent, plain) }
			if err := d.add(f.hook.element(event), oursHook(f.hook.agent), has, "hooks", event); err != nil {
				return nil, "", err
			}
		}
	}
	if f.member != nil {
		left, err := d.set(f.value, oursMCP, f.member...)
		if err != nil {
			return nil, "", err
		}
		if left {
			note = "it has another entry named umbra, which is left"
		}
	}
	return d.text, note, nil
}

func (f *file) strip(d *document, text []byte) ([]byte, string, error) {
	if f.hook != nil {
		for _, event := range f.hook.events {
			if err := d.removeElements(oursHook(f.hook.agent), "hooks", event); err != nil {
				return nil, "", err
			}
		}
	}
	if f.member != nil {
		if v := d.lookup(f.member...); v != nil && oursMCP(plainJSON(*v)) {
			if err := d.remove(f.member...); err != nil {
				return nil, "", err
			}
			if err := d.removeIfEmpty(f.member[:len(f.member)-1]...); err != nil {
				return nil, "", err
			}
		}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return text, "", nil
	}
	return d.text, "", nil
}

// editTOML appends a table, or cuts it out. The text is checked before and after.
func (f *file) editTOML(text []byte, remove bool) ([]byte, string, error) {
	table := func(text []byte) (map[string]any, error) {
		var all map[string]any
		if err := toml.Unmarshal(text, &all); err != nil {
			return nil, err
		}
		servers, _ := all[f.member[0]].(map[string]any)
		have, _ := servers[f.member[1]].(map[string]any)
		return have, nil
	}
	have, err := table(text)
	if err != nil {
		return nil, "", err
	}
	ours := false
	if have != nil {
		plain, err := plainGo(have)
		if err != nil {
			return nil, "", err
		}
		ours = oursMCP(plain)
		if want, err := plainGo(f.value); err == nil && plain == want && !remove {
			return text, "", nil
		}
	}
	if have != nil && !ours {
		if remove {
			return text, "", nil
		}
		return text, "it has another entry named umbra, which is left", nil
	}
	if remove && have == nil {
		return text, "", nil
	}
	header := "[" + strings.Join(f.member, ".") + "]"
	out, cut := cutTable(text, header)
	if have != nil && !cut {
		return nil, "", errShape
	}
	if !remove {
		s, ok := f.value.(server)
		if !ok {
			return nil, "", errShape
		}
		nl := "\n"
		if bytes.Contains(text, []byte("\r\n")) {
			nl = "\r\n"
		}
		var b strings.Builder
		if len(out) > 0 && out[len(out)-1] != '\n' {
			b.WriteString(nl)
		}
		if len(out) > 0 {
			b.WriteString(nl)
		}
		args := make([]string, len(s.Args))
		for i, a := range s.Args {
			args[i] = tomlString(a)
		}
		b.WriteString(header + nl + "command = " + tomlString(s.Command) + nl + "args = [" + strings.Join(args, ", ") + "]" + nl)
		out = append(bytes.Clone(out), b.String()...)
	}
	if _, err := table(out); err != nil {
		return nil, "", fmt.Errorf("%w: %w", errShape, err)
	}
	return out, "", nil
}

// tomlString is a basic string of TOML; JSON's escapes are TOML's too.
func tomlString(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// cutTable removes the lines of a table, with the empty line before it, up to the
// next table or a comment.
func cutTable(text []byte, header string) (out []byte, found bool) {
	in := false
	for line := range bytes.Lines(text) {
		word := string(bytes.TrimSpace(line))
		switch {
		case word == header && !found:
			in, found = true, true
			if bytes.HasSuffix(out, []byte("\n\n")) {
				out = out[:len(out)-1]
			} else if bytes.HasSuffix(out, []byte("\n\r\n")) {
				out = out[:len(out)-2]
			}
			continue
		case in && (strings.HasPrefix(word, "[") || strings.HasPrefix(word, "#") || word == ""):
			in = false
		}
		if !in {
			out = append(out, line...)
		}
	}
	return out, found
}

// Plan returns what wiring an agent would change, without changing it; with
// remove, what taking it out would.
func (e *Env) Plan(s *Store, name string, remove bool) ([]Change, error) {
	a := find(name)
	if a == nil {
		return nil, fmt.Errorf("unknown agent %q", name)
	}
	records, err := s.load()
	if err != nil {
		return nil, err
	}
	var list []Change
	for _, f := range a.files(e) {
		list = append(list, plan(&f, records, remove))
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
		// Nobody has changed it since: byte for byte as it was.
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
// changed since the plan is left.
func (e *Env) Apply(s *Store, list []Change, remove bool) error {
	records, err := s.load()
	if err != nil {
		return err
	}
	for i := range list {
		c := &list[i]
		if c.Action == "left" || c.Action == "unchanged" {
			continue
		}
		if err := e.apply(records, c, remove); err != nil {
			c.Action, c.Reason, c.Failed = "left", err.Error(), true
		}
		// Each is noted at once, so that it can be given back whatever comes.
		if err := s.save(records); err != nil {
			return err
		}
	}
	return nil
}

func (e *Env) apply(records map[string]record, c *Change, remove bool) error {
	now, err := read(c.Path)
	if err != nil {
		return err
	}
	if (now == nil) != (c.Before == nil) || !bytes.Equal(now, c.Before) {
		return errors.New("it was changed in the meantime")
	}
	at, err := target(c.Path)
	if err != nil {
		return err
	}
	had, known := records[c.Path]
	if c.After == nil {
		if err := os.Remove(at); err != nil {
			return err
		}
		delete(records, c.Path)
		for _, dir := range had.Made {
			if os.Remove(dir) != nil {
				handOver(records, dir)
			}
		}
		return nil
	}
	made, err := makeDirs(filepath.Dir(at))
	if err != nil {
		return err
	}
	if err := write(at, c.After, 0o644); err != nil {
		return err
	}
	if remove {
		delete(records, c.Path)
		return nil
	}
	if !known || c.Before == nil || sum(c.Before) != had.After {
		// What others changed since is theirs, and part of what is given back.
		had = record{Before: c.base, Absent: c.base == nil, Made: append(made, had.Made...)}
	}
	had.After = sum(c.After)
	records[c.Path] = had
	return nil
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
