package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/revert"
	"umbra/internal/workspace"
	"umbra/internal/workspace/reconcile"
	"umbra/internal/wspath"
)

// Decision says which hunks are taken and which are not.
type Decision struct {
	By             workspace.By
	Task           string
	Accept, Reject []string // ids
	AcceptRest     bool     // all that are open and not rejected
	RejectRest     bool     // all that are open and not accepted
	Plan           string   // of a Review: decide on just that, or nothing
	DryRun         bool
	May            func() error // called before anything is done and at the commit

	rest  bool            // the rest was rejected when this was decided; what is left is listed
	loose bool            // leave out what is no longer as it was, and what conflicts
	keep  []string        // parts that are left of rejected hunks
	held  map[string]bool // hunks that the rest does not include
}

// Decided reports what a decision did, or would do.
type Decided struct {
	Commit   object.ID // zero: nothing was to be done, or a dry run
	Accepted []string
	Rejected []string
	Files    []string // that rejected hunks changed
	Replayed bool
}

// maxTries bounds how often a decision is made again because another writer was
// faster. After freeTries the paths that it needs are held, so that other writers wait
// for it, and after heldTries, or for more than maxHeld paths, the whole workspace.
const (
	maxTries  = 16
	freeTries = 2
	heldTries = 5
	maxHeld   = 4096
)

// Decide carries a decision out: one commit, all or nothing.
//
// Conflict "hunk_changed" with "hunks" where one is no longer what it was, or was
// decided otherwise by a plan; Conflict "revert_conflict" for a rejected hunk that
// cannot be separated from others' work; Invalid "invalid_field".
func (r *Reader) Decide(ctx context.Context, w *workspace.Workspace, d Decision) (*Decided, error) {
	if d.AcceptRest && d.RejectRest {
		return nil, errs.New(errs.Invalid, "invalid_field", "Only one of accept_rest and reject_rest can be given.").With("field", "reject_rest")
	}
	for _, id := range d.Accept {
		if slices.Contains(d.Reject, id) {
			return nil, errs.New(errs.Invalid, "invalid_field", "A hunk cannot be accepted and rejected at once.").With("field", "reject")
		}
	}
	if d.May != nil && !d.DryRun {
		if err := d.May(); err != nil {
			return nil, err
		}
	}
	t := &tries{r: r, w: w, d: &d}
	for n := range maxTries {
		if out, err := t.once(ctx, n); err != errAgain {
			return out, err
		}
	}
	return nil, errs.New(errs.Conflict, "file_changing", "The files keep being changed by another process.")
}

// errAgain says that another writer was faster.
var errAgain = errors.New("again")

// tries carries one decision out.
type tries struct {
	r      *Reader
	w      *workspace.Workspace
	d      *Decision
	before object.ID     // the tip of a try that failed though nothing changed meanwhile
	names  []wspath.Path // what a hold locks
}

// once tries; the error is errAgain if another writer was faster.
func (t *tries) once(ctx context.Context, n int) (*Decided, error) {
	held, all := n >= freeTries && !t.d.DryRun, false
	if held {
		names := t.names
		if all = n >= heldTries || len(names) == 0 || len(names) > maxHeld; all {
			names = []wspath.Path{wspath.Root}
		}
		in, release, err := t.w.Hold(ctx, names)
		if err != nil {
			return nil, err
		}
		defer release()
		ctx = in
	}
	tip := t.w.Store().Tip().Commit
	out, err := t.decide(ctx, held)
	if err == nil {
		return out, nil
	}
	if more, ok := errors.AsType[*workspace.NotHeld](err); ok {
		t.names = append(t.names, more.Paths...)
		return nil, errAgain
	}
	switch errs.CodeOf(err) {
	case "precondition_failed", "file_not_found", "target_exists", "not_a_directory", "is_a_directory":
	default:
		return nil, err
	}
	if e, ok := errors.AsType[*errs.Error](err); ok && (tip == t.before || all) && t.w.Store().Tip().Commit == tip {
		// Nothing changed meanwhile: a file that stays has the place.
		return nil, &Conflicts{List: []revert.Conflict{{Path: e.Path, Reason: "occupied"}}}
	}
	t.before = tip
	if t.d.DryRun { // as what is done records what it meets
		if _, err := t.w.Sync(ctx, reconcile.SyncOptions{}); err != nil {
			return nil, err
		}
	}
	return nil, errAgain
}

