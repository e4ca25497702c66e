package refs

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// Note is the ref log, one file next to the repository: what the server's refs
// are, and up to which journal that is so. Git's refs are a projection of it.
//
// The file is a header and groups:
//
//	umbra refs 2
//	group <journal> <lines> <crc32c of the two numbers and the lines, 8 hex digits>
//	<id, zero if deleted> <name>
//
// A group applies whole or not at all. The first one holds all refs as they were
// when the file was written, each later one is an append. A ref may have the value
// of its newest line or the one before until Moved says that it was moved: a group
// then has several lines for a name, and each but the last is a value that the ref
// may still have. A group without lines says that all were moved.
//
// A group at the end whose sum is wrong is a torn append. One before a good group
// is damage: Damage reports it, and older values of its refs hold. The file is
// rewritten when it has grown to several times its content, so that an append
// costs the same, averaged, whatever the number of refs.
type Note struct {
	mu     sync.Mutex
	fs     vfs.FS
	name   string
	f      vfs.File // nil before the first write, and after a failed one
	end    int64    // offset of the next group
	shown  uint64
	values map[string]object.ID
	// before are the values besides the newest one that a ref may have; a ref that
	// has the newest for certain is not in it.
	before  map[string][]object.ID
	settled bool // the last group says that all were moved
	damage  bool
}

// Value is what a ref is to be; a zero ID: it is to be absent.
type Value struct {
	Name string
	ID   object.ID
}

const (
	noteHeader   = "umbra refs 2\n"
	noteHeader1  = "umbra refs 1\n"
	notePrefix   = "group "
	shownInNote1 = "refs/umbra/shown" // held the journal's number, in place of an id
	noteTemp     = ".tmp"
	// The log is rewritten beyond this size, if it is also this many times what
	// it would then be.
	minCompact   = 64 << 10
	growthFactor = 4
	noteLine     = 40 + 1 + 1 // and the name
	// maxBefore bounds the values that a ref which cannot be moved may have: the
	// oldest and the newest are kept.
	maxBefore = 8
)

// OpenNote reads the ref log; it is empty if the file does not exist. A torn or
// damaged file, or one of version 1, is rewritten by the next Append.
func OpenNote(f vfs.FS, name string) (*Note, error) {
	n := &Note{fs: f, name: name, values: make(map[string]object.ID), before: make(map[string][]object.ID)}
	if err := f.Remove(name + noteTemp); err != nil && !notExist(err) {
		return nil, err
	}
	data, err := vfs.ReadFile(f, name)
	if notExist(err) {
		return n, nil
	}
	if err != nil {
		return nil, err
	}
	if !n.parse(data) {
		return n, nil
	}
	if n.f, err = f.OpenFile(name, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	// A process that was killed while it appended or rewrote the file may not have
	// synced it. The caller relies on what it says: journals are removed.
	if err := errors.Join(n.f.Datasync(), f.SyncDir(parent(name))); err != nil {
		n.f.Close()
		return nil, err
	}
	n.end = int64(len(data))
	return n, nil
}

// WriteNote makes a ref log in which every ref has its value for certain, in place of
// one that is there. It is not synced.
func WriteNote(f vfs.FS, name string, values []Value) error {
	h, err := f.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	all := noteGroup{values: values}
	_, err = h.Write(all.encode([]byte(noteHeader)))
	return errors.Join(err, h.Close())
}

// parse applies what is whole, and reports whether that was all, in this version.
func (n *Note) parse(data []byte) bool {
	if rest, ok := bytes.CutPrefix(data, []byte(noteHeader1)); ok {
		n.parse1(rest)
		return false
	}
	rest, clean := bytes.CutPrefix(data, []byte(noteHeader))
	first := clean
	for len(rest) > 0 {
		g, size, ok := parseGroup(rest)
		if !ok {
			// Whatever is good again is looked for line by line.
			clean, first = false, false
			_, rest, _ = bytes.Cut(rest, []byte{'\n'})
			continue
		}
		n.damage = n.damage || !clean
		n.apply(g, first)
		rest, first = rest[size:], false
	}
	return clean
}

// noteGroup is one group of the log.
type noteGroup struct {
	shown  uint64
	values []Value
}

func (g *noteGroup) encode(dst []byte) []byte {
	var body []byte
	for _, v := range g.values {
		body = fmt.Appendf(body, "%s %s\n", v.ID, v.Name)
	}
	head := fmt.Sprintf("%d %d", g.shown, len(g.values))
	return append(fmt.Appendf(dst, "%s%s %08x\n", notePrefix, head, groupSum(head, body)), body...)
}

func groupSum(head string, body []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum([]byte(head), table), table, body)
}

