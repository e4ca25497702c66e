package blame

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"unicode"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// MaxSize bounds a file that is blamed, in bytes.
const MaxSize = 64 << 20

// Origin is a commit under a name of the file.
type Origin struct {
	Seq    uint64
	Commit object.ID
	Path   string // the file's, in the commit
}

// Line is whose one line is.
type Line struct {
	Origin *Origin
	No     int     // in the origin's version of the file, from 1
	Via    *Origin // the revert that brought the line back; nil: none did
}

// File is a file with the owners of its lines.
type File struct {
	Path  string
	At    object.ID // the commit
	Blob  object.ID
	Data  []byte
	Lines []Line
}

// Options of Of.
type Options struct {
	// IgnoreWhitespace takes lines for the same that differ in white space alone.
	IgnoreWhitespace bool
}

// Bounds of what is kept in memory.
const (
	maxKeptFiles = 64
	maxKeptLines = 4 << 20 // of all kept files
	maxDepth     = 16      // of reverts of reverts that are followed
)

// Cache keeps what was read. It is safe for concurrent use.
type Cache struct {
	mu     sync.Mutex
	spaces map[string]*space
	clock  uint64
}

// NewCache makes an empty cache.
func NewCache() *Cache { return &Cache{spaces: make(map[string]*space)} }

// maxSpaces bounds the workspaces of which something is kept.
const maxSpaces = 16

// space is one workspace.
type space struct {
	mu             sync.Mutex
	paths          *paths
	rewrites, from uint64
	kept           map[key]*state
	clock, used    uint64
}

type key struct {
	path   string
	ignore bool
}

func (c *Cache) space(id string) *space {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	s := c.spaces[id]
	if s == nil {
		if len(c.spaces) >= maxSpaces {
			oldest := ""
			for o, x := range c.spaces {
				if oldest == "" || x.used < c.spaces[oldest].used {
					oldest = o
				}
			}
			delete(c.spaces, oldest)
		}
		s = &space{kept: make(map[key]*state)}
		c.spaces[id] = s
	}
	s.used = c.clock
	return s
}

// Of tells whose the lines of a file at a commit are.
//
// NotFound "file_not_found"; Unprocessable "not_text" for a directory, binary
// content or more than MaxSize.
func (c *Cache) Of(ctx context.Context, w *workspace.Workspace, at *gitstore.Commit, path wspath.Path, o Options) (*File, error) {
	st := w.Store()
	snap, err := st.SnapshotOf(ctx, at.ID)
	if err != nil {
		return nil, err
	}
	e, ok, err := snap.Lookup(path)
	switch {
	case err != nil:
		return nil, err
	case path.IsRoot(), ok && e.Mode == object.Dir:
		return nil, notText(path, "That is a directory.")
	case !ok:
		return nil, &errs.Error{Kind: errs.NotFound, Code: "file_not_found", Detail: "There is no such file in that state.", Path: string(path)}
	}
	data, err := st.ReadBlob(ctx, e.ID, MaxSize)
	if errs.Is(err, errs.TooLarge) {
		return nil, notText(path, "The file is larger than 64 MiB.")
	}
	if err != nil {
		return nil, err
	}
	if diff.Binary(data) {
		return nil, notText(path, "The file is binary.")
	}
	s := c.space(w.ID())
	s.mu.Lock()
	defer s.mu.Unlock()
	if rewrites, from := st.Rewrites(), st.Boundary().Seq; s.paths == nil || s.rewrites != rewrites || s.from != from {
		s.paths, s.rewrites, s.from = newPaths(), rewrites, from
		clear(s.kept)
	}
	if err := s.paths.read(ctx, st, st.Tip().Seq); err != nil {
		return nil, err
	}
	b := &builder{w: w, st: st, s: s, ignore: o.IgnoreWhitespace}
	x, err := b.file(ctx, string(path), at.Seq, e.ID, 0)
	if err != nil {
		return nil, err
	}
	return &File{Path: string(path), At: at.ID, Blob: e.ID, Data: data, Lines: slices.Clone(x.lines)}, nil
}

func notText(path wspath.Path, why string) error {
	return &errs.Error{Kind: errs.Unprocessable, Code: "not_text", Detail: why, Path: string(path)}
}

// state is a version of a file with the owners of its lines.
type state struct {
	seq   uint64 // number of the commit that made the version
	blob  object.ID
	lines []Line
	text  diff.Lines
	table *diff.Table
	cuts  int // texts that table has cut
	used  uint64
}

// step is one version of a file: what a commit made of it.
type step struct {
	seq    uint64
	commit *gitstore.Commit
	path   string
	blob   object.ID
	made   bool // there was no file before
}

type builder struct {
	w      *workspace.Workspace
	st     *gitstore.Store
	s      *space
	ignore bool
}

