package workspace

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/witness"
	"umbra/internal/workspace/content"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/materialize"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/workspace/plan"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// maxRounds bounds how often a request is judged again because a person keeps
// saving the same files. Writes of one file do not come here: they end at the
// first try.
const maxRounds = 12

// Apply does one change set: all or nothing, one commit, durable and on disk
// when it returns. Errors leave no net change. It may be called from any
// goroutine; requests that touch other paths run concurrently.
//
// The error's kinds: errs.NotFound file_not_found; errs.Precondition
// precondition_failed with the field "etag" where a file is there;
// errs.Conflict is_a_directory, not_a_directory, target_exists,
// directory_not_empty, special_file, file_changing, not_recordable (with the
// field "unrecorded", a []Skip), workspace_missing; errs.Invalid is_root,
// same_path, move_into_itself, link_leads_out; errs.BadPath; errs.Forbidden
// workspace_read_only, permission_denied; errs.NoSpace; errs.Unavailable.
func (w *Workspace) Apply(ctx context.Context, req Request) (*Result, error) {
	if err := w.enter(); err != nil {
		return nil, err
	}
	defer w.leave()
	if err := w.disk.Check(); err != nil {
		return nil, err
	}
	if err := w.roomFor(&req); err != nil {
		return nil, err
	}
	c := content.New(w.disk, w.keeper.DropLater)
	defer c.Release()
	if err := c.Prepare(ctx, req.Ops); err != nil {
		return nil, w.explain(err)
	}
	paths := make([]wspath.Path, 0, len(req.Ops))
	for i := range req.Ops {
		paths = append(paths, req.Ops[i].Path)
		if req.Ops[i].To != "" {
			paths = append(paths, req.Ops[i].To)
		}
	}
	for {
		var res *Result
		err := w.locks.With(ctx, paths, func(lock *pathlock.Lock) (err error) {
			defer c.Close()
			res, err = w.applyLocked(ctx, &req, lock, c)
			return err
		})
		if more, ok := errors.AsType[*plan.NeedLocks](err); ok {
			paths = append(paths, more.Paths...)
			continue
		}
		return res, w.explain(err)
	}
}

// explain gives a read-only folder its own code, and hides what lies behind a
// link that leads out.
func (w *Workspace) explain(err error) error {
	if e, ok := errors.AsType[*errs.Error](err); ok && errors.Is(err, vfs.ErrEscapes) {
		return disk.ErrNotFound(wspath.Path(e.Path))
	}
	if e, ok := errors.AsType[*errs.Error](err); ok && (e.Code == "read_only" || e.Code == "permission_denied") && w.disk.ReadOnly() {
		return &errs.Error{Kind: errs.Forbidden, Code: "workspace_read_only", Detail: "The workspace's directory cannot be written.", Path: e.Path, Err: err}
	}
	return err
}

// attempt is one request under its lock.
type attempt struct {
	w   *Workspace
	req *Request
	c   *content.Prepared
	// made are the commits that this request caused. They are settled together
	// when the disk agrees with them.
	made []uint64
}

func (w *Workspace) applyLocked(ctx context.Context, req *Request, lock *pathlock.Lock, c *content.Prepared) (*Result, error) {
	if res, err := w.replay(ctx, req); err != nil || res != nil {
		return res, err
	}
	if err := c.Current(req.Ops); err != nil {
		return nil, err
	}
	a := &attempt{w: w, req: req, c: c}
	returned := false
	defer func() {
		if !returned && len(a.made) > 0 {
			// A panic after the commit: disk and tip may differ, and displaced files
			// may be left.
			w.recon.Suspect()
			w.unsettled.Store(true)
		}
		w.progress.Settle(a.made...)
	}()
	res, err := a.rounds(ctx, lock)
	returned = true
	return res, err
}

// said is what the policy judges of the request's message.
func (a *attempt) said() *message.Message {
	r := a.req
	return &message.Message{Source: r.By.Source, TaskID: r.By.TaskID, Subject: r.Subject(), Author: r.Author, Description: r.Description}
}

