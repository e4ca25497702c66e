// Package review shows the net difference that a task makes now as hunks, and takes
// or leaves each of them (contracts/review.md).
//
// The difference is that between each file as it is and as it would be without the
// task (revert.NetOf), so that others' later lines are in neither. Rejecting a hunk
// puts the lines back that it replaced, by one revert commit; accepting one is
// recorded by an empty commit. All other hunks are open.
package review

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/blame"
	"umbra/internal/claims"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/revert"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Status of a hunk.
type Status string

// The statuses.
const (
	Open     Status = "open"
	Accepted Status = "accepted"
	Rejected Status = "rejected"
)

// kind of a hunk.
type kind string

const (
	text    kind = "text"
	whole   kind = "file" // made, deleted, binary, a link, or not separable from others' work
	renamed kind = "rename"
	mode    kind = "mode"
)

// Hunk is one piece of the difference. Lines count from 1; an empty range starts at
// the line before it, as in patches.
type Hunk struct {
	ID        string
	Path      string // of the file now; of a deleted one, before
	OldPath   string // of a rename
	OldStart  int
	OldLines  int
	NewStart  int
	NewLines  int
	Subtasks  []string
	Calls     []string
	Entries   []uint64
	Certainty claims.Certainty // the weakest of its entries; "" without a call
	Mixed     bool             // others changed the same lines since; the whole file is one hunk
	Status    Status
	Text      string
	// Parts are the changes of a hunk that has several: each can be decided on alone.
	// Its id is that of a hunk of this change alone.
	Parts []Hunk

	kind    kind
	file    *file
	changes []diff.Change
	content string // its id, where no other hunk has its lines
}

// file is one file of the difference.
type file struct {
	net      revert.Net
	old, now []byte
	a, b     diff.Lines
	lines    []blame.Line // of now; read where they are needed
	// home is in the ids of hunks: the path at which the task met the file, so that they
	// stay when the file is renamed.
	home string
}

// Review is a task's hunks as of a moment.
type Review struct {
	Hunks []Hunk
	Plan  string // changes when a hunk does

	at  uint64 // the number of the commit that the files are of
	cut *cutter
}

// Reader reads reviews. It is safe for concurrent use.
type Reader struct {
	History *history.Cache
	Blame   *blame.Cache
}

// maxText bounds a file that is cut into hunks, in bytes.
const maxText = 16 << 20

// Read cuts the difference that a task makes now.
func (r *Reader) Read(ctx context.Context, w *workspace.Workspace, task string) (*Review, error) {
	return r.read(ctx, w, task, false)
}

// read is Read, also under a hold.
func (r *Reader) read(ctx context.Context, w *workspace.Workspace, task string, held bool) (*Review, error) {
	nets, err := revert.NetOf(ctx, w, r.History, task, "", held)
	if err != nil {
		return nil, err
	}
	accepted, err := marked(ctx, w, task, message.KeyAccepts)
	if err != nil {
		return nil, err
	}
	c := &cutter{r: r, ctx: ctx, w: w, seen: make(map[string]int), homes: make(map[string]int)}
	if c.tip, err = w.Store().ReadCommit(ctx, w.Store().Tip().Commit); err != nil {
		return nil, err
	}
	if nets, err = c.withoutRests(task, nets); err != nil {
		return nil, err
	}
	slices.SortFunc(nets, func(x, y revert.Net) int {
		return cmp.Or(cmp.Compare(pathOf(&x), pathOf(&y)), cmp.Compare(x.Without.Path, y.Without.Path))
	})
	back := broughtBackAlike(nets)
	for i := range nets {
		c.homes[home(&nets[i])]++
	}
	for i := range nets {
		if back[i] {
			continue
		}
		if err := c.file(&nets[i]); err != nil {
			return nil, err
		}
	}
	out := &Review{Hunks: c.hunks, at: c.tip.Seq, cut: c}
	h := sha256.New()
	for i := range out.Hunks {
		x := &out.Hunks[i]
		if err := c.mark(x, accepted); err != nil {
			return nil, err
		}
		fmt.Fprintln(h, x.ID, x.Status)
	}
	out.Plan = hex.EncodeToString(h.Sum(nil))
	return out, nil
}

