package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/workspace"
)

// The entries of a long task are cached next to its workspace's repository, so
// that the next start need not read its commits again: the entries as the
// commits have them, and the numbers of lines that were counted. The cache
// is valid for the commits up to one that it names; later ones are read.
//
// The file: magic; the number where the history begins, how many commits are
// covered, up to which of them lines were counted, and the last one's id; the entries; the undone entries that commits
// name additionally; the counts. Numbers are varints. A text is stored once; later
// its number.
const (
	keptMagic = "UHIS\x04"
	// keptFrom is how many commits must have been read again for them to be
	// kept.
	keptFrom = 256
)

func keptName(task string) string { return "history-" + task }

// Keep brings what is kept of the long tasks of a workspace up to date. Failing
// costs time at the next start, nothing else. Lines are counted only if the
// workspace is quiet.
func (c *Cache) Keep(ctx context.Context, w *workspace.Workspace, quiet bool) {
	for _, t := range w.Store().Tasks() {
		if ctx.Err() != nil {
			return
		}
		k := key{w.ID(), t.ID}
		_, all, err := w.Store().TaskRecordsFrom(ctx, t.ID, 1<<62)
		if err != nil || all < keptFrom {
			continue
		}
		c.mu.Lock()
		s, kept := c.tasks[k], c.kept[k]
		c.mu.Unlock()
		if kept.recs == 0 {
			kept = keptUpTo(w, t.ID)
		}
		if s != nil {
			s.mu.Lock()
			s.keepEncoded(w, t.ID)
			s.mu.Unlock()
		}
		if all >= kept.recs && all < kept.recs+keptFrom && (!quiet || all < kept.counted+keptFrom) {
			continue
		}
		if s == nil {
			s = &cached{} // not requested: it need not stay
		}
		s.mu.Lock()
		if _, err := s.read(ctx, w, t.ID); err == nil && quiet {
			_, _ = s.summary(ctx, w, t.ID)
		}
		s.keep(w, t.ID, keptFrom) // also what was read before the time was up
		kept = s.kept
		s.mu.Unlock()
		c.mu.Lock()
		c.kept[k] = kept
		c.mu.Unlock()
	}
}

// covered reports how many of a task's commits were read, and up to which of them
// lines were counted.
type covered struct{ recs, counted int }

// keptUpTo reports what is kept of a task.
func keptUpTo(w *workspace.Workspace, task string) covered {
	data, err := w.ReadCache(keptName(task))
	if err != nil || !bytes.HasPrefix(data, []byte(keptMagic)) {
		return covered{}
	}
	d := decoder{b: data[len(keptMagic):]}
	d.number()
	return covered{int(d.number()), int(d.number())}
}

// keep writes what was read, if it is so many commits more than what is kept;
// mu is held.
func (s *cached) keep(w *workspace.Workspace, task string, more int) {
	if s.recs < s.kept.recs+more && s.counted < s.kept.counted+more || s.lastID.IsZero() {
		return
	}
	if err := write(w, s.rewrites, keptName(task), s.encode()); err == nil {
		s.kept = covered{s.recs, s.counted}
	}
}

// write keeps what was read as of a count of rewrites. What a purge took out
// meanwhile is not brought back by it.
func write(w *workspace.Workspace, rewrites uint64, name string, data []byte) error {
	if err := w.WriteCache(name, data); err != nil || w.Store().Rewrites() == rewrites {
		return err
	}
	return w.DropCaches()
}

// load takes up what is kept, if it is of this history; mu is held.
func (s *cached) load(ctx context.Context, w *workspace.Workspace, task string) {
	data, err := w.ReadCache(keptName(task))
	if err != nil || len(data) == 0 {
		return
	}
	k := &cached{from: s.from, rewrites: s.rewrites}
	if !k.decode(data, task) || k.from != s.from {
		return
	}
	recs, _, err := w.Store().TaskRecordsFrom(ctx, task, k.recs-1)
	if err != nil || len(recs) == 0 || recs[0].Commit != k.lastID {
		return
	}
	s.raw, s.bare, s.recs, s.lastID, s.counts, s.counted = k.raw, k.bare, k.recs, k.lastID, k.counts, k.counted
	s.kept = covered{k.recs, k.counted}
}

