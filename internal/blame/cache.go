package blame

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/project"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// maxBytes bounds what a Cache keeps of files, in bytes; what was used least
// recently is evicted.
const maxBytes = 64 << 20

// maxIndexes bounds of how many workspaces an index of commits is kept.
const maxIndexes = 32

// Cache computes blame and keeps what it computed, so that the next answer about
// a file costs what was written since. Safe for concurrent use.
type Cache struct {
	mu      sync.Mutex
	files   map[key]*file
	indexes map[string]*index
	bytes   int64
	clock   uint64
}

// NewCache makes an empty Cache.
func NewCache() *Cache {
	return &Cache{files: make(map[key]*file), indexes: make(map[string]*index)}
}

type key struct {
	workspace, path string
	whitespace      bool
}

// index is what is known of a workspace's commits.
type index struct {
	used uint64

	mu       sync.Mutex // for the following
	rewrites uint64
	claims   map[object.ID][]object.ID // claiming commits, by the shared commit
	claimed  int                       // records read
}

// file is what is kept of one file. The fields below sem belong to its holder.
type file struct {
	used  uint64 // Cache.mu
	bytes int64  // Cache.mu

	sem      chan struct{}
	lineage  past
	through  uint64 // number of the newest commit that was considered; 0: none
	rewrites uint64
	boundary uint64
	metas    map[int32]*meta
	project  *projectLines
}

// meta is what a version's commit says.
type meta struct {
	commit    *gitstore.Commit
	certainty string
}

// Request asks for the lines of a file.
type Request struct {
	Path       wspath.Path
	At         object.ID // a commit of the workspace
	Whitespace bool      // look through changes of white space
	Project    bool      // find baseline lines in the project's own git
	From, To   int       // lines from 1, both included; 0: the first, the last
	Limit      int       // ranges; 0: no limit
}

// Range is a run of lines that one commit wrote.
type Range struct {
	Start, End int // from 1, both included
	Commit     object.ID
	OriginPath string
	OriginLine int // of Start, in that commit
	// Origins are the places of all lines where they do not follow each other in
	// that commit; else nil.
	Origins   []Place
	Task      string
	Subtask   string
	Actor     string
	Agent     string
	Model     string
	Call      string
	Tool      string
	Prompt    string
	Certainty string
	Claimants []string
	Source    string
	Message   string
	At        time.Time
	Change    uint64 // id of the commit's first entry in its task; 0 without a task
	// Via is the revert that brought the lines back; zero: none.
	Via object.ID
	// ClaimedBy is the commit that made a shared commit's entry its task's.
	ClaimedBy object.ID
	// Boundary: the lines are from the commit at which the history begins, after
	// older ones were dropped.
	Boundary bool
	Project  *project.Line

	version int32
}

// Place is a run of lines that follow each other in the commit that wrote them.
type Place struct{ Start, Line, Lines int }

// Answer is the blame of a file.
type Answer struct {
	Path   string
	At     object.ID
	Lines  int
	Ranges []Range
	Next   int // line at which the next page begins; 0: none

	text     []byte
	blob     object.ID
	segments []segment
	versions []version
}

func notText(path wspath.Path, detail string) error {
	return &errs.Error{Kind: errs.Unprocessable, Code: "not_text", Detail: detail, Path: string(path)}
}

// text returns the content at a path of a commit: errs.NotFound "file_not_found",
// errs.Unprocessable "not_text".
func text(ctx context.Context, st *gitstore.Store, at object.ID, path wspath.Path) (data []byte, blob object.ID, err error) {
	snap, err := st.SnapshotOf(ctx, at)
	if err != nil {
		return nil, blob, err
	}
	e, ok, err := snap.Lookup(path)
	switch {
	case err != nil:
		return nil, blob, err
	case !ok:
		return nil, blob, &errs.Error{Kind: errs.NotFound, Code: "file_not_found", Detail: "The file does not exist in this commit.", Path: string(path)}
	case path.IsRoot(), e.Mode == object.Dir:
		return nil, blob, notText(path, "The path is a directory.")
	}
	data, err = st.ReadBlob(ctx, e.ID, maxContent)
	if errs.Is(err, errs.TooLarge) {
		return nil, blob, notText(path, "The file is larger than 64 MiB.")
	}
	if err == nil && diff.Binary(data) {
		return nil, blob, notText(path, "The file is binary.")
	}
	return data, e.ID, err
}

