package refs

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// Note is what the server's refs were last set to, one file beside the
// repository: at a start it tells a ref that somebody else moved.
//
// The file is a log, one line a ref:
//
//	umbra refs 1
//	<crc32c of the rest, 8 hex digits> <id, zero if deleted> <name>
//
// A line whose sum is wrong is passed over: at the end it is a torn append,
// elsewhere damage, which leaves an older value or none; the ref that moved
// since is then taken for moved by others, and so kept and reported. The log
// is written anew when it has grown to several times what it tells, so that an append
// costs the same, averaged, whatever the number of refs.
type Note struct {
	mu     sync.Mutex
	fs     vfs.FS
	name   string
	f      vfs.File // nil before the first write, and after a failed one
	end    int64    // where the next line goes
	values map[string]object.ID
}

const (
	noteHeader = "umbra refs 1\n"
	noteTemp   = ".tmp"
	// The log is written anew beyond this size, if it is also this many times
	// what it would then be.
	minCompact   = 64 << 10
	growthFactor = 4
	noteLine     = 8 + 1 + 40 + 1 + 1 // and the name
)

// OpenNote reads the note, empty where the file is not there. Damage in it is
// mended by the next Append.
func OpenNote(f vfs.FS, name string) (*Note, error) {
	n := &Note{fs: f, name: name, values: make(map[string]object.ID)}
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
	// A process killed while it wrote the file anew did not see it on disk.
	if err := f.SyncDir(parent(name)); err != nil {
		return nil, err
	}
	if n.f, err = f.OpenFile(name, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	n.end = int64(len(data))
	return n, nil
}

// parse takes in what reads, and reports whether that was all.
func (n *Note) parse(data []byte) (clean bool) {
	rest, clean := bytes.CutPrefix(data, []byte(noteHeader))
	for line := range bytes.Lines(rest) {
		if name, id, ok := parseNoteLine(line); ok {
			n.apply(name, id)
		} else {
			clean = false
		}
	}
	return clean
}

func parseNoteLine(line []byte) (name string, id object.ID, ok bool) {
	body, ok := strings.CutSuffix(string(line), "\n")
	sum, body, ok2 := strings.Cut(body, " ")
	want, err := strconv.ParseUint(sum, 16, 32)
	if !ok || !ok2 || err != nil || len(sum) != 8 || uint32(want) != noteSum(body) {
		return "", id, false
	}
	hex, name, ok := strings.Cut(body, " ")
	id, err = object.ParseID(hex)
	return name, id, ok && err == nil && ValidName(name)
}

func noteSum(s string) uint32 {
	return crc32.Checksum([]byte(s), crc32.MakeTable(crc32.Castagnoli))
}

func appendNoteLine(dst []byte, name string, id object.ID) []byte {
	body := id.String() + " " + name
	return fmt.Appendf(dst, "%08x %s\n", noteSum(body), body)
}

func (n *Note) apply(name string, id object.ID) {
	if id.IsZero() {
		delete(n.values, name)
	} else {
		n.values[name] = id
	}
}

// Get gives the value that a ref was last set to.
func (n *Note) Get(name string) (object.ID, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, ok := n.values[name]
	return id, ok
}

// All gives every ref's noted value, a copy.
func (n *Note) All() map[string]object.ID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.values)
}

// Append notes what refs were set to (symbolic ones are left out), durable
// when it returns. After an error nothing more is noted than before, and the
// next Append writes the file anew: one whose sync failed is not trusted.
func (n *Note) Append(updates []Update) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var lines []byte
	for _, u := range updates {
		if !ValidName(u.Name) {
			return fmt.Errorf("refs: %q is not a ref name", u.Name)
		}
		// A name may stand twice: once there is a line, all that follow it are
		// written.
		if u.Symbolic == "" && (len(lines) > 0 || n.values[u.Name] != u.New) {
			lines = appendNoteLine(lines, u.Name, u.New)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if n.f == nil || n.end+int64(len(lines)) > n.compactAt() {
		return n.rewrite(updates)
	}
	_, err := n.f.WriteAt(lines, n.end)
	if err == nil {
		err = n.f.Datasync()
	}
	if err != nil {
		n.f.Close()
		n.f = nil
		return err
	}
	n.end += int64(len(lines))
	n.applyAll(updates)
	return nil
}

func (n *Note) applyAll(updates []Update) {
	for _, u := range updates {
		if u.Symbolic == "" {
			n.apply(u.Name, u.New)
		}
	}
}

// compactAt is the size beyond which the log is written anew.
func (n *Note) compactAt() int64 {
	const typicalName = 64
	return max(minCompact, growthFactor*int64(len(n.values))*(noteLine+typicalName))
}

// rewrite replaces the file by one that holds each value once.
func (n *Note) rewrite(updates []Update) error {
	before := maps.Clone(n.values)
	n.applyAll(updates)
	err := n.replace()
	if err != nil {
		n.values = before
	}
	return err
}

func (n *Note) replace() error {
	data := []byte(noteHeader)
	for name, id := range n.values {
		data = appendNoteLine(data, name, id)
	}
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
	if err != nil {
		f.Close()
		n.drop()
		return err
	}
	n.drop()
	n.f, n.end = f, int64(len(data))
	return nil
}

// drop closes the file: the next Append writes it anew.
func (n *Note) drop() {
	if n.f != nil {
		n.f.Close()
		n.f = nil
	}
}

// Close frees the file. What was appended is durable already.
func (n *Note) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop()
	return nil
}
