package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
)

// file is what exists at a path; Mode 0: nothing.
type file struct {
	mode object.Mode
	id   object.ID
}

func (f file) exists() bool { return f.mode != 0 }

// change is what a step does to one file. A rename has another old path.
type change struct {
	oldPath, path string
	old, new      file
}

// diff gives the files that differ between two trees, by path.
func (s *source) diff(a, b object.ID) (map[string][2]file, error) {
	out := make(map[string][2]file)
	return out, s.diffDirs("", a, b, out)
}

func (s *source) diffDirs(prefix string, a, b object.ID, out map[string][2]file) error {
	if a == b {
		return nil
	}
	ta, err := s.tree(a)
	if err != nil {
		return err
	}
	tb, err := s.tree(b)
	if err != nil {
		return err
	}
	one := func(name string, x, y object.Entry) error {
		if x.Mode == y.Mode && x.ID == y.ID {
			return nil
		}
		path := prefix + name
		var pair [2]file
		var da, db object.ID
		if x.Mode == object.Dir {
			da = x.ID
		} else {
			pair[0] = file{x.Mode, x.ID}
		}
		if y.Mode == object.Dir {
			db = y.ID
		} else {
			pair[1] = file{y.Mode, y.ID}
		}
		if pair[0].exists() || pair[1].exists() {
			out[path] = pair
		}
		if da.IsZero() && db.IsZero() {
			return nil
		}
		return s.diffDirs(path+"/", da, db, out)
	}
	for i := range ta.Len() {
		e := ta.At(i)
		o, _ := tb.Find(e.Name)
		if err := one(e.Name, e, o); err != nil {
			return err
		}
	}
	for i := range tb.Len() {
		e := tb.At(i)
		if _, ok := ta.Find(e.Name); !ok {
			if err := one(e.Name, object.Entry{}, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// changes returns what a commit did, and compares it with its message: the message
// lists every changed file, every listed file changed so, and the bytes are those
// of After-Hash.
func (s *source) changes(before object.ID, c *commit) ([]change, error) {
	if claimed := c.msg.Trailer(message.KeyClaims); claimed != "" {
		return s.claimed(claimed, c)
	}
	diff, err := s.diff(before, c.tree)
	if err != nil {
		return nil, err
	}
	m := c.msg
	left := make(map[string]bool, len(diff))
	for p := range diff {
		left[p] = true
	}
	var out []change
	for i := range m.Entries {
		e := &m.Entries[i]
		if strings.HasSuffix(e.Path, "/") {
			continue // an empty folder: trees have none
		}
		ch, err := s.compareEntry(before, c.tree, e)
		if err != nil {
			return nil, err
		}
		out = append(out, *ch)
		delete(left, ch.path)
		delete(left, ch.oldPath)
	}
	if len(left) > 0 && !m.Condensed && m.Source != message.Baseline {
		return nil, fmt.Errorf("%s changed, which the message does not list", message.QuotePath(slices.Sorted(maps.Keys(left))[0]))
	}
	for p := range left {
		d := diff[p]
		out = append(out, change{oldPath: p, path: p, old: d[0], new: d[1]})
	}
	slices.SortFunc(out, func(a, b change) int { return strings.Compare(a.path, b.path) })
	return out, nil
}

// claimed gives what a commit makes its task's: changes that a commit before it
// recorded, whose they were not known to be then.
func (s *source) claimed(name string, c *commit) ([]change, error) {
	id, err := object.ParseID(name)
	if err != nil {
		return nil, err
	}
	from, err := s.commit(id)
	if err != nil {
		return nil, err
	}
	before, err := s.commit(from.parent)
	if err != nil {
		return nil, err
	}
	var out []change
	for i := range c.msg.Entries {
		ch, err := s.compareEntry(before.tree, from.tree, &c.msg.Entries[i])
		if err != nil {
			return nil, err
		}
		out = append(out, *ch)
	}
	slices.SortFunc(out, func(a, b change) int { return strings.Compare(a.path, b.path) })
	return out, nil
}

// compareEntry compares one entry of a message with the trees.
func (s *source) compareEntry(before, after object.ID, e *message.Entry) (ch *change, err error) {
	ch = &change{oldPath: e.Path, path: e.Path}
	if e.OldPath != "" {
		ch.oldPath = e.OldPath
	}
	if ch.new, err = s.lookup(after, e.Path); err != nil {
		return nil, err
	}
	if ch.old, err = s.lookup(before, ch.oldPath); err != nil {
		return nil, err
	}
	if e.Operation == message.Delete {
		// Another file may have taken its place: listed by an entry of its own.
		ch.new = file{}
		if !ch.old.exists() {
			return nil, fmt.Errorf("%s is listed as deleted, and did not exist", message.QuotePath(e.Path))
		}
		return ch, nil
	}
	if !ch.new.exists() {
		return nil, fmt.Errorf("%s is listed, and the tree does not have it", message.QuotePath(e.Path))
	}
	if e.AfterHash == message.Purged && ch.new.id != gitstore.PurgedBlob() {
		return nil, fmt.Errorf("the bytes of %s are listed as purged, and are others", message.QuotePath(e.Path))
	}
	if e.AfterHash != "" && e.AfterHash != message.Purged {
		data, err := s.get(ch.new.id, object.Blob)
		if err != nil {
			return nil, err
		}
		if sum := sha256.Sum256(data); "sha256:"+hex.EncodeToString(sum[:]) != e.AfterHash {
			return nil, fmt.Errorf("the bytes of %s are not those of its After-Hash", message.QuotePath(e.Path))
		}
	}
	return ch, nil
}

// lookup gives the file at a path of a tree.
func (s *source) lookup(root object.ID, path string) (file, error) {
	for {
		t, err := s.tree(root)
		if err != nil {
			return file{}, err
		}
		name, rest, more := strings.Cut(path, "/")
		e, ok := t.Find(name)
		switch {
		case !ok, more != (e.Mode == object.Dir):
			return file{}, nil
		case !more:
			return file{e.Mode, e.ID}, nil
		}
		root, path = e.ID, rest
	}
}