func (a *attempt) rounds(ctx context.Context, lock *pathlock.Lock) (*Result, error) {
	for range maxRounds {
		res, again, err := a.round(ctx, lock)
		if err != nil || !again {
			return res, err
		}
	}
	return nil, errs.New(errs.Conflict, "file_changing", "The files keep being changed by another process.")
}

// round plans, commits and materialises once; again says that a person was in
// between, and all has to be judged again.
func (a *attempt) round(ctx context.Context, lock *pathlock.Lock) (res *Result, again bool, err error) {
	w := a.w
	p, err := plan.Make(ctx, w.rec, w.limits, a.req, lock, a.c)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) {
		return nil, true, nil // gone, or a link, between a look and the next
	}
	if err != nil {
		a.recordAnyway(ctx, p, err)
		return nil, false, err
	}
	if !w.disk.Physical() {
		p.ForgetFolders()
	}
	if a.req.DryRun {
		_, err := w.rec.Obeys(ctx, a.said(), p.Entries(), p.External, false)
		res := p.Preview()
		for i := range res.Entries {
			res.Entries[i].When = w.now()
		}
		return res, false, err
	}
	entries := p.Entries()
	// First, since a refused request must not have ignored files recorded.
	if p.Named, err = w.rec.Obeys(ctx, a.said(), entries, p.External, false); err != nil {
		return nil, false, err
	}
	if len(p.External) > 0 {
		seqs, err := w.rec.CommitExternal(ctx, p.External)
		a.made = append(a.made, seqs...)
		if err != nil {
			return nil, false, err
		}
	}
	if len(entries) == 0 && !p.Bare {
		if a.req.Check != nil {
			err = a.req.Check()
		}
		return &Result{Ops: p.Ops}, false, err
	}
	if w.disk.Physical() {
		if err := p.Arrange(); err != nil {
			return nil, false, err
		}
	}
	var c gitstore.Committed
	if len(entries) > 0 {
		began := time.Now()
		c, err = a.commit(ctx, p, entries)
		if err != nil {
			return nil, false, err
		}
		w.meter.step(ctx, "commit", began, c)
	}
	if !w.disk.Physical() {
		for i := range entries {
			if e := entries[i].After; e.Mode != 0 {
				w.disk.Wrote(e, c.When)
			}
		}
		return p.Done(c, entries), false, nil
	}
	// From here on there is no way back but a commit of its own.
	ctx = context.WithoutCancel(ctx)
	m := w.target.Begin(p)
	began := time.Now()
	if err = m.RecordMoves(c.Seq); err == nil {
		err = m.Run(ctx)
	}
	w.meter.Materialise.Since(began)
	w.meter.step(ctx, "materialise", began, c)
	w.progress.Dirty(m.Touched())
	switch {
	case err != nil:
		return nil, false, a.rollback(ctx, m, c, entries, err)
	case len(m.Foreign) > 0:
		return a.meet(ctx, m, c, entries)
	}
	m.Finish()
	w.recon.Cover(entries)
	return p.Done(c, entries), false, nil
}

// recordAnyway keeps what a person changed of tracked files when the request
// that came upon it fails because of that change.
func (a *attempt) recordAnyway(ctx context.Context, p *plan.Plan, err error) {
	if a.req.DryRun || (!errs.Is(err, errs.Precondition) && !errs.Is(err, errs.NotFound)) {
		return
	}
	var tracked []record.External
	for _, x := range p.External {
		if x.Old.Mode != 0 {
			tracked = append(tracked, x)
		}
	}
	if len(tracked) == 0 {
		return
	}
	seqs, rerr := a.w.rec.CommitExternal(ctx, tracked)
	a.made = append(a.made, seqs...)
	if rerr != nil {
		a.w.log.Warn("external change not recorded; the next scan finds it", "error", rerr)
	}
}