// broughtBackAlike returns which files cancel each other: one that the task deleted and
// one that is the same at its path now. Rejecting the deletion of a file whose path
// another one had makes such a pair.
func broughtBackAlike(nets []revert.Net) map[int]bool {
	out := make(map[int]bool)
	gone := make(map[history.State]int)
	for i := range nets {
		if n := &nets[i]; !n.Now.Exists() && n.Conflict == nil && n.Data == nil {
			gone[history.State{Path: n.Without.Path, Mode: n.Without.Mode, ID: n.Without.ID}] = i
		}
	}
	for i := range nets {
		n := &nets[i]
		if n.Without.Exists() || n.Conflict != nil {
			continue
		}
		if k, ok := gone[history.State{Path: n.Now.Path, Mode: n.Now.Mode, ID: n.Now.ID}]; ok && !out[k] {
			out[k], out[i] = true, true
		}
	}
	return out
}

// mark sets the statuses of a hunk and its parts: it is accepted if all parts are.
func (c *cutter) mark(h *Hunk, accepted map[string]uint64) error {
	h.Status = Open
	if ok, err := c.accepted(h, accepted); err != nil {
		return err
	} else if ok {
		h.Status = Accepted
	}
	all := len(h.Parts) > 0
	for i := range h.Parts {
		p := &h.Parts[i]
		p.Status = h.Status
		if ok, err := c.accepted(p, accepted); err != nil {
			return err
		} else if ok {
			p.Status = Accepted
		}
		all = all && p.Status == Accepted
	}
	if all {
		h.Status = Accepted
	}
	return nil
}

func pathOf(n *revert.Net) string {
	if n.Now.Exists() {
		return n.Now.Path
	}
	return n.Without.Path
}

// home returns the path at which a task met a file.
func home(n *revert.Net) string {
	if len(n.Entries) == 0 {
		return pathOf(n)
	}
	return n.Entries[0].Path
}

// marked gives the ids that a task's commits name in a trailer, with the number of the
// newest commit that does.
func marked(ctx context.Context, w *workspace.Workspace, task, key string) (map[string]uint64, error) {
	out := make(map[string]uint64)
	err := eachReview(ctx, w, task, 0, func(c *gitstore.Commit) error {
		for _, id := range c.Message.Trailers(key) {
			out[id] = c.Seq
		}
		// What was rejected since is no longer accepted, and the other way round.
		for _, other := range []string{message.KeyAccepts, message.KeyRejects} {
			if other != key {
				for _, id := range c.Message.Trailers(other) {
					delete(out, id)
				}
			}
		}
		return nil
	})
	return out, err
}

// eachReview calls fn with the commits of a task that accept or reject hunks, the
// oldest first, after a number.
func eachReview(ctx context.Context, w *workspace.Workspace, task string, after uint64, fn func(*gitstore.Commit) error) error {
	recs, err := w.Store().TaskRecordsAfter(ctx, task, after)
	if err != nil {
		return err
	}
	for _, rec := range recs {
		if rec.Source != message.Revert && rec.Entries > 0 {
			continue
		}
		c, err := w.Store().ReadCommit(ctx, rec.Commit)
		if errs.Is(err, errs.Gone) {
			continue
		}
		if err != nil {
			return err
		}
		if c.Message.Trailer(message.KeyAccepts) == "" && c.Message.Trailer(message.KeyRejects) == "" {
			continue
		}
		if err := fn(c); err != nil {
			return err
		}
	}
	return nil
}

// cutter cuts files into hunks.
type cutter struct {
	r     *Reader
	ctx   context.Context
	w     *workspace.Workspace
	tip   *gitstore.Commit
	hunks []Hunk
	seen  map[string]int // how many hunks have the same content
	homes map[string]int // how many files have the same home
	kept  map[string]*kept
}