// Lines returns which commits wrote lines of a file.
//
// errs.NotFound "file_not_found"; errs.Unprocessable "not_text"; errs.Invalid
// "invalid_parameter" where From is beyond the last line.
func (s *Cache) Lines(ctx context.Context, w *workspace.Workspace, req Request) (*Answer, error) {
	return s.lines(ctx, w, req, func(f *file, ix *index, a *Answer) error { return f.describe(ctx, w, ix, a, &req) })
}

// lines computes the segments of a file, and calls describe, if it is not nil, as
// long as nothing else uses what is kept of it.
func (s *Cache) lines(ctx context.Context, w *workspace.Workspace, req Request, describe func(*file, *index, *Answer) error) (*Answer, error) {
	st := w.Store()
	data, blob, err := text(ctx, st, req.At, req.Path)
	if err != nil {
		return nil, err
	}
	at, err := st.ReadCommit(ctx, req.At)
	if err != nil {
		return nil, err
	}
	a := &Answer{Path: string(req.Path), At: req.At, Lines: count(data), text: data, blob: blob}
	if req.From > a.Lines && req.From > 1 {
		return nil, errs.New(errs.Invalid, "invalid_parameter", "The file has only %d lines.", a.Lines).With("field", "lines")
	}
	ix := s.index(w.ID())
	k := key{w.ID(), string(req.Path), req.Whitespace}
	f := s.file(k)
	select {
	case f.sem <- struct{}{}:
	case <-ctx.Done():
		return nil, errs.Wrap(ctx.Err(), "")
	}
	use := f
	defer func() {
		for i := range f.lineage.versions {
			f.lineage.versions[i].read = nil
		}
		<-f.sem
		s.settle(k, f)
	}()
	f.lineage.size = len(data)
	segments, err := f.at(ctx, st, k, at.Seq)
	if err == nil && segments == nil { // older than what is kept, and not in it
		use = newFile(req.Whitespace)
		use.lineage.size = len(data)
		segments, err = use.at(ctx, st, k, at.Seq)
	}
	if err != nil {
		return nil, err
	}
	a.segments, a.versions = segments, use.lineage.versions
	if got := total(segments); got != a.Lines {
		return nil, errs.New(errs.Internal, "", "blame of %d lines, of %d", got, a.Lines)
	}
	if describe == nil {
		return a, nil
	}
	return a, describe(use, ix, a)
}

func newFile(whitespace bool) *file {
	return &file{sem: make(chan struct{}, 1), lineage: past{whitespace: whitespace}, metas: make(map[int32]*meta)}
}

func (s *Cache) index(workspace string) *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	ix := s.indexes[workspace]
	if ix == nil {
		if len(s.indexes) >= maxIndexes {
			oldest := ""
			for id, o := range s.indexes {
				if oldest == "" || o.used < s.indexes[oldest].used {
					oldest = id
				}
			}
			delete(s.indexes, oldest)
		}
		ix = &index{}
		s.indexes[workspace] = ix
	}
	ix.used = s.clock
	return ix
}

func (s *Cache) file(k key) *file {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	f := s.files[k]
	if f == nil {
		f = newFile(k.whitespace)
		s.files[k] = f
	}
	f.used = s.clock
	return f
}

// versionSize and metaSize are what a version and a commit's text take, about, in
// bytes.
const (
	versionSize = 300
	metaSize    = 800
)

// settle counts what a file takes and evicts what is too much.
func (s *Cache) settle(k key, f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[k] != f {
		return
	}
	select {
	case f.sem <- struct{}{}:
	default:
		return // its next holder does it
	}
	bytes := f.lineage.bytes + int64(len(f.lineage.versions))*versionSize + int64(len(f.metas))*metaSize + f.project.size()
	<-f.sem
	s.bytes += bytes - f.bytes
	f.bytes = bytes
	if bytes > maxBytes/2 || f.through == 0 {
		s.bytes -= bytes
		delete(s.files, k)
	}
	for s.bytes > maxBytes {
		var oldest key
		var least *file
		for k, o := range s.files {
			if least == nil || o.used < least.used {
				oldest, least = k, o
			}
		}
		if least == nil {
			break
		}
		s.bytes -= least.bytes
		delete(s.files, oldest)
	}
}