// file gives the owners of a file's lines as of a commit's number.
func (b *builder) file(ctx context.Context, path string, at uint64, blob object.ID, depth int) (*state, error) {
	steps, from, err := b.versions(ctx, path, at, blob)
	if err != nil {
		return nil, err
	}
	x := from
	if len(steps) > 0 {
		x = from.clone()
	}
	for i := len(steps) - 1; i >= 0; i-- {
		if x, err = b.play(ctx, x, &steps[i], depth); err != nil {
			return nil, err
		}
	}
	b.s.keep(key{path, b.ignore}, x)
	return x, nil
}

// versions gives the steps that led to a version, the newest first, back to where
// the file was made, or to a version that is kept.
func (b *builder) versions(ctx context.Context, path string, at uint64, blob object.ID) (steps []step, from *state, err error) {
	for again := true; again; {
		again = false
		err := b.s.paths.touched(path, at, func(seq uint64) (bool, error) {
			if k := b.s.kept[key{path, b.ignore}]; k != nil && k.seq == seq && k.blob == blob {
				from = k
				return false, nil
			}
			s, old, before, err := b.step(ctx, path, seq, blob)
			if err != nil || s == nil {
				return err == nil, err
			}
			steps = append(steps, *s)
			if s.made {
				return false, nil
			}
			blob = before
			if old != path {
				path, at, again = old, seq-1, true
				return false, nil
			}
			return true, nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if from == nil && (len(steps) == 0 || !steps[len(steps)-1].made) {
		return nil, nil, errs.New(errs.Internal, "", "no commit made %q", path)
	}
	return steps, from, nil
}

// step tells what one commit did to the file that has a blob at a path after it;
// nil: nothing. old is the file's name before, before what it was.
func (b *builder) step(ctx context.Context, path string, seq uint64, blob object.ID) (s *step, old string, before object.ID, err error) {
	id, err := b.st.CommitAt(ctx, seq)
	if err != nil {
		return nil, "", before, err
	}
	c, err := b.st.ReadCommit(ctx, id)
	if err != nil {
		return nil, "", before, err
	}
	s = &step{seq: seq, commit: c, path: path, blob: blob}
	if c.Parent.IsZero() || seq <= b.st.Boundary().Seq {
		s.made = true
		return s, path, before, nil
	}
	old = path
	for i := range c.Message.Entries {
		if e := &c.Message.Entries[i]; e.Operation == message.Rename && e.Path == path && e.OldPath != "" {
			old = e.OldPath
		}
	}
	parent, err := b.st.SnapshotOf(ctx, c.Parent)
	if err != nil {
		return nil, "", before, err
	}
	e, ok, err := parent.Lookup(wspath.Path(old))
	switch {
	case err != nil:
		return nil, "", before, err
	case !ok || e.Mode == object.Dir:
		s.made = true
		return s, path, before, nil
	case e.ID == blob && old == path:
		return nil, path, e.ID, nil // its mode alone, or a commit that only seemed to touch it
	}
	return s, old, e.ID, nil
}

// clone gives a state that can be played on.
func (x *state) clone() *state {
	if x == nil {
		return nil
	}
	c := *x
	return &c
}

// maxCuts is how many texts one table cuts: it keeps all their lines.
const maxCuts = 256

// play brings a file to its next version; x is nil where it is made.
func (b *builder) play(ctx context.Context, x *state, s *step, depth int) (*state, error) {
	data, err := b.st.ReadBlob(ctx, s.blob, MaxSize)
	if errs.Is(err, errs.TooLarge) {
		data, err = nil, nil // every line of it is new to the next version
	}
	if err != nil {
		return nil, err
	}
	if b.ignore {
		data = withoutSpace(data)
	}
	next := &state{seq: s.seq, blob: s.blob}
	if x == nil || s.made {
		x = &state{}
	}
	if next.table, next.cuts = x.table, x.cuts+1; next.table == nil || next.cuts > maxCuts {
		next.table, next.cuts = &diff.Table{}, 1
		if x.text.Len() > 0 {
			x.text = next.table.Cut(x.text.Bytes(0, x.text.Len()))
		}
	}
	next.text = next.table.Cut(data)
	origin := &Origin{Seq: s.seq, Commit: s.commit.ID, Path: s.path}
	next.lines = make([]Line, 0, next.text.Len())
	var fresh []int // lines that are the commit's own
	at := 0
	for _, c := range next.table.Compare(x.text, next.text, &diff.Work{}) {
		next.lines = append(next.lines, x.lines[at:c.Old.Start]...)
		for n := c.New.Start; n < c.New.End; n++ {
			fresh = append(fresh, len(next.lines))
			next.lines = append(next.lines, Line{Origin: origin, No: n + 1})
		}
		at = c.Old.End
	}
	next.lines = append(next.lines, x.lines[at:]...)
	if len(fresh) > 0 && s.commit.Message.Source == message.Revert && depth < maxDepth {
		if err := b.broughtBack(ctx, next, s, fresh, depth); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// withoutSpace leaves the white space out of each line.
func withoutSpace(data []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r != '\n' && unicode.IsSpace(r) {
			return -1
		}
		return r
	}, data)
}

// broughtBack gives lines that a revert wrote to the commits that wrote them
// first: those of the versions that the undone changes found.
func (b *builder) broughtBack(ctx context.Context, x *state, s *step, fresh []int, depth int) error {
	found, err := b.undone(ctx, s)
	if err != nil {
		return err
	}
	via := &Origin{Seq: s.seq, Commit: s.commit.ID, Path: s.path}
	for _, v := range found {
		if len(fresh) == 0 {
			return nil
		}
		was, err := b.file(ctx, v.path, v.seq, v.blob, depth+1)
		if err != nil {
			return err
		}
		from := was.text
		if was.table != x.table {
			from = x.table.Cut(was.text.Bytes(0, was.text.Len()))
		}
		same := make(map[int]int) // line of x -> line of was
		i, j := 0, 0
		for _, c := range append(x.table.Compare(from, x.text, &diff.Work{}), diff.Change{Old: diff.Range{Start: from.Len()}, New: diff.Range{Start: x.text.Len()}}) {
			for ; i < c.Old.Start && j < c.New.Start; i, j = i+1, j+1 {
				same[j] = i
			}
			i, j = c.Old.End, c.New.End
		}
		rest := fresh[:0:0]
		for _, n := range fresh {
			k, ok := same[n]
			if !ok {
				rest = append(rest, n)
				continue
			}
			x.lines[n] = was.lines[k]
			x.lines[n].Via = via
		}
		fresh = rest
	}
	return nil
}

// version is a version of a file at a commit's number.
type version struct {
	path string
	seq  uint64
	blob object.ID
}

// undone gives what the changes found that a revert undid in one file, the oldest
// first.
func (b *builder) undone(ctx context.Context, s *step) ([]version, error) {
	entries, err := b.w.EntriesAt(ctx, s.commit.ID)
	if err != nil {
		return nil, err
	}
	var refs []message.EntryRef
	for i := range entries {
		if e := &entries[i]; e.Path == s.path || e.NewPath == s.path {
			refs = append(refs, e.Reverts...)
		}
	}
	own := len(refs) // those beside them may be of other files
	refs = append(refs, s.commit.Message.RevertsEntries...)
	var out []version
	seen := make(map[version]bool)
	for n, r := range refs {
		seq, err := b.commitOf(ctx, r)
		if errs.Is(err, errs.Gone) || errs.Is(err, errs.NotFound) || seq <= 1 && err == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		id, err := b.st.CommitAt(ctx, seq)
		if errs.Is(err, errs.Gone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		of, err := b.w.EntriesAt(ctx, id)
		if err != nil {
			return nil, err
		}
		for i := range of {
			e := &of[i]
			if e.Before.IsZero() || r.Task != "" && e.ID != r.ID || r.Task == "" && r.N != 0 && uint32(i)+1 != r.N ||
				n >= own && e.Path != s.path && e.NewPath != s.path {
				continue
			}
			if v := (version{e.Path, e.Seq - 1, e.Before}); !seen[v] {
				seen[v] = true
				out = append(out, v)
			}
		}
	}
	slices.SortStableFunc(out, func(x, y version) int { return int(int64(x.seq) - int64(y.seq)) })
	return out, nil
}

// commitOf gives the number of the commit that an entry is of.
func (b *builder) commitOf(ctx context.Context, r message.EntryRef) (uint64, error) {
	if r.Task == "" {
		return r.ID, nil
	}
	recs, err := b.st.TaskRecords(ctx, r.Task)
	if err != nil {
		return 0, err
	}
	i, ok := slices.BinarySearchFunc(recs, r.ID, func(rec gitstore.Record, id uint64) int {
		switch {
		case rec.Change+uint64(rec.Entries) <= id:
			return -1
		case rec.Change > id:
			return 1
		}
		return 0
	})
	if !ok {
		return 0, errs.New(errs.NotFound, "change_not_found", "There is no such change.")
	}
	return recs[i].Seq, nil
}

// keep keeps a state, and drops the ones that were used least recently.
func (s *space) keep(k key, x *state) {
	s.clock++
	x.used = s.clock
	s.kept[k] = x
	for {
		lines := 0
		var oldest key
		for k, o := range s.kept {
			lines += len(o.lines)
			if s.kept[oldest] == nil || o.used < s.kept[oldest].used {
				oldest = k
			}
		}
		if len(s.kept) <= 1 || len(s.kept) <= maxKeptFiles && lines <= maxKeptLines {
			return
		}
		delete(s.kept, oldest)
	}
}