func (c *cutter) file(n *revert.Net) error {
	f := &file{net: *n, home: home(n)}
	if c.homes[f.home] > 1 {
		f.home = pathOf(n)
	}
	both := n.Now.Exists() && n.Without.Exists()
	if both && n.Now.Path != n.Without.Path && n.Conflict == nil {
		c.whole(f, renamed)
	}
	switch {
	case !both, n.Conflict != nil, n.Now.Mode == object.Symlink || n.Without.Mode == object.Symlink:
		if n.Without.Mode == object.Symlink {
			var err error
			if f.old, err = c.w.Store().ReadBlob(c.ctx, n.Without.ID, wspath.MaxTarget); err != nil {
				return err
			}
		}
		c.whole(f, whole)
		return nil
	case n.Now.Mode != n.Without.Mode:
		c.whole(f, mode)
	}
	if n.Now.ID == n.Without.ID {
		return nil
	}
	st := c.w.Store()
	var err error
	if f.now, err = st.ReadBlob(c.ctx, n.Now.ID, maxText); err == nil {
		if f.old = n.Data; f.old == nil {
			f.old, err = st.ReadBlob(c.ctx, n.Without.ID, maxText)
		}
	}
	if err != nil && !errs.Is(err, errs.TooLarge) {
		return err
	}
	if err != nil || diff.Binary(f.old) || diff.Binary(f.now) {
		c.whole(f, whole)
		return nil
	}
	return c.text(f)
}

// whole adds a hunk that is not of lines.
func (c *cutter) whole(f *file, k kind) {
	n := &f.net
	h := Hunk{Path: pathOf(n), kind: k, file: f, Mixed: n.Conflict != nil}
	side := func(s history.State) string { return fmt.Sprintf("%o %s", s.Mode, s.ID) }
	what, at := "", f.home
	switch k {
	case renamed:
		h.OldPath = n.Without.Path
		h.Text = "rename " + message.QuotePath(n.Without.Path) + " -> " + message.QuotePath(n.Now.Path) + "\n"
		what, at = n.Without.Path+"\x00"+n.Now.Path, h.Path
	case mode:
		h.Text = fmt.Sprintf("mode %s -> %s\n", n.Without.Mode, n.Now.Mode)
		what = n.Without.Mode.String() + n.Now.Mode.String()
	default:
		h.Text = string(message.Modify) + " " + message.QuotePath(h.Path) + "\n"
		if !n.Without.Exists() {
			h.Text = string(message.Create) + " " + message.QuotePath(h.Path) + "\n"
		} else if !n.Now.Exists() {
			h.Text = string(message.Delete) + " " + message.QuotePath(h.Path) + "\n"
		}
		what = side(n.Without) + "\x00" + side(n.Now)
	}
	h.content = name(at, string(k), what)
	h.ID = c.once(h.content)
	h.own(n.Entries)
	c.hunks = append(c.hunks, h)
}

// own notes whose entries a hunk is of.
func (h *Hunk) own(entries []*history.Entry) {
	for _, e := range entries {
		if e.SubtaskID != "" && !slices.Contains(h.Subtasks, e.SubtaskID) {
			h.Subtasks = append(h.Subtasks, e.SubtaskID)
		}
		if e.CallID != "" && !slices.Contains(h.Calls, e.CallID) {
			h.Calls = append(h.Calls, e.CallID)
		}
		if e.Ref.Task != "" && !slices.Contains(h.Entries, e.Ref.ID) {
			h.Entries = append(h.Entries, e.Ref.ID)
		}
		if e.Certainty != "" {
			h.Certainty = claims.Weaker(h.Certainty, e.Certainty)
		}
	}
	slices.Sort(h.Subtasks)
	slices.Sort(h.Entries)
}

// context is how many lines are around a change, and twice that between two of
// one hunk, as in git diff -U3.
const contextLines = 3

// text cuts a file of lines.
func (c *cutter) text(f *file) error {
	var t diff.Table
	f.a, f.b = t.Cut(f.old), t.Cut(f.now)
	changes := t.Compare(f.a, f.b, &diff.Work{})
	o, err := c.owners(f)
	if err != nil {
		return err
	}
	from := len(c.hunks)
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Old.Start-changes[n-1].Old.End <= 2*contextLines {
			n++
		}
		c.group(f, o, changes[:n])
		changes = changes[n:]
	}
	return c.identify(c.hunks[from:])
}

// piece is some lines of one subtask.
type piece struct {
	diff.Change
	by []*history.Entry
}

