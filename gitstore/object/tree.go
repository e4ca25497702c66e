package object

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"
)

// ErrBadTree is returned for bytes that are not a well-formed tree, and for
// entries that a tree may not have.
var ErrBadTree = errors.New("object: bad tree")

// Entry is one line of a tree.
type Entry struct {
	Name string // raw bytes, one path component
	Mode Mode
	ID   ID
}

// Validate reports whether git would take the entry: one of the five modes, an
// id, and a name that fsck allows for that mode.
func (e Entry) Validate() error {
	switch e.Mode {
	case Dir, Regular, Executable, Symlink, Submodule:
	default:
		return fmt.Errorf("%w: mode %o", ErrBadTree, uint32(e.Mode))
	}
	if err := ValidName(e.Name); err != nil {
		return err
	}
	if e.Mode == Symlink && ProtectedSymlinkName(e.Name) {
		return fmt.Errorf("%w: %q as a symbolic link", ErrBadName, e.Name)
	}
	if e.ID.IsZero() {
		return fmt.Errorf("%w: %q has no id", ErrBadTree, e.Name)
	}
	return nil
}

// ParseTree reads a tree strictly: canonical modes, names that are not empty
// and hold no slash, git's order, no name twice. Which names are allowed is
// ValidName's matter: a tree of someone else's may hold what we never write.
func ParseTree(data []byte) ([]Entry, error) {
	t, err := NewTree(data)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, t.Len())
	for i := range entries {
		entries[i] = t.At(i)
	}
	return entries, nil
}

// EncodeTree makes a tree of entries in any order. It fails where an entry does
// not validate or a name occurs twice.
func EncodeTree(entries []Entry) (*TreeData, error) {
	return (&TreeData{off: []uint32{0}}).With(entries, nil)
}

// TreeData is an immutable tree in memory: its encoded bytes and the offset of
// each entry, about 4 bytes more per entry than git's own form. Safe for
// concurrent use.
type TreeData struct {
	data []byte
	off  []uint32 // starts of the entries, and len(data) last
	id   atomic.Pointer[ID]
}

// NewTree indexes an encoded tree, as strictly as ParseTree. It keeps data,
// which must not change afterwards.
func NewTree(data []byte) (*TreeData, error) {
	if len(data) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d bytes", ErrBadTree, len(data))
	}
	// A line is at least 28 bytes; names average about 12.
	t := &TreeData{data: data, off: make([]uint32, 0, len(data)/36+2)}
	for pos := 0; pos < len(data); {
		end, err := entryEnd(data, pos)
		if err != nil {
			return nil, err
		}
		t.off = append(t.off, uint32(pos))
		if n := len(t.off); n > 1 {
			if err := t.checkOrder(n-1, end); err != nil {
				return nil, err
			}
		}
		pos = end
	}
	t.off = slices.Clip(append(t.off, uint32(len(data))))
	return t, nil
}

// entryEnd checks the form of the entry at pos and gives where the next starts.
func entryEnd(data []byte, pos int) (int, error) {
	b := data[pos:]
	sp := bytes.IndexByte(b[:min(len(b), 7)], ' ')
	if sp < 0 {
		return 0, fmt.Errorf("%w: no mode at byte %d", ErrBadTree, pos)
	}
	switch string(b[:sp]) {
	case "40000", "100644", "100755", "120000", "160000":
	default:
		return 0, fmt.Errorf("%w: mode %q", ErrBadTree, b[:sp])
	}
	n := bytes.IndexByte(b[sp+1:], 0)
	if n < 0 || len(b) < sp+1+n+1+20 {
		return 0, fmt.Errorf("%w: cut short at byte %d", ErrBadTree, pos)
	}
	name := b[sp+1 : sp+1+n]
	if n == 0 || bytes.IndexByte(name, '/') >= 0 {
		return 0, fmt.Errorf("%w: name %q", ErrBadTree, name)
	}
	return pos + sp + 1 + n + 1 + 20, nil
}

// checkOrder compares entry i, which ends at end, with those before it. A file
// and a folder of one name need not be neighbors ("a", "a.b", "a/"), but
// everything between them begins with that name.
func (t *TreeData) checkOrder(i, end int) error {
	prev, prevDir := t.nameAt(i-1, int(t.off[i]))
	name, dir := t.nameAt(i, end)
	if compareNames(prev, prevDir, name, dir) >= 0 || bytes.Equal(prev, name) {
		return fmt.Errorf("%w: %q after %q", ErrBadTree, name, prev)
	}
	if !dir || !bytes.HasPrefix(prev, name) {
		return nil
	}
	before := TreeData{data: t.data, off: t.off}
	if _, found := before.search(name, false); found {
		return fmt.Errorf("%w: %q occurs twice", ErrBadTree, name)
	}
	return nil
}