func (t *tries) decide(ctx context.Context, held bool) (*Decided, error) {
	d := t.d
	v, err := t.r.read(ctx, t.w, d.Task, held)
	if err != nil {
		return nil, err
	}
	if d.Plan != "" && d.Plan != v.Plan {
		return nil, errs.New(errs.Conflict, "hunk_changed", "The task's hunks are not those of the plan; ask again.").With("hunks", []string{})
	}
	byID := make(map[string]*Hunk, len(v.Hunks))
	for i := range v.Hunks {
		h := &v.Hunks[i]
		for j := range h.Parts {
			byID[h.Parts[j].ID] = &h.Parts[j]
		}
		byID[h.ID] = h
	}
	var accept, reject []*Hunk
	var changed []string
	pick := func(ids []string, to *[]*Hunk) {
		for _, id := range ids {
			h := byID[id]
			if h == nil {
				if h, err = v.formerly(id); err != nil {
					return
				}
			}
			if h == nil || d.loose && h.Mixed {
				if !d.loose {
					changed = append(changed, id)
				}
			} else if !slices.Contains(*to, h) {
				*to = append(*to, h)
			}
		}
	}
	pick(d.Accept, &accept)
	pick(d.Reject, &reject)
	if err != nil {
		return nil, err
	}
	if len(changed) > 0 {
		return nil, errs.New(errs.Conflict, "hunk_changed", "Some hunks are no longer what they were; nothing was done.").With("hunks", changed)
	}
	reject = d.without(reject)
	if accept, reject, err = parts(v.Hunks, accept, reject); err != nil {
		return nil, err
	}
	for _, h := range d.open(v.Hunks, slices.Concat(accept, reject)) {
		if d.AcceptRest {
			accept = append(accept, h)
		} else if d.RejectRest {
			reject = append(reject, h)
		}
	}
	accept = slices.DeleteFunc(accept, func(h *Hunk) bool { return h.Status == Accepted })
	return t.carryOut(ctx, accept, reject, v.at)
}