// pair is two versions of a file whose lines were counted.
type pair struct{ old, now object.ID }

type lines struct {
	additions, deletions int
	binary               bool
}

type encoder struct {
	b     []byte
	texts map[string]uint64
}

func (e *encoder) number(n uint64) { e.b = binary.AppendUvarint(e.b, n) }
func (e *encoder) id(id object.ID) { e.b = append(e.b, id[:]...) }

func (e *encoder) text(s string) {
	if no, ok := e.texts[s]; ok {
		e.number(no)
		return
	}
	e.texts[s] = uint64(len(e.texts)) + 1
	e.number(0)
	e.number(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) refs(refs []message.EntryRef) {
	e.number(uint64(len(refs)))
	for _, r := range refs {
		e.text(r.Task)
		e.number(r.ID)
		e.number(uint64(r.N))
	}
}

// hash writes an After-Hash: 32 bytes where it is one.
func (e *encoder) hash(s string) {
	raw, err := hex.DecodeString(strings.TrimPrefix(s, sha256Prefix))
	if err != nil || len(raw) != 32 || !strings.HasPrefix(s, sha256Prefix) || sha256Prefix+hex.EncodeToString(raw) != s {
		e.number(0)
		e.text(s)
		return
	}
	e.number(1)
	e.b = append(e.b, raw...)
}

const sha256Prefix = "sha256:"

func (s *cached) encode() []byte {
	e := encoder{b: make([]byte, 0, 160*len(s.raw)), texts: make(map[string]uint64)}
	e.b = append(e.b, keptMagic...)
	e.number(s.from)
	e.number(uint64(s.recs))
	e.number(uint64(s.counted))
	e.id(s.lastID)
	e.number(uint64(len(s.raw)))
	commit := object.Zero
	for i := range s.raw {
		c := &s.raw[i]
		if c.Commit == commit {
			e.number(0)
		} else {
			e.number(1)
			e.id(c.Commit)
			commit = c.Commit
		}
		e.number(c.ID)
		e.number(c.Seq)
		e.number(uint64(c.When.Unix()))
		e.number(uint64(c.When.Nanosecond()))
		for _, text := range []string{c.SubtaskID, string(c.Operation), c.Path, c.NewPath, c.Permissions, c.Actor, string(c.Source), c.Message} {
			e.text(text)
		}
		flags := uint64(0)
		if c.Folders {
			flags |= 1
		}
		if c.Rejects {
			flags |= 2
		}
		e.number(flags)
		e.number(uint64(c.BeforeMode))
		e.number(uint64(c.Mode))
		e.id(c.Before)
		e.id(c.After)
		e.hash(c.AfterHash)
		e.refs(c.Reverts)
		if c.CallID == "" {
			e.number(0)
			continue
		}
		e.number(1)
		for _, text := range []string{c.CallID, c.Tool, c.Model, c.Prompt, string(c.Certainty)} {
			e.text(text)
		}
		e.id(c.Claims)
		e.number(c.ClaimsSeq)
	}
	e.number(uint64(len(s.bare)))
	for id, refs := range s.bare {
		e.id(id)
		e.refs(refs)
	}
	e.number(uint64(len(s.counts)))
	for p, n := range s.counts {
		e.id(p.old)
		e.id(p.now)
		e.number(uint64(n.additions))
		e.number(uint64(n.deletions))
		if n.binary {
			e.number(1)
		} else {
			e.number(0)
		}
	}
	return e.b
}

// decoder reads what encoder wrote; what cannot be is bad from there on.
type decoder struct {
	b     []byte
	texts []string
	bad   bool
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[size:]
	return n
}

// count is a number of things that take at least so many bytes each.
func (d *decoder) count(least int) int {
	n := d.number()
	if n > uint64(len(d.b)/least) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) bytes(n int) []byte {
	if n > len(d.b) {
		d.bad, d.b = true, nil
		return make([]byte, n)
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) id() object.ID { return object.ID(d.bytes(len(object.Zero))) }

func (d *decoder) text() string {
	no := d.number()
	if no > 0 {
		if no > uint64(len(d.texts)) {
			d.bad = true
			return ""
		}
		return d.texts[no-1]
	}
	s := string(d.bytes(d.count(1)))
	d.texts = append(d.texts, s)
	return s
}

func (d *decoder) refs() []message.EntryRef {
	var out []message.EntryRef
	for range d.count(3) {
		task := d.text()
		out = append(out, message.EntryRef{Task: task, ID: d.number(), N: uint32(d.number())})
	}
	return out
}

func (d *decoder) hash() string {
	if d.number() == 0 {
		return d.text()
	}
	raw := d.bytes(32)
	out := make([]byte, len(sha256Prefix)+64)
	copy(out, sha256Prefix)
	hex.Encode(out[len(sha256Prefix):], raw)
	return string(out)
}

// decode reads what encode wrote; false where it is none.
func (s *cached) decode(data []byte, task string) bool {
	if !bytes.HasPrefix(data, []byte(keptMagic)) {
		return false
	}
	d := decoder{b: data[len(keptMagic):]}
	s.from = d.number()
	s.recs = int(d.number())
	s.counted = int(d.number())
	s.lastID = d.id()
	const leastEntry = 60 // bytes
	s.raw = make([]workspace.ChangeEntry, d.count(leastEntry))
	commit := object.Zero
	for i := range s.raw {
		c := &s.raw[i]
		if d.number() == 1 {
			commit = d.id()
		}
		c.Commit, c.TaskID = commit, task
		c.ID, c.Seq = d.number(), d.number()
		sec := d.number()
		c.When = time.Unix(int64(sec), int64(d.number())).UTC()
		c.SubtaskID = d.text()
		c.Operation = message.Operation(d.text())
		c.Path, c.NewPath, c.Permissions, c.Actor = d.text(), d.text(), d.text(), d.text()
		c.Source = message.Source(d.text())
		c.Message = d.text()
		flags := d.number()
		c.Folders, c.Rejects = flags&1 != 0, flags&2 != 0
		c.BeforeMode, c.Mode = object.Mode(d.number()), object.Mode(d.number())
		c.Before, c.After = d.id(), d.id()
		c.AfterHash = d.hash()
		c.Reverts = d.refs()
		if d.number() == 1 {
			c.CallID, c.Tool, c.Model, c.Prompt = d.text(), d.text(), d.text(), d.text()
			c.Certainty = claims.Certainty(d.text())
			c.Claims, c.ClaimsSeq = d.id(), d.number()
		}
	}
	if n := d.count(21); n > 0 {
		s.bare = make(map[object.ID][]message.EntryRef, n)
		for range n {
			id := d.id()
			s.bare[id] = d.refs()
		}
	}
	n := d.count(43)
	s.counts = make(map[pair]lines, n)
	for range n {
		p := pair{d.id(), d.id()}
		l := lines{additions: int(d.number()), deletions: int(d.number())}
		l.binary = d.number() == 1
		s.counts[p] = l
	}
	return !d.bad && s.recs > 0 && len(d.b) == 0
}

// readCommits gives commits with their entries, in order, read by several at
// once.
func readCommits(ctx context.Context, w *workspace.Workspace, recs []gitstore.Record, fn func(c *gitstore.Commit, of []workspace.ChangeEntry)) error {
	const batch = 512
	type one struct {
		c  *gitstore.Commit
		of []workspace.ChangeEntry
	}
	for len(recs) > 0 {
		n := min(batch, len(recs))
		out := make([]one, n)
		err := spread(ctx, n, func(i int) (err error) {
			if out[i].c, err = w.Store().ReadCommit(ctx, recs[i].Commit); err == nil {
				out[i].of, err = w.EntriesOf(ctx, out[i].c)
			}
			return err
		})
		if err != nil {
			return err
		}
		for i := range out {
			fn(out[i].c, out[i].of)
		}
		recs = recs[n:]
	}
	return nil
}