// group makes one hunk of changes that are close together, or several where they
// are of different subtasks.
func (c *cutter) group(f *file, o *owners, changes []diff.Change) {
	var pieces []piece
	for _, ch := range changes {
		pieces = append(pieces, o.pieces(f, ch)...)
	}
	one := !slices.ContainsFunc(pieces, func(p piece) bool { return subtaskOf(p.by) != subtaskOf(pieces[0].by) })
	if one {
		h := Hunk{Path: f.net.Now.Path, kind: text, file: f, changes: changes}
		for _, p := range pieces {
			h.own(p.by)
		}
		c.add(f, h)
		return
	}
	for len(pieces) > 0 {
		n := 1
		for n < len(pieces) && subtaskOf(pieces[n].by) == subtaskOf(pieces[0].by) {
			n++
		}
		h := Hunk{Path: f.net.Now.Path, kind: text, file: f}
		for _, p := range pieces[:n] {
			h.own(p.by)
			if k := len(h.changes) - 1; k >= 0 && h.changes[k].Old.End == p.Old.Start && h.changes[k].New.End == p.New.Start {
				h.changes[k].Old.End, h.changes[k].New.End = p.Old.End, p.New.End
			} else {
				h.changes = append(h.changes, p.Change)
			}
		}
		c.add(f, h)
		pieces = pieces[n:]
	}
}

func subtaskOf(by []*history.Entry) string {
	if len(by) == 0 {
		return ""
	}
	return by[0].SubtaskID
}

// place names a hunk of lines and writes its text, with up to three lines around it.
func (c *cutter) place(f *file, h *Hunk) {
	parts := []string{f.home}
	for _, ch := range h.changes {
		parts = append(parts, string(f.a.Bytes(ch.Old.Start, ch.Old.End)), string(f.b.Bytes(ch.New.Start, ch.New.End)))
	}
	h.content = name(parts...)
	first, last := h.changes[0], h.changes[len(h.changes)-1]
	before, after := min(contextLines, first.Old.Start, first.New.Start), min(contextLines, f.a.Len()-last.Old.End, f.b.Len()-last.New.End)
	old := diff.Range{Start: first.Old.Start - before, End: last.Old.End + after}
	now := diff.Range{Start: first.New.Start - before, End: last.New.End + after}
	h.OldStart, h.OldLines = start(old), old.Len()
	h.NewStart, h.NewLines = start(now), now.Len()
	h.Text = f.show(h.changes, old, now)
}

// add adds a hunk of lines, with its parts.
func (c *cutter) add(f *file, h Hunk) {
	c.place(f, &h)
	for i := range h.changes {
		if len(h.changes) < 2 {
			break
		}
		p := Hunk{Path: h.Path, Subtasks: h.Subtasks, Calls: h.Calls, Entries: h.Entries, Certainty: h.Certainty, kind: text, file: f, changes: h.changes[i : i+1]}
		c.place(f, &p)
		h.Parts = append(h.Parts, p)
	}
	c.hunks = append(c.hunks, h)
}

func start(r diff.Range) int {
	if r.Len() == 0 {
		return r.Start
	}
	return r.Start + 1
}

// show writes a hunk as a patch has it.
func (f *file) show(changes []diff.Change, old, now diff.Range) string {
	out := fmt.Appendf(nil, "@@ -%d,%d +%d,%d @@\n", start(old), old.Len(), start(now), now.Len())
	lines := func(mark byte, l diff.Lines, from, to int) {
		for i := from; i < to; i++ {
			line := l.Line(i)
			out = append(append(out, mark), line...)
			if len(line) == 0 || line[len(line)-1] != '\n' {
				out = append(out, "\n\\ No newline at end of file\n"...)
			}
		}
	}
	at := now.Start
	for _, c := range changes {
		lines(' ', f.b, at, c.New.Start)
		lines('-', f.a, c.Old.Start, c.Old.End)
		lines('+', f.b, c.New.Start, c.New.End)
		at = c.New.End
	}
	lines(' ', f.b, at, now.End)
	return string(out)
}

// owners knows which entries the lines of a file are of.
type owners struct {
	added   []*history.Entry          // by line of the file now
	written map[string]*history.Entry // by what the line is, where blame has another's commit
	deleted map[string]*history.Entry // by what the line was
	last    *history.Entry
}