// at returns the lines of the file as of a commit; nil without an error where
// the commit is older than what is kept and had another file at the path. The
// caller holds sem.
func (f *file) at(ctx context.Context, st *gitstore.Store, k key, seq uint64) ([]segment, error) {
	rewrites, boundary := st.Rewrites(), st.Boundary().Seq
	if f.rewrites != rewrites || f.boundary != boundary {
		f.reset()
	}
	l := &f.lineage
	if f.through != 0 && seq < f.through {
		for i := len(l.versions) - 1; i >= 0; i-- {
			if v := &l.versions[i]; v.seq <= seq {
				if !v.exists() || v.path != k.path {
					return nil, nil
				}
				return l.at(ctx, st, i)
			}
		}
		return nil, nil
	}
	if f.through != seq {
		var list []version
		done := false
		if f.through > 0 {
			var was string
			var err error
			if list, was, done, err = walk(ctx, st, seq, f.through, k.path); err != nil {
				return nil, err
			}
			if done || was != k.path { // another file has the path now
				f.reset()
			}
		}
		if f.through == 0 && !done {
			var err error
			if list, _, _, err = walk(ctx, st, seq, 0, k.path); err != nil {
				return nil, err
			}
		}
		if len(list) == 0 && f.through == 0 {
			return nil, errs.New(errs.Internal, "", "no commit wrote %q", k.path)
		}
		from := len(l.versions)
		slices.Reverse(list)
		l.versions = append(l.versions, list...)
		if err := l.extend(ctx, st, from); err != nil {
			f.reset() // the lines of some versions are not known
			return nil, err
		}
		f.through, f.rewrites, f.boundary = seq, rewrites, boundary
	}
	return l.at(ctx, st, len(l.versions)-1)
}

func (f *file) reset() {
	f.lineage = past{whitespace: f.lineage.whitespace, size: f.lineage.size}
	f.through, f.metas, f.project = 0, make(map[int32]*meta), nil
}

// meta returns what the commit of a version says.
func (f *file) meta(ctx context.Context, st *gitstore.Store, i int32) (*meta, error) {
	if m := f.metas[i]; m != nil {
		return m, nil
	}
	v := &f.lineage.versions[i]
	c := v.read
	if c == nil {
		var err error
		if c, err = st.ReadCommit(ctx, v.commit); err != nil {
			return nil, err
		}
	}
	m := &meta{commit: c, certainty: certainty(c.Message, v.path)}
	f.metas[i] = m
	return m, nil
}

// describe fills in the ranges of an answer.
func (f *file) describe(ctx context.Context, w *workspace.Workspace, ix *index, a *Answer, req *Request) error {
	st := w.Store()
	from, to := max(req.From, 1), req.To
	if to == 0 || to > a.Lines {
		to = a.Lines
	}
	a.Ranges = []Range{}
	agents := make(map[string]string)
	r := reader{list: a.segments}
	r.skip(from - 1)
	line := from
	segs := r.copy(make([]segment, 0, 16), max(0, to-from+1))
	for len(segs) > 0 {
		n := 1
		lines := int(segs[0].n)
		for n < len(segs) && segs[n].from == segs[0].from && segs[n].via == segs[0].via {
			lines += int(segs[n].n)
			n++
		}
		run := segs[:n]
		segs = segs[n:]
		if req.Limit > 0 && len(a.Ranges) >= req.Limit {
			a.Next = line
			return nil
		}
		one, err := f.rangeOf(ctx, st, ix, run, line, lines, agents)
		if err != nil {
			return err
		}
		line += lines
		if one.Source != string(message.Baseline) || one.Boundary || !req.Project {
			a.Ranges = append(a.Ranges, one)
			continue
		}
		if f.project == nil {
			f.project = findProject(ctx, w, &f.lineage.versions[run[0].from])
		}
		for _, part := range f.project.split(one, run) {
			if req.Limit > 0 && len(a.Ranges) >= req.Limit {
				a.Next = part.Start
				return nil
			}
			a.Ranges = append(a.Ranges, part)
		}
	}
	return nil
}

