package refs

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// packedRef is one line of packed-refs, with the one of what it peels to.
type packedRef struct {
	name   string
	id     object.ID
	peeled object.ID // zero: not a tag object, or not in the file
}

// packedRefs is the file packed-refs, sorted by name. It is never changed once
// it was read.
type packedRefs struct {
	refs  []packedRef
	fully bool // every ref that can be peeled is
}

// errPacked is in the chain of errors about a packed-refs that does not read.
var errPacked = errors.New("refs: packed-refs is damaged")

// packedCache keeps the file as last read. The file is only ever replaced, so
// its inode, size and times show whether it is still the same, unless it was
// so young when read that a second one after it may have got the same inode
// and the same time: then it is read again (git's racy rule).
type packedCache struct {
	mu    sync.Mutex
	info  vfs.Info
	refs  *packedRefs
	young bool
}

// clockTick is more than the grain of a file system's times.
const clockTick = 50 * time.Millisecond

// packed reads packed-refs, or gives what was read if the file is the same.
func (s *Store) packed() (*packedRefs, error) {
	c := &s.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := s.fs.Lstat(s.path(packedName))
	if notExist(err) {
		return &packedRefs{fully: true}, nil
	}
	if err != nil {
		return nil, err
	}
	if c.refs != nil && !c.young && same(info, c.info) {
		return c.refs, nil
	}
	f, err := s.fs.Open(s.path(packedName))
	if notExist(err) {
		return &packedRefs{fully: true}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if !info.IsRegular() {
		return nil, errPacked
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	p, err := parsePacked(string(data))
	if err != nil {
		return nil, err
	}
	c.info, c.refs, c.young = info, p, s.opt.Now().UnixNano()-info.CtimeNs < int64(clockTick)
	return p, nil
}

func same(a, b vfs.Info) bool {
	return a.Ino == b.Ino && a.Dev == b.Dev && a.Size == b.Size && a.MtimeNs == b.MtimeNs && a.CtimeNs == b.CtimeNs
}

const (
	packedIntro = "# pack-refs with:"
	fullyPeeled = " fully-peeled"
)

func parsePacked(data string) (*packedRefs, error) {
	p := &packedRefs{fully: data == ""}
	if data != "" && !strings.HasSuffix(data, "\n") {
		return nil, fmt.Errorf("%w: it is cut", errPacked)
	}
	p.refs = make([]packedRef, 0, len(data)/80)
	sorted := true
	for line := range strings.Lines(data) {
		line = line[:len(line)-1]
		switch {
		case line == "":
			return nil, fmt.Errorf("%w: an empty line", errPacked)
		case line[0] == '#':
			if traits, ok := strings.CutPrefix(line, packedIntro); ok {
				p.fully = strings.Contains(traits+" ", fullyPeeled+" ")
			}
			continue
		case line[0] == '^':
			id, err := object.ParseID(line[1:])
			if err != nil || len(p.refs) == 0 {
				return nil, fmt.Errorf("%w: %.80q", errPacked, line)
			}
			p.refs[len(p.refs)-1].peeled = id
			continue
		}
		hex, name, ok := strings.Cut(line, " ")
		id, err := object.ParseID(hex)
		if !ok || err != nil || name == "" {
			return nil, fmt.Errorf("%w: %.80q", errPacked, line)
		}
		if n := len(p.refs); n > 0 && p.refs[n-1].name >= name {
			sorted = false
		}
		p.refs = append(p.refs, packedRef{name: name, id: id})
	}
	if !sorted {
		slices.SortStableFunc(p.refs, func(a, b packedRef) int { return strings.Compare(a.name, b.name) })
	}
	return p, nil
}

// encode gives the file's bytes as git writes them.
func (p *packedRefs) encode() []byte {
	out := make([]byte, 0, 64+128*len(p.refs))
	out = append(out, packedIntro+" peeled"...)
	if p.fully {
		out = append(out, fullyPeeled...)
	}
	out = append(out, " sorted \n"...)
	for _, r := range p.refs {
		out = append(out, r.id.String()...)
		out = append(out, ' ')
		out = append(out, r.name...)
		out = append(out, '\n')
		if !r.peeled.IsZero() {
			out = append(out, '^')
			out = append(out, r.peeled.String()...)
			out = append(out, '\n')
		}
	}
	return out
}

func (p *packedRefs) find(name string) (int, bool) {
	return slices.BinarySearchFunc(p.refs, name, func(r packedRef, name string) int { return strings.Compare(r.name, name) })
}

// under gives the refs whose names begin with prefix.
func (p *packedRefs) under(prefix string) []packedRef {
	from, _ := p.find(prefix)
	to := from
	for to < len(p.refs) && strings.HasPrefix(p.refs[to].name, prefix) {
		to++
	}
	return p.refs[from:to]
}