// owners finds out: of lines that are there by blame, of deleted ones by the versions
// that the entries found and left. So of lines, too, that blame says are another's:
// who empties a file and writes it again, as some editors do, has written all of it.
func (c *cutter) owners(f *file) (*owners, error) {
	entries := f.net.Entries
	if len(entries) == 0 { // of a rejection
		entries = []*history.Entry{{}}
	}
	o := &owners{added: make([]*history.Entry, f.b.Len()), written: make(map[string]*history.Entry), deleted: make(map[string]*history.Entry), last: entries[len(entries)-1]}
	for _, e := range slices.Backward(entries) { // what a reviewer took back is of no subtask
		if !e.Rejects {
			o.last = e
			break
		}
	}
	byCommit := make(map[object.ID]*history.Entry)
	several := false
	for _, e := range entries {
		byCommit[e.Commit] = e
		if !e.Claims.IsZero() {
			byCommit[e.Claims] = e
		}
		several = several || e.SubtaskID != entries[0].SubtaskID || e.CallID != entries[0].CallID
	}
	if !several {
		return o, nil
	}
	lines, err := c.blamed(f)
	if err != nil {
		return nil, err
	}
	for i := range min(len(lines), len(o.added)) {
		if e := byCommit[lines[i].Origin.Commit]; e != nil && !e.Rejects {
			o.added[i] = e
		}
	}
	for _, e := range entries {
		if e.Rejects || e.Before == e.After {
			continue
		}
		was, ok, err := c.version(e.BeforeMode, e.Before)
		if err != nil {
			return nil, err
		}
		is, also, err := c.version(e.Mode, e.After)
		if err != nil {
			return nil, err
		}
		if !ok || !also {
			continue
		}
		var t diff.Table
		x, y := t.Cut(was), t.Cut(is)
		for _, ch := range t.Compare(x, y, &diff.Work{}) {
			for i := ch.Old.Start; i < ch.Old.End; i++ {
				o.deleted[string(x.Line(i))] = e
			}
			for i := ch.New.Start; i < ch.New.End; i++ {
				o.written[string(y.Line(i))] = e
			}
		}
	}
	return o, nil
}

// version returns the lines of a file that an entry found or left, none where there was
// no file; ok is false where it has none.
func (c *cutter) version(m object.Mode, id object.ID) (data []byte, ok bool, err error) {
	switch {
	case id.IsZero():
		return nil, true, nil
	case m == object.Symlink:
		return nil, false, nil
	}
	return c.textOf(id, nil)
}

// pieces cuts one change by subtasks: what a subtask deleted goes with what it
// added in its place.
func (o *owners) pieces(f *file, ch diff.Change) []piece {
	old := runs(ch.Old, func(i int) *history.Entry { return cmp.Or(o.deleted[string(f.a.Line(i))], o.last) })
	now := runs(ch.New, func(i int) *history.Entry { return cmp.Or(o.added[i], o.written[string(f.b.Line(i))], o.last) })
	var out []piece
	a, b := ch.Old.Start, ch.New.Start
	add := func(x, y *run) {
		p := piece{Change: diff.Change{Old: diff.Range{Start: a, End: a}, New: diff.Range{Start: b, End: b}}}
		if x != nil {
			p.Old.End, p.by = x.End, append(p.by, x.by...)
		}
		if y != nil {
			p.New.End = y.End
			for _, e := range y.by {
				if !slices.Contains(p.by, e) {
					p.by = append(p.by, e)
				}
			}
		}
		a, b = p.Old.End, p.New.End
		out = append(out, p)
	}
	later := func(list []run, by []*history.Entry) bool {
		return slices.ContainsFunc(list, func(r run) bool { return subtaskOf(r.by) == subtaskOf(by) })
	}
	for len(old)+len(now) > 0 {
		switch {
		case len(now) == 0, len(old) > 0 && subtaskOf(old[0].by) != subtaskOf(now[0].by) && !later(now, old[0].by):
			add(&old[0], nil)
			old = old[1:]
		case len(old) == 0, subtaskOf(old[0].by) != subtaskOf(now[0].by):
			add(nil, &now[0])
			now = now[1:]
		default:
			add(&old[0], &now[0])
			old, now = old[1:], now[1:]
		}
	}
	return out
}

// run is lines in a row of one subtask.
type run struct {
	diff.Range
	by []*history.Entry
}

// runs cuts a range of lines by subtasks.
func runs(r diff.Range, of func(i int) *history.Entry) (out []run) {
	for i := r.Start; i < r.End; i++ {
		e := of(i)
		k := len(out) - 1
		if k < 0 || subtaskOf(out[k].by) != e.SubtaskID {
			out = append(out, run{Range: diff.Range{Start: i}})
			k++
		}
		out[k].End = i + 1
		if !slices.Contains(out[k].by, e) {
			out[k].by = append(out[k].by, e)
		}
	}
	return out
}