// parseGroup reads the group at the start of data and returns its size.
func parseGroup(data []byte) (g noteGroup, size int, ok bool) {
	line, rest, ok := bytes.Cut(data, []byte{'\n'})
	text, isGroup := strings.CutPrefix(string(line), notePrefix)
	if !ok || !isGroup {
		return g, 0, false
	}
	at := strings.LastIndexByte(text, ' ')
	if at < 0 || len(text)-at != 9 {
		return g, 0, false
	}
	head := text[:at]
	sum, err := strconv.ParseUint(text[at+1:], 16, 32)
	journal, count, ok := strings.Cut(head, " ")
	lines, err2 := strconv.Atoi(count)
	if g.shown, _ = strconv.ParseUint(journal, 10, 64); err != nil || err2 != nil || !ok || lines < 0 || lines > len(rest)/noteLine {
		return g, 0, false
	}
	g.values = make([]Value, 0, lines)
	end := 0
	for range lines {
		body, _, ok := bytes.Cut(rest[end:], []byte{'\n'})
		hex, name, ok2 := strings.Cut(string(body), " ")
		id, err := object.ParseID(hex)
		if !ok || !ok2 || err != nil || !ValidName(name) {
			return g, 0, false
		}
		g.values = append(g.values, Value{name, id})
		end += len(body) + 1
	}
	return g, len(line) + 1 + end, groupSum(head, rest[:end]) == uint32(sum)
}

// apply takes a group in. In the first one of a file a ref with one line has that
// value for certain.
func (n *Note) apply(g noteGroup, first bool) {
	n.shown = max(n.shown, g.shown)
	n.settled = len(g.values) == 0
	if n.settled {
		clear(n.before)
	}
	for i := 0; i < len(g.values); {
		name, j := g.values[i].Name, i+1
		for j < len(g.values) && g.values[j].Name == name {
			j++
		}
		lines := g.values[i:j]
		i = j
		switch {
		case len(lines) > 1:
			var before []object.ID
			for _, v := range lines[:len(lines)-1] {
				before = append(before, v.ID)
			}
			n.before[name] = before
		case first || name == Boundary:
			delete(n.before, name)
		default:
			n.before[name] = []object.ID{n.values[name]}
		}
		n.set(lines[len(lines)-1])
	}
}

func (n *Note) set(v Value) {
	if v.ID.IsZero() {
		delete(n.values, v.Name)
	} else {
		n.values[v.Name] = v.ID
	}
}

// parse1 reads version 1: a line a ref, with a checksum of its own.
func (n *Note) parse1(data []byte) {
	for line := range bytes.Lines(data) {
		body, ok := strings.CutSuffix(string(line), "\n")
		sum, body, ok2 := strings.Cut(body, " ")
		want, err := strconv.ParseUint(sum, 16, 32)
		if !ok || !ok2 || err != nil || len(sum) != 8 || uint32(want) != groupSum(body, nil) {
			continue
		}
		hex, name, ok := strings.Cut(body, " ")
		id, err := object.ParseID(hex)
		if !ok || err != nil || !ValidName(name) {
			continue
		}
		if name == shownInNote1 {
			var number uint64
			for _, b := range id[len(id)-8:] {
				number = number<<8 | uint64(b)
			}
			n.shown = number
			continue
		}
		n.set(Value{name, id})
	}
}

// Damage reports whether the file was damaged when it was read, other than by an
// append that was cut off.
func (n *Note) Damage() bool { return n.damage }

// Shown returns the number of the newest journal whose every commit and task the
// refs' values include.
func (n *Note) Shown() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shown
}

// Get returns a ref's newest value.
func (n *Note) Get(name string) (object.ID, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, ok := n.values[name]
	return id, ok
}

// All returns every ref's newest value, a copy.
func (n *Note) All() map[string]object.ID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.values)
}