// nameAt gives the name of entry i, which ends at end.
func (t *TreeData) nameAt(i, end int) (name []byte, dir bool) {
	start := int(t.off[i])
	if t.data[start] == '4' {
		return t.data[start+len("40000 ") : end-21], true
	}
	return t.data[start+len("100644 ") : end-21], false
}

// compareNames is git's order: bytewise, a folder as if its name ended in "/".
func compareNames(a []byte, aDir bool, b []byte, bDir bool) int {
	n := min(len(a), len(b))
	if c := bytes.Compare(a[:n], b[:n]); c != 0 {
		return c
	}
	return int(after(a, aDir, n)) - int(after(b, bDir, n))
}

func after(name []byte, dir bool, i int) byte {
	switch {
	case i < len(name):
		return name[i]
	case dir:
		return '/'
	}
	return 0
}

// search gives the first entry not before (name, dir), and whether it is that.
func (t *TreeData) search(name []byte, dir bool) (int, bool) {
	lo, hi := 0, t.Len()
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		n, d := t.nameAt(mid, int(t.off[mid+1]))
		switch c := compareNames(n, d, name, dir); {
		case c < 0:
			lo = mid + 1
		case c > 0:
			hi = mid
		default:
			return mid, true
		}
	}
	return lo, false
}

// index finds a name as a file or as a folder.
func (t *TreeData) index(name []byte) (int, bool) {
	i, ok := t.search(name, false)
	if !ok {
		i, ok = t.search(name, true)
	}
	return i, ok
}

// Len gives the number of entries.
func (t *TreeData) Len() int { return len(t.off) - 1 }

// At gives entry i, 0 ≤ i < Len().
func (t *TreeData) At(i int) Entry {
	start, end := int(t.off[i]), int(t.off[i+1])
	name, _ := t.nameAt(i, end)
	e := Entry{Name: string(name), Mode: modeAt(t.data[start:])}
	copy(e.ID[:], t.data[end-20:end])
	return e
}

// modeAt reads one of the five modes that entryEnd lets pass.
func modeAt(b []byte) Mode {
	switch {
	case b[0] == '4':
		return Dir
	case b[1] == '2':
		return Symlink
	case b[1] == '6':
		return Submodule
	case b[3] == '7':
		return Executable
	}
	return Regular
}

// Find looks a name up, whatever its kind.
func (t *TreeData) Find(name string) (Entry, bool) {
	i, ok := t.index(bytesOf(name))
	if !ok {
		return Entry{}, false
	}
	start, end := int(t.off[i]), int(t.off[i+1])
	e := Entry{Name: name, Mode: modeAt(t.data[start:])}
	copy(e.ID[:], t.data[end-20:end])
	return e, true
}

// bytesOf views a string as bytes for comparing, so that a lookup allocates
// nothing. The result is never written to or kept.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// Bytes gives the encoded tree. It must not be changed.
func (t *TreeData) Bytes() []byte { return t.data }

// ID gives the tree's id, which is computed once.
func (t *TreeData) ID() ID {
	if id := t.id.Load(); id != nil {
		return *id
	}
	id := Hash(Tree, t.data)
	t.id.Store(&id)
	return id
}

// Size gives the memory that the tree takes, in bytes.
func (t *TreeData) Size() int {
	return cap(t.data) + 4*cap(t.off) + int(unsafe.Sizeof(*t)) + len(ID{})
}

// edit replaces the entry at the place of (name, dir), if there is one.
type edit struct {
	name []byte
	dir  bool
	at   int    // entry index
	drop bool   // entry at goes
	line *Entry // what comes in its place; nil for nothing
}

// With makes a new tree without the names in remove and with the entries in set,
// which replace those of the same names. A name to remove that does not exist is
// ignored. It fails where an entry does not validate or a name
// is given twice. Cost: one copy of the tree, and a search for each name.
func (t *TreeData) With(set []Entry, remove []string) (*TreeData, error) {
	edits, err := t.edits(set, remove)
	if err != nil {
		return nil, err
	}
	if len(edits) == 0 {
		return t, nil
	}
	if n, ok := t.inPlace(edits); ok {
		return n, nil
	}
	bytesMore, entriesMore := 0, 0
	for _, e := range edits {
		if e.drop {
			bytesMore -= int(t.off[e.at+1] - t.off[e.at])
			entriesMore--
		}
		if e.line != nil {
			bytesMore += lineLen(e.line)
			entriesMore++
		}
	}
	if len(t.data)+bytesMore > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d bytes", ErrBadTree, len(t.data)+bytesMore)
	}
	data := make([]byte, 0, len(t.data)+bytesMore)
	off := make([]uint32, 0, len(t.off)+entriesMore)
	next := 0 // first entry not yet copied
	copyTo := func(i int) {
		shift := uint32(len(data)) - t.off[next] // wraps around where the tree shrinks, and back
		for _, o := range t.off[next:i] {
			off = append(off, o+shift)
		}
		data = append(data, t.data[t.off[next]:t.off[i]]...)
		next = i
	}
	for _, e := range edits {
		copyTo(e.at)
		if e.line != nil {
			off = append(off, uint32(len(data)))
			data = appendLine(data, e.line)
		}
		if e.drop {
			next++
		}
	}
	copyTo(t.Len())
	return &TreeData{data: data, off: append(off, uint32(len(data)))}, nil
}