// commit makes the request's commit.
func (a *attempt) commit(ctx context.Context, p *plan.Plan, entries []record.Entry) (gitstore.Committed, error) {
	m, err := p.Message(ctx, entries)
	if err != nil {
		return gitstore.Committed{}, err
	}
	d := gitstore.Draft{Edits: p.Edits, Message: m, Authored: a.req.Authored, Entries: len(entries), AllowEmpty: true}
	if check := a.req.Check; check != nil {
		d.Check = func(gitstore.Snapshot) error { return check() }
	}
	c, err := a.w.store.Commit(ctx, d)
	if err == nil {
		a.made = append(a.made, c.Seq)
		witness.Committed(ctx, a.w.store, c.Seq)
	}
	return c, err
}

// rollback answers for a disk that refused: what was done there is undone, and
// the commit taken back by another.
func (a *attempt) rollback(ctx context.Context, m *materialize.Materializer, c gitstore.Committed, entries []record.Entry, cause error) error {
	orphans := a.undo(ctx, m)
	defer a.adopt(ctx, orphans)
	if c.Seq > 0 {
		back, err := a.w.rec.CommitBack(ctx, &a.req.By, c, entries, message.Rollback, nil)
		if err != nil {
			// History says more than the disk holds; a scan makes it true again.
			a.w.log.Error("commit not taken back", "commit", c.Commit.String(), "error", err)
			a.w.recon.Suspect()
		} else {
			a.made = append(a.made, back.Seq)
		}
	}
	return cause
}

// undo takes back on disk what was done there, and returns what adopt has to record once
// history agrees.
func (a *attempt) undo(ctx context.Context, m *materialize.Materializer) []materialize.Orphan {
	orphans, err := m.Undo(ctx)
	if err != nil {
		a.w.log.Error("disk not wholly put back; the next scan records what it is", "error", err)
		a.w.recon.Suspect()
		a.w.unsettled.Store(true)
	}
	return orphans
}

// adopt records what could not be put back.
func (a *attempt) adopt(ctx context.Context, orphans []materialize.Orphan) {
	for _, o := range orphans {
		seqs, err := a.w.keeper.Adopt(ctx, o.Path, o.Out)
		a.made = append(a.made, seqs...)
		if err != nil {
			a.w.log.Error("displaced file not recorded; it is at the next start", "name", o.Out.Temp, "error", err)
			a.w.unsettled.Store(true)
		}
	}
}

// meet answers for a person who was there between the look and the step.
func (a *attempt) meet(ctx context.Context, m *materialize.Materializer, c gitstore.Committed, entries []record.Entry) (*Result, bool, error) {
	if res, done, err := a.overPerson(ctx, m, c, entries); done || err != nil {
		return res, false, err
	}
	// Put everything back as the person has it, take ours back, judge again.
	paths := make([]wspath.Path, len(m.Foreign))
	for i := range m.Foreign {
		paths[i] = m.Foreign[i].Path
	}
	orphans := a.undo(ctx, m)
	defer a.adopt(ctx, orphans)
	if c.Seq > 0 {
		more, err := a.standing(ctx, paths, entries)
		if err == nil {
			var back gitstore.Committed
			if back, err = a.w.rec.CommitBack(ctx, &a.req.By, c, entries, message.External, more); err == nil {
				a.made = append(a.made, back.Seq)
			}
		}
		if err != nil {
			a.w.recon.Suspect()
			return nil, false, err
		}
	}
	return nil, true, nil
}

// standing captures the files that a person put where ours were to go. Only
// what one of the entries covers: the rest is found when it is judged again.
func (a *attempt) standing(ctx context.Context, paths []wspath.Path, entries []record.Entry) ([]record.External, error) {
	before := make(map[wspath.Path]gitstore.Entry)
	for _, e := range entries {
		if strings.HasSuffix(e.Path, "/") {
			continue
		}
		if e.Before.Mode != 0 {
			before[e.Before.Path] = e.Before
		} else if _, ok := before[e.After.Path]; !ok {
			before[e.After.Path] = gitstore.Entry{}
		}
	}
	var out []record.External
	for _, path := range paths {
		old, ok := before[path]
		if !ok {
			continue
		}
		s, err := a.w.disk.Lstat(path)
		if err != nil {
			return nil, err
		}
		x := record.External{Path: path, Old: old}
		switch s.Kind {
		case KindFile, KindSymlink:
			b, err := a.w.disk.Capture(ctx, path, &s)
			if err != nil {
				return nil, err
			}
			a.c.All = append(a.c.All, &content.Content{Blob: b})
			x.Mode, x.Blob, x.HasBlob = s.Mode, b, true
		case KindNone:
			if old.Mode == 0 {
				continue
			}
		default:
			continue
		}
		out = append(out, x)
	}
	return out, nil
}