// rangeOf describes a run of segments of one commit.
func (f *file) rangeOf(ctx context.Context, st *gitstore.Store, ix *index, run []segment, line, lines int, agents map[string]string) (Range, error) {
	v := &f.lineage.versions[run[0].from]
	m, err := f.meta(ctx, st, run[0].from)
	if err != nil {
		return Range{}, err
	}
	out := Range{Start: line, End: line + lines - 1, Commit: v.commit, OriginPath: v.path, OriginLine: int(run[0].line) + 1, At: m.commit.When, version: run[0].from}
	if len(run) > 1 {
		at := line
		for _, s := range run {
			out.Origins = append(out.Origins, Place{Start: at, Line: int(s.line) + 1, Lines: int(s.n)})
			at += int(s.n)
		}
	}
	if via := run[0].via; via >= 0 {
		out.Via = f.lineage.versions[via].commit
	}
	if b := st.Boundary(); !b.Whole() && v.seq <= b.Seq {
		out.Boundary, out.Source = true, string(message.Baseline)
		return out, nil
	}
	msg, sure := m.commit.Message, m.certainty
	out.Source = string(msg.Source)
	out.Claimants = msg.Trailers(message.KeyClaimant)
	if msg.Source == message.Shared {
		claim, err := ix.claim(ctx, st, v.commit, v.path)
		if err != nil {
			return Range{}, err
		}
		if claim != nil {
			msg, sure = claim.Message, certainty(claim.Message, v.path)
			out.Source, out.ClaimedBy, out.Claimants = string(msg.Source), claim.ID, nil
		}
	}
	out.Task, out.Subtask, out.Actor, out.Change, out.Message = msg.TaskID, msg.SubtaskID, msg.Actor, msg.Change, msg.Subject
	out.Call, out.Tool, out.Model, out.Prompt = msg.Trailer(message.KeyCall), msg.Trailer(message.KeyTool), msg.Trailer(message.KeyModel), msg.Trailer(message.KeyPrompt)
	out.Certainty = sure
	if out.Task != "" {
		agent, ok := agents[out.Task]
		if !ok {
			agent = Agent(st, out.Task)
			agents[out.Task] = agent
		}
		out.Agent = agent
	}
	return out, nil
}

// Agent returns the agent of a task, by its metadata; empty if it has none.
func Agent(st *gitstore.Store, task string) string {
	t, ok := st.Task(task)
	if !ok {
		return ""
	}
	var meta struct {
		Agent string `json:"agent"`
	}
	if json.Unmarshal(t.Info.Metadata, &meta) != nil {
		return ""
	}
	return meta.Agent
}

// claim returns the commit that made an entry of a shared commit its task's; nil:
// none did.
func (ix *index) claim(ctx context.Context, st *gitstore.Store, shared object.ID, path string) (*gitstore.Commit, error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if r := st.Rewrites(); ix.claims == nil || ix.rewrites != r {
		ix.claims, ix.rewrites, ix.claimed = make(map[object.ID][]object.ID), r, 0
	}
	recs, all, err := st.Claimed(ctx, ix.claimed)
	if err != nil {
		return nil, err
	}
	for _, r := range recs {
		if !r.Claims {
			continue
		}
		c, err := st.ReadCommit(ctx, r.Commit)
		if err != nil {
			return nil, err
		}
		if id, err := object.ParseID(c.Message.Trailer(message.KeyClaims)); err == nil {
			ix.claims[id] = append(ix.claims[id], r.Commit)
		}
	}
	ix.claimed = all
	for _, id := range slices.Backward(ix.claims[shared]) {
		c, err := st.ReadCommit(ctx, id)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(c.Message.Entries, func(e message.Entry) bool { return e.Path == path }) {
			return c, nil
		}
	}
	return nil, nil
}