// inPlace does edits that replace lines by others of the same length, as new
// versions of files do: one copy, and the offsets are shared.
func (t *TreeData) inPlace(edits []edit) (*TreeData, bool) {
	for _, e := range edits {
		if !e.drop || e.line == nil || lineLen(e.line) != int(t.off[e.at+1]-t.off[e.at]) {
			return nil, false
		}
	}
	data := append([]byte(nil), t.data...)
	for _, e := range edits {
		appendLine(data[t.off[e.at]:t.off[e.at]], e.line)
	}
	return &TreeData{data: data, off: t.off}, true
}

// Window gives the entries of two trees that may differ: t's [from, to) and
// o's [ofrom, oto). Those before and after are the same in both, bytes and all;
// a name that is in both windows has its two entries there.
func (t *TreeData) Window(o *TreeData) (from, to, ofrom, oto int) {
	head := t.entryAt(commonPrefix(t.data, o.data))
	rest, orest := t.data[t.off[head]:], o.data[o.off[head]:]
	tail := commonSuffix(rest, orest)
	to, oto = t.entryFrom(len(t.data)-tail), o.entryFrom(len(o.data)-tail)
	// The same number of whole entries ends both.
	same := min(t.Len()-to, o.Len()-oto)
	return head, t.Len() - same, head, o.Len() - same
}

// entryAt gives the entry that byte n lies in, Len at the end.
func (t *TreeData) entryAt(n int) int {
	i, ok := slices.BinarySearch(t.off, uint32(n))
	if !ok {
		i--
	}
	return i
}

// entryFrom gives the first entry that begins at byte n or after it.
func (t *TreeData) entryFrom(n int) int {
	i, _ := slices.BinarySearch(t.off, uint32(n))
	return i
}

// edits gives what With has to do, in git's order.
func (t *TreeData) edits(set []Entry, remove []string) ([]edit, error) {
	edits := make([]edit, 0, len(set)+len(remove))
	for i := range set {
		e := &set[i]
		if err := e.Validate(); err != nil {
			return nil, err
		}
		name, dir := bytesOf(e.Name), e.Mode == Dir
		at, found := t.search(name, dir)
		edits = append(edits, edit{name: name, dir: dir, at: at, drop: found, line: e})
		if found {
			continue
		}
		if other, ok := t.search(name, !dir); ok {
			edits = append(edits, edit{name: name, dir: !dir, at: other, drop: true})
		}
	}
	for _, s := range remove {
		name := bytesOf(s)
		if i, ok := t.index(name); ok {
			edits = append(edits, edit{name: name, dir: t.data[t.off[i]] == '4', at: i, drop: true})
		}
	}
	if len(edits) < 2 {
		return edits, nil
	}
	slices.SortFunc(edits, func(a, b edit) int { return compareNames(a.name, a.dir, b.name, b.dir) })
	for i := 1; i < len(edits); i++ {
		a, b := edits[i-1], edits[i]
		if compareNames(a.name, a.dir, b.name, b.dir) == 0 {
			return nil, fmt.Errorf("%w: %q given twice", ErrBadTree, a.name)
		}
	}
	return edits, checkSetNames(set)
}

// checkSetNames finds a name that is given both as a file and as a folder;
// these two are no neighbors in git's order.
func checkSetNames(set []Entry) error {
	if len(set) < 2 {
		return nil
	}
	seen := make(map[string]struct{}, len(set))
	for _, e := range set {
		if _, ok := seen[e.Name]; ok {
			return fmt.Errorf("%w: %q given twice", ErrBadTree, e.Name)
		}
		seen[e.Name] = struct{}{}
	}
	return nil
}

func lineLen(e *Entry) int {
	n := len("100644 ") + len(e.Name) + 1 + 20
	if e.Mode == Dir {
		n--
	}
	return n
}

func appendLine(b []byte, e *Entry) []byte {
	switch e.Mode {
	case Dir:
		b = append(b, "40000 "...)
	case Executable:
		b = append(b, "100755 "...)
	case Symlink:
		b = append(b, "120000 "...)
	case Submodule:
		b = append(b, "160000 "...)
	default:
		b = append(b, "100644 "...)
	}
	b = append(b, e.Name...)
	b = append(b, 0)
	return append(b, e.ID[:]...)
}

// Delta gives a git delta from base to t: see SpliceDelta.
func (t *TreeData) Delta(base *TreeData) []byte { return SpliceDelta(base.data, t.data) }