// without puts the other parts in the place of hunks of which some are kept.
func (d *Decision) without(reject []*Hunk) (out []*Hunk) {
	kept := func(p Hunk) bool { return slices.Contains(d.keep, p.ID) }
	for _, h := range reject {
		if !slices.ContainsFunc(h.Parts, kept) {
			out = append(out, h)
			continue
		}
		for j := range h.Parts {
			if p := &h.Parts[j]; !kept(*p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// parts leaves out the parts of hunks that are decided on as a whole.
func parts(hunks []Hunk, accept, reject []*Hunk) (a, r []*Hunk, err error) {
	for i := range hunks {
		h := &hunks[i]
		for j := range h.Parts {
			p := &h.Parts[j]
			if slices.Contains(accept, h) && slices.Contains(reject, p) || slices.Contains(reject, h) && slices.Contains(accept, p) {
				return nil, nil, errs.New(errs.Invalid, "invalid_field", "A hunk cannot be accepted, and a part of it rejected, at once; nor the other way round.").With("field", "reject")
			}
			if slices.Contains(accept, h) || slices.Contains(reject, h) {
				same := func(x *Hunk) bool { return x == p }
				accept, reject = slices.DeleteFunc(accept, same), slices.DeleteFunc(reject, same)
			}
		}
	}
	return accept, reject, nil
}

// open returns what is neither decided, nor named, nor held: hunks, and the parts of
// those of which some are.
func (d *Decision) open(hunks []Hunk, named []*Hunk) (out []*Hunk) {
	is := func(h *Hunk) bool { return h.Status == Open && !d.held[h.ID] && !slices.Contains(named, h) }
	for i := range hunks {
		h := &hunks[i]
		if !is(h) {
			continue
		}
		var parts []*Hunk
		for j := range h.Parts {
			if is(&h.Parts[j]) {
				parts = append(parts, &h.Parts[j])
			}
		}
		if len(parts) == len(h.Parts) {
			parts = []*Hunk{h}
		}
		out = append(out, parts...)
	}
	return out
}

func (t *tries) carryOut(ctx context.Context, accept, reject []*Hunk, at uint64) (*Decided, error) {
	w, d, out := t.w, t.d, &Decided{}
	var conflicts []revert.Conflict
	for _, h := range reject {
		if h.Mixed {
			conflicts = append(conflicts, *h.file.net.Conflict)
		}
	}
	if len(conflicts) > 0 {
		return nil, &Conflicts{List: conflicts}
	}
	ops := operations(reject)
	dirs, err := t.made(ctx, reject)
	if err != nil {
		return nil, err
	}
	ops = append(ops, prunes(dirs)...)
	if len(t.names) == 0 {
		for i := range ops {
			t.names = append(t.names, ops[i].Path)
			if ops[i].To != "" {
				t.names = append(t.names, ops[i].To)
			}
		}
	}
	by := d.By
	by.TaskID, by.Source = d.Task, message.Revert
	var extra []message.Trailer
	for _, h := range reject {
		out.Rejected = append(out.Rejected, h.ID)
		extra = append(extra, message.Trailer{Key: message.KeyRejects, Value: h.ID})
		if !slices.Contains(out.Files, h.Path) {
			out.Files = append(out.Files, h.Path)
		}
	}
	for _, h := range accept {
		out.Accepted = append(out.Accepted, h.ID)
		extra = append(extra, message.Trailer{Key: message.KeyAccepts, Value: h.ID})
		if lines := keptLines(h, at); lines != "" {
			extra = append(extra, message.Trailer{Key: message.KeyKept, Value: lines})
		}
	}
	rest := d.RejectRest || d.rest
	if rest && len(reject) == 0 {
		if rest, err = t.r.coversRest(ctx, w, d.Task); err != nil {
			return nil, err
		}
	}
	if rest {
		extra = append(extra, message.Trailer{Key: message.KeyRest, Value: "all"})
	}
	if len(extra) == 0 || d.DryRun && len(ops) == 0 {
		return out, nil
	}
	if d.DryRun {
		_, err := w.Apply(ctx, workspace.Request{By: by, Ops: ops, RevertWhat: "hunks", AllowRepoShape: true, DryRun: true})
		return out, err
	}
	if len(ops) == 0 {
		m := message.Message{TaskID: by.TaskID, SubtaskID: by.SubtaskID, Actor: by.Actor, Source: message.API, Subject: by.Message,
			RequestID: by.RequestID, IdempotencyKey: by.IdempotencyKey, Summary: fmt.Sprintf("accept %d hunks", len(accept)), Extra: extra}
		if rest {
			m.Source = message.Revert
		}
		if rest && len(accept) == 0 {
			m.Summary = "reject what others deleted"
		}
		out.Commit, err = w.Note(ctx, m, d.May)
		return out, err
	}
	done, err := w.Apply(ctx, workspace.Request{By: by, Ops: ops, RevertWhat: "hunks", Extra: extra, AllowRepoShape: true, Check: d.May})
	if err != nil {
		return nil, err
	}
	out.Commit, out.Replayed = done.Commit, done.Replayed
	return out, nil
}

// Conflicts is the error of a rejected hunk that cannot be separated from others' work:
// errs.Conflict "revert_conflict".
type Conflicts struct{ List []revert.Conflict }

// Error gives the error's text.
func (c *Conflicts) Error() string {
	return "revert_conflict: others changed the same places since"
}

// operations gives what takes rejected hunks back, each where its place is free: what
// goes, then names, by way of another name where the place is another file's or in a
// directory that makes way, then contents, then what comes back.
func operations(reject []*Hunk) []workspace.Op {
	byFile := make(map[*file][]*Hunk)
	var files []*file
	moved := make(map[*file]bool) // back to its name
	leaves := make(map[wspath.Path]bool)
	comes := make(map[wspath.Path]bool)
	for _, h := range reject {
		if byFile[h.file] == nil {
			files = append(files, h.file)
		}
		byFile[h.file] = append(byFile[h.file], h)
		n := &h.file.net
		moved[h.file] = moved[h.file] || h.kind == renamed
		if h.kind == renamed || h.kind == whole && !n.Without.Exists() {
			leaves[wspath.Path(n.Now.Path)] = true
		}
		if h.kind == renamed || h.kind == whole && !n.Now.Exists() {
			comes[wspath.Path(n.Without.Path)] = true
		}
	}
	prune, emptied := emptied(leaves, comes)
	var gone, out, moves, in, ops, back []workspace.Op
	for i, f := range files {
		n := &f.net
		now, was := wspath.Path(n.Now.Path), wspath.Path(n.Without.Path)
		same := workspace.Condition{Match: []string{n.Now.ID.String()}}
		if moved[f] {
			if leaves[was] || emptied[was] || slices.ContainsFunc(prune, func(op workspace.Op) bool { return now.Within(op.Path) }) {
				room := was + wspath.Path(fmt.Sprintf(".umbra-review-%d", i))
				out = append(out, workspace.Op{Kind: workspace.OpRename, Path: now, To: room, If: same})
				in = append(in, workspace.Op{Kind: workspace.OpRename, Path: room, To: was})
			} else {
				moves = append(moves, workspace.Op{Kind: workspace.OpRename, Path: now, To: was, If: same})
			}
			now = was
		}
		var changes []diff.Change
		modeToo := false
		for _, h := range byFile[f] {
			switch h.kind {
			case text:
				changes = append(changes, h.changes...)
			case mode:
				modeToo = true
			case whole:
				switch {
				case !n.Without.Exists():
					gone = append(gone, workspace.Op{Kind: workspace.OpDelete, Path: now, If: same})
				case !n.Now.Exists():
					back = append(back, f.bring(was, workspace.Condition{NoneMatchAny: true})...)
				default:
					ops = append(ops, f.bring(now, same)...)
				}
			}
		}
		if len(changes) > 0 {
			op := workspace.Op{Kind: workspace.OpWrite, Path: now, Data: f.without(changes), Size: -1, If: same, NoFollow: true}
			if modeToo {
				op.Mode = &n.Without.Mode
			}
			ops = append(ops, op)
		} else if modeToo {
			ops = append(ops, workspace.Op{Kind: workspace.OpChmod, Path: now, Mode: &n.Without.Mode, If: same})
		}
	}
	return slices.Concat(gone, out, prune, moves, in, ops, back)
}

// emptied returns the operations that remove the directories, if they are empty, in which
// files were that leave, and where files come back; and which of these places are such.
func emptied(leaves, comes map[wspath.Path]bool) (prune []workspace.Op, places map[wspath.Path]bool) {
	places = make(map[wspath.Path]bool)
	dirs := make(map[wspath.Path]bool)
	for p := range leaves {
		var above []wspath.Path
		for dir := range p.Ancestors() {
			if above = append(above, dir); comes[dir] {
				places[dir] = true
				for _, d := range above {
					dirs[d] = true
				}
			}
		}
	}
	return prunes(dirs), places
}

// prunes returns the operations that remove directories if they are empty, the inner ones
// first.
func prunes(dirs map[wspath.Path]bool) (out []workspace.Op) {
	for _, dir := range slices.SortedFunc(maps.Keys(dirs), func(x, y wspath.Path) int { return cmp.Compare(y, x) }) {
		out = append(out, workspace.Op{Kind: workspace.OpPrune, Path: dir})
	}
	return out
}

// made returns the directories that rejected hunks take a file out of and that did not
// exist before the task's work on the file.
func (t *tries) made(ctx context.Context, reject []*Hunk) (map[wspath.Path]bool, error) {
	out := make(map[wspath.Path]bool)
	st := t.w.Store()
	for _, h := range reject {
		n := &h.file.net
		path := wspath.Path(n.Now.Path)
		if h.kind != renamed && (h.kind != whole || n.Without.Exists()) || path.Dir().IsRoot() || len(n.Entries) == 0 {
			continue
		}
		var before gitstore.Snapshot
		filled := make(map[wspath.Path]bool)
		for i, e := range n.Entries {
			c, err := st.ReadCommit(ctx, e.Commit)
			if err != nil {
				return nil, err
			}
			if i == 0 {
				if before, err = st.SnapshotOf(ctx, c.Parent); err != nil {
					return nil, err
				}
			}
			for _, dir := range workspace.Filled(c.Message) {
				filled[dir] = true
			}
		}
		for dir := range path.Ancestors() {
			if e, ok, err := before.Lookup(dir); err != nil {
				return nil, err
			} else if !filled[dir] && (!ok || e.Mode != object.Dir) {
				out[dir] = true
			}
		}
	}
	return out, nil
}

// bring writes the version without the task to a path.
func (f *file) bring(at wspath.Path, cond workspace.Condition) []workspace.Op {
	n := &f.net
	if n.Without.Mode == object.Symlink {
		return []workspace.Op{{Kind: workspace.OpSymlink, Path: at, Target: string(f.old), Overwrite: n.Now.Exists(), If: cond}}
	}
	op := workspace.Op{Kind: workspace.OpWrite, Path: at, Blob: &n.Without.ID, Mode: &n.Without.Mode, If: cond, NoFollow: true}
	if n.Data != nil {
		op.Blob, op.Data = nil, n.Data
	}
	return []workspace.Op{op}
}

// without gives the file as it is now, with the lines put back that some changes
// replaced.
func (f *file) without(changes []diff.Change) []byte {
	slices.SortFunc(changes, func(x, y diff.Change) int {
		return cmp.Or(cmp.Compare(x.New.Start, y.New.Start), cmp.Compare(x.New.End, y.New.End), cmp.Compare(x.Old.Start, y.Old.Start))
	})
	out := make([]byte, 0, len(f.now))
	at := 0
	put := func(b []byte) {
		// A last line without a line feed may have come to be elsewhere.
		if len(out) > 0 && len(b) > 0 && out[len(out)-1] != '\n' {
			out = append(out, '\n')
		}
		out = append(out, b...)
	}
	for _, c := range changes {
		put(f.b.Bytes(at, c.New.Start))
		put(f.a.Bytes(c.Old.Start, c.Old.End))
		at = c.New.End
	}
	put(f.b.Bytes(at, f.b.Len()))
	return out
}

// Rejection is what a reviewer took back of one file.
type Rejection struct {
	Path    string
	Message string
	Actor   string
	Commit  *gitstore.Commit
}

// Rejections gives what was rejected of a task after a commit's number, the newest
// first.
func Rejections(ctx context.Context, w *workspace.Workspace, task string, after uint64) (out []Rejection, err error) {
	err = eachReview(ctx, w, task, after, func(c *gitstore.Commit) error {
		if c.Message.Trailer(message.KeyRejects) == "" {
			return nil
		}
		of, err := w.EntriesAt(ctx, c.ID)
		for i := range of {
			out = append(out, Rejection{Path: of[i].Path, Message: c.Message.Subject, Actor: c.Message.Actor, Commit: c})
		}
		return err
	})
	slices.Reverse(out)
	return out, err
}

// broughtBack returns the commits that a later one has reverted which is not reverted itself.
func broughtBack(ctx context.Context, w *workspace.Workspace) (map[object.ID]bool, error) {
	recs, _, err := w.Store().Undoes(ctx, 0)
	if err != nil {
		return nil, err
	}
	out := make(map[object.ID]bool)
	for _, rec := range slices.Backward(recs) {
		if out[rec.Commit] {
			continue
		}
		c, err := w.Store().ReadCommit(ctx, rec.Commit)
		if err != nil {
			return nil, err
		}
		for _, id := range c.Message.Reverts {
			out[id] = true
		}
	}
	return out, nil
}