// Pending returns the moves of refs that may not have their newest value yet,
// ShadowRef last.
func (n *Note) Pending() []Update {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.before) == 0 {
		return nil
	}
	list := make([]Update, 0, len(n.before))
	for name, before := range n.before {
		list = append(list, Update{Name: name, New: n.values[name], Before: slices.Clip(before)})
	}
	slices.SortFunc(list, func(a, b Update) int {
		if (a.Name == ShadowRef) != (b.Name == ShadowRef) {
			if a.Name == ShadowRef {
				return 1
			}
			return -1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list
}

// Moved says that a ref has its newest value, durably.
func (n *Note) Moved(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.before, name)
}

// Expect says that a ref may not have its newest value, but one of before; none:
// whatever else it has was set by another process. Not durable.
func (n *Note) Expect(name string, before ...object.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.before[name]
	if len(was)+len(before) == 0 {
		was = []object.ID{n.values[name]}
	}
	n.before[name] = oldest(was, before...)
}

// oldest adds values to those that a ref may have.
func oldest(was []object.ID, ids ...object.ID) []object.ID {
	was = slices.Clip(was)
	for _, id := range ids {
		if !slices.Contains(was, id) {
			was = append(was, id)
		}
	}
	if len(was) > maxBefore {
		was = slices.Delete(was, 1, 1+len(was)-maxBefore)
	}
	return was
}

// Append records the values of refs, and the number of the newest journal that
// they include, as one group; it is durable when Append returns. A name occurs once.
// After an error nothing more is recorded than before, and the next Append rewrites
// the file: one whose sync failed is not trusted.
func (n *Note) Append(shown uint64, values ...Value) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := noteGroup{shown: max(shown, n.shown)}
	for _, v := range values {
		if !ValidName(v.Name) {
			return fmt.Errorf("refs: %q is not a ref name", v.Name)
		}
		if n.values[v.Name] == v.ID {
			continue
		}
		if before := n.before[v.Name]; before != nil {
			for _, id := range oldest(before, n.values[v.Name]) {
				g.values = append(g.values, Value{v.Name, id})
			}
		}
		g.values = append(g.values, v)
	}
	if len(g.values) == 0 && g.shown == n.shown {
		return nil
	}
	if len(g.values) == 0 {
		g.values = n.lines() // without lines it would say that all were moved
	}
	data := g.encode(nil)
	if n.f == nil || n.end+int64(len(data)) > n.compactAt() {
		if err := n.rewrite(data); err != nil {
			return err
		}
	} else {
		_, err := n.f.WriteAt(data, n.end)
		if err == nil {
			err = n.f.Datasync()
		}
		if err != nil {
			n.drop()
			return err
		}
		n.end += int64(len(data))
	}
	n.apply(g, false)
	return nil
}

// compactAt is the size beyond which the log is rewritten.
func (n *Note) compactAt() int64 {
	const typicalName = 64
	return max(minCompact, growthFactor*int64(len(n.values)+len(n.before))*(noteLine+typicalName))
}

// rewrite replaces the file by one that holds each value once, and then one more
// group.
func (n *Note) rewrite(next []byte) error {
	all := noteGroup{shown: n.shown}
	for name, id := range n.values {
		if n.before[name] == nil {
			all.values = append(all.values, Value{name, id})
		}
	}
	all.values = append(all.values, n.lines()...)
	data := append(all.encode([]byte(noteHeader)), next...)
	temp := n.name + noteTemp
	f, err := n.fs.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = n.fs.Rename(temp, n.name)
	}
	if err == nil {
		err = n.fs.SyncDir(parent(n.name))
	}
	n.drop()
	if err != nil {
		f.Close()
		return err
	}
	n.f, n.end = f, int64(len(data))
	return nil
}

// lines are those of the refs that may not have their newest values.
func (n *Note) lines() (out []Value) {
	for name, list := range n.before {
		for _, before := range list {
			out = append(out, Value{name, before})
		}
		out = append(out, Value{name, n.values[name]})
	}
	return out
}

// drop closes the file: the next Append rewrites it.
func (n *Note) drop() {
	if n.f != nil {
		n.f.Close()
		n.f = nil
	}
}

// Close frees the file. Appended lines are durable already. If all refs were moved,
// it records that, without a sync: the next start then sees each ref that another
// process moves meanwhile, also to its previous value.
func (n *Note) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.f != nil && !n.settled && len(n.before) == 0 {
		g := noteGroup{shown: n.shown}
		_, _ = n.f.WriteAt(g.encode(nil), n.end) // what is torn is as good as nothing
	}
	n.drop()
	return nil
}