// overPerson is the common case of meet, one file that is written or deleted:
// the person's bytes are recorded from where they came out, ours are judged on
// them, and if they hold committed once more; they are already.
func (a *attempt) overPerson(ctx context.Context, m *materialize.Materializer, c gitstore.Committed, entries []record.Entry) (*Result, bool, error) {
	w, p := a.w, m.P
	if len(a.req.Ops) != 1 || len(entries) != 1 || len(p.Steps) != 1 || len(m.Foreign) != 1 || m.Foreign[0].Out == nil || c.Seq == 0 {
		return nil, false, nil
	}
	op, f := &a.req.Ops[0], m.Foreign[0]
	kind := disk.KindOf(f.Out.Info.Mode)
	if (op.Kind != OpWrite && op.Kind != OpDelete && op.Kind != OpSymlink) || (kind != KindFile && kind != KindSymlink) || p.Steps[0].Kind == plan.StepChmod {
		return nil, false, nil
	}
	s := disk.Seen{Kind: kind, Info: f.Out.Info, Mode: disk.GitMode(f.Out.Info)}
	b, err := w.keeper.CaptureAside(ctx, f.Out, &s)
	if err != nil {
		return nil, false, nil // put back, it is judged by the long way
	}
	a.c.All = append(a.c.All, &content.Content{Blob: b})
	x := record.External{Path: f.Path, Old: entries[0].Before, Mode: s.Mode, Blob: b, HasBlob: true}
	n := &plan.Node{Kind: kind, Mode: s.Mode, ID: b.ID()}
	if err := p.Judge(ctx, f.Path, n, op.If); err != nil || (op.Kind == OpSymlink && !op.Overwrite) {
		return nil, false, nil // the long way ends in the person's file, and the error
	}
	back, err := w.rec.CommitBack(ctx, &a.req.By, c, entries, message.External, []record.External{x})
	if err != nil {
		a.leave(ctx, m)
		return nil, true, err
	}
	a.made = append(a.made, back.Seq)
	e := entries[0]
	e.Before = gitstore.Entry{Path: f.Path, Mode: s.Mode, ID: b.ID()}
	if op.Kind != OpDelete && e.Before.ID == e.After.ID && e.Before.Mode == e.After.Mode {
		m.Finish() // the person saved what we were to write
		p.Ops[0].Operation = ""
		return &Result{Ops: p.Ops}, true, nil
	}
	if op.Kind != OpDelete {
		e.Operation = message.Modify
		p.Ops[0].Created, p.Ops[0].Operation = false, message.Modify
	}
	again := []record.Entry{e}
	d, err := a.recommit(ctx, p, again)
	if err != nil {
		a.leave(ctx, m)
		return nil, true, err
	}
	m.Finish()
	return p.Done(d, again), true, nil
}

// leave gives the user's file its place again, where history cannot have it from elsewhere:
// a scan records it.
func (a *attempt) leave(ctx context.Context, m *materialize.Materializer) {
	a.adopt(ctx, a.undo(ctx, m))
	a.w.recon.Suspect()
}

// recommit makes the request's commit once more. The request was accepted
// already: Check is not asked again.
func (a *attempt) recommit(ctx context.Context, p *plan.Plan, entries []record.Entry) (gitstore.Committed, error) {
	m, err := p.Message(ctx, entries)
	if err != nil {
		return gitstore.Committed{}, err
	}
	c, err := a.w.store.Commit(ctx, gitstore.Draft{Edits: p.Edits, Message: m, Entries: len(entries), AllowEmpty: true, Must: true})
	if err == nil {
		a.made = append(a.made, c.Seq)
		witness.Committed(ctx, a.w.store, c.Seq)
	}
	return c, err
}
