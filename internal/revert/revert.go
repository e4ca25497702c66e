package revert

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/audit"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/idem"
	"umbra/internal/witness"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// maxTries bounds how often a plan is made again because of concurrent changes.
const maxTries = 16

// Do carries a revert out, or reports what it would do. A conflict that is not to
// be forced or skipped is errs.Conflict revert_conflict with the result: nothing
// was changed. A plan that no longer fits is errs.Conflict
// plan_stale.
func Do(ctx context.Context, w *workspace.Workspace, cache *history.Cache, req Request) (*Result, error) {
	if res, err := replay(ctx, w, req.By.IdempotencyKey); err != nil || res != nil {
		return res, err
	}
	if req.May != nil {
		if err := req.May(); err != nil {
			return nil, err
		}
	}
	want, apart := "", false
	if req.Plan != "" {
		var err error
		if want, apart, err = req.open(); err != nil {
			return nil, err
		}
	}
	r := &run{w: w, cache: cache, req: &req, load: newLoader(w, cache, &req), apart: apart}
	for try := range maxTries {
		res, err := r.try(ctx, try, want)
		if errs.CodeOf(err) != codeMoved || err == nil {
			if err == nil && !req.DryRun && !res.Commit.IsZero() {
				audit.Allowed(ctx, audit.Revert, w.ID(), slog.String("commit", res.Commit.String()))
			}
			return res, err
		}
		if want != "" {
			return nil, errStale()
		}
	}
	return nil, errs.New(errs.Conflict, "file_changing", "The files keep being changed by another process.")
}

// After so many tries a revert holds the paths of its plan, so that other writers
// wait for it, and after so many the whole workspace.
const (
	freeTries = 2
	heldTries = 5
	// maxHeld bounds the paths of a hold; for more it is the whole workspace.
	maxHeld = 4096
)

// run is one revert over its tries.
type run struct {
	w     *workspace.Workspace
	cache *history.Cache
	req   *Request
	load  loader
	// apart: a plan that fails twice, though nothing it has read has changed, is
	// made without moving directories as one: what it has not read stays then.
	apart bool
	last  string
	rooms string        // where files wait for their places; the same for all tries
	names []wspath.Path // what a hold locks
}

// try makes a plan and carries it out; the code is codeMoved if the workspace
// changed in between.
func (r *run) try(ctx context.Context, n int, want string) (*Result, error) {
	if n >= freeTries && !r.req.DryRun {
		names := r.names
		if n >= heldTries || len(names) == 0 || len(names) > maxHeld {
			names = []wspath.Path{wspath.Root}
		}
		held, release, err := r.w.Hold(ctx, names)
		if err != nil {
			return nil, err
		}
		defer release()
		ctx = held
	}
	res, err := r.once(ctx, n >= freeTries && !r.req.DryRun, want)
	if more, ok := errors.AsType[*workspace.NotHeld](err); ok {
		r.names = append(r.names, more.Paths...)
		return nil, errs.New(errs.Conflict, codeMoved, "")
	}
	return res, err
}

func (r *run) once(ctx context.Context, held bool, want string) (*Result, error) {
	p, err := settle(ctx, r.w, r.cache, r.load, r.req, r.apart, held)
	if err != nil {
		return nil, err
	}
	if r.rooms == "" {
		r.rooms = p.snap.Tree().String()[:16]
	}
	p.rooms = r.rooms
	if want != "" && p.fingerprint() != want {
		return nil, errStale()
	}
	res, err := carryOut(ctx, r.w, p, r.req)
	if errs.CodeOf(err) == codeMoved && err != nil {
		r.names = p.names()
		now := p.fingerprint()
		r.apart, r.last = r.apart || now == r.last, now
	}
	return res, err
}

// names gives the paths that a plan reads and changes.
func (p *plan) names() []wspath.Path {
	seen := make(map[string]bool)
	var out []wspath.Path
	add := func(names ...string) {
		for _, name := range names {
			if name = trimSlash(name); name != "" && !seen[name] {
				seen[name] = true
				out = append(out, wspath.Path(name))
			}
		}
	}
	for _, e := range p.sel.entries {
		add(e.Path, e.NewPath)
	}
	for _, t := range p.targets {
		add(t.now.Path, t.want.Path, t.chain.Now)
	}
	for _, f := range p.tracks {
		add(f.first(), f.last)
	}
	add(p.force...)
	add(p.prune...)
	add(p.vacate...)
	for i := range p.targets { // there may be a waiting room for each
		add(string(waitingRoom(p, i)))
	}
	for i := range p.wholes {
		add(string(waitingRoom(p, len(p.targets)+i)))
	}
	return out
}

// replay gives the answer of the revert that was made with this key already,
// nil if there is none. Nothing of it is undone twice.
func replay(ctx context.Context, w *workspace.Workspace, key string) (*Result, error) {
	if key == "" {
		return nil, nil
	}
	rec, ok, err := w.Store().FindKey(ctx, key, idem.Since(time.Now()))
	if err != nil || !ok || rec.Source != message.Revert {
		return nil, err
	}
	c, err := w.Store().ReadCommit(ctx, rec.Commit)
	if err != nil {
		return nil, err
	}
	entries, err := w.EntriesOf(ctx, c)
	if err != nil {
		return nil, err
	}
	witness.Committed(ctx, w.Store(), c.Seq)
	res := &Result{Commit: c.ID, Seq: c.Seq, Replayed: true, Reverted: len(c.Message.RevertsEntries)}
	if len(c.Message.RevertsEntries) == len(entries) {
		res.Reverted = 0 // the entries have it too
	}
	for i := range entries {
		e := &entries[i]
		res.Reverted += len(e.Reverts)
		f := File{Path: e.Path, Action: Restored, Source: string(message.API)}
		switch e.Operation {
		case message.Delete, message.Rmdir:
			f.Action = Deleted
		case message.Rename:
			f.Path, f.Action = e.NewPath, Renamed
		}
		res.Files = append(res.Files, f)
	}
	slices.SortFunc(res.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return res, nil
}

func errStale() error {
	return errs.New(errs.Conflict, "plan_stale", "Something that the plan touches has changed since; ask for a new one.")
}

// settle makes the plan after external changes, where the plan would touch them,
// are in history. They may belong to the task itself, and change the plan.
func settle(ctx context.Context, w *workspace.Workspace, cache *history.Cache, load loader, req *Request, apart, held bool) (*plan, error) {
	// Under a hold the workspace is not scanned: a scan may wait for the hold.
	looked, all := make(map[wspath.Path]bool), held
	for range maxTries {
		t, sel, err := load(ctx)
		if err != nil {
			return nil, err
		}
		var more []wspath.Path
		for _, e := range sel.entries {
			for _, name := range []string{e.Path, e.NewPath} {
				if p := wspath.Path(trimSlash(name)); name != "" && !looked[p] {
					looked[p] = true
					more = append(more, p)
				}
			}
		}
		if len(more) == 0 {
			p, err := makePlan(ctx, w, cache, t, sel, req.OnConflict, apart)
			if err != nil {
				return nil, err
			}
			names := slices.Clone(p.force) // what makes way
			for _, tg := range p.targets { // it may have another name by now
				names = append(names, tg.chain.Now)
			}
			for _, name := range names {
				if at := wspath.Path(name); !looked[at] {
					looked[at] = true
					more = append(more, at)
				}
			}
			if len(more) == 0 && (all || !p.movesFolders()) {
				return p, nil
			}
			if p.movesFolders() && !all { // what is in such a folder may go along
				all = true
				if _, err := w.Reconcile(ctx, workspace.SyncOptions{Attribute: true}, clock.Boot()); err != nil {
					return nil, err
				}
			}
		}
		if err := w.RecordPaths(ctx, more); err != nil {
			return nil, err
		}
	}
	return nil, errs.New(errs.Conflict, "file_changing", "The files keep being changed by another process.")
}

// codeMoved is returned to Do when the state under the plan has changed.
const codeMoved = "plan_moved"

func carryOut(ctx context.Context, w *workspace.Workspace, p *plan, req *Request) (*Result, error) {
	res := &Result{Files: p.files(), Conflicts: p.conflicts(), External: p.sel.external, Shared: p.sel.shared}
	blocked := len(res.Conflicts) > 0 && req.OnConflict == Fail
	by := req.By
	by.Source = message.Revert
	if req.Task != "" {
		by.TaskID = req.Task
	}
	if req.DryRun {
		// Whether directories can go back as one depends on what is in no history:
		// what the revert would meet is tried, so that both have one plan. So is what
		// the policy would refuse.
		if (len(p.wholes) > 0 || w.Judged(by.TaskID)) && !blocked {
			o, err := p.operations(ctx, w.Store())
			if err != nil {
				return nil, err
			}
			_, err = w.Apply(ctx, workspace.Request{By: by, Ops: o.ops, Reverts: commitsOf(p.undone()), RevertsEntries: o.bare, RevertWhat: p.sel.what, AllowRepoShape: true, DryRun: true})
			switch {
			case len(p.wholes) > 0 && hasMoved(err):
				return nil, errs.New(errs.Conflict, codeMoved, "")
			case errs.CodeOf(err) == "policy_refused":
				return nil, err
			}
		}
		res.Reverted = len(p.undone())
		res.Plan = req.seal(p)
		if req.Diff {
			return res, p.show(ctx, w.Store(), res.Files)
		}
		return res, nil
	}
	if blocked {
		return res, errs.New(errs.Conflict, "revert_conflict", "Something else changed the same places since; nothing was changed.")
	}
	o, err := p.operations(ctx, w.Store())
	if err != nil {
		return nil, err
	}
	if len(o.ops) == 0 {
		return res, nil
	}
	undone := p.undone()
	done, err := w.Apply(ctx, workspace.Request{By: by, Ops: o.ops, Reverts: commitsOf(undone), RevertsEntries: o.bare,
		RevertWhat: p.sel.what, AllowRepoShape: true, Check: func() error { return p.holds(w, req) }})
	if hasMoved(err) {
		return nil, errs.New(errs.Conflict, codeMoved, "")
	}
	if err != nil {
		return nil, err
	}
	res.Replayed = done.Replayed
	if res.Commit, res.Seq = done.Commit, done.Seq; !res.Commit.IsZero() {
		res.Reverted = len(undone)
	}
	return res, nil
}

// hasMoved reports whether an error of Apply says that something is not as the
// plan has it.
func hasMoved(err error) bool {
	if err == nil {
		return false
	}
	switch errs.CodeOf(err) {
	case "precondition_failed", "file_not_found", "target_exists", "not_a_directory", "is_a_directory", "directory_not_empty":
		return true
	}
	return false
}

// holds checks, just before the commit, that the files are what the plan took
// them for.
func (p *plan) holds(w *workspace.Workspace, req *Request) error {
	if req.May != nil {
		if err := req.May(); err != nil {
			return err
		}
	}
	if w.Store().Rewrites() != p.history.Rewrites {
		return errs.New(errs.Conflict, codeMoved, "") // bytes that it brings back may be purged
	}
	snap := w.Store().Snapshot()
	for _, t := range p.targets {
		if !t.applies() {
			continue
		}
		for _, path := range []string{t.now.Path, t.want.Path} {
			was, err := at(p.snap, path)
			if err != nil {
				return err
			}
			is, err := at(snap, path)
			if err != nil {
				return err
			}
			// A folder is none: what is in it is checked file by file as the
			// operations go, and some of it may just have been recorded.
			if file(is) != file(was) {
				return errs.New(errs.Conflict, codeMoved, "")
			}
		}
	}
	return nil
}

func file(s history.State) history.State {
	if s.Mode == object.Dir {
		return history.State{Path: s.Path}
	}
	return s
}

// commitsOf gives the commits of entries, each once, newest first.
func commitsOf(entries []*history.Entry) []object.ID {
	var out []object.ID
	seen := make(map[object.ID]bool)
	for i := len(entries) - 1; i >= 0; i-- {
		if id := entries[i].Commit; !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// A plan's token is "<options>.<fingerprint>": what was asked for beyond the
// route, and what would be done.
func (r *Request) seal(p *plan) string {
	opts := "n"
	switch r.OnConflict {
	case Force:
		opts = "f"
	case Skip:
		opts = "s"
	}
	if r.IncludeExternal {
		opts += "e"
	}
	if r.IncludeShared {
		opts += "h"
	}
	if p.apart {
		opts += "a"
	}
	return opts + "." + p.fingerprint()
}

// open takes the options out of the token. errs.Invalid for what is none.
func (r *Request) open() (fingerprint string, apart bool, err error) {
	opts, fp, ok := strings.Cut(r.Plan, ".")
	if !ok || len(fp) != 64 {
		return "", false, errs.New(errs.Invalid, "invalid_plan", "plan must be the token of a dry run of this revert.").With("field", "plan")
	}
	opts, apart = strings.CutSuffix(opts, "a")
	opts, r.IncludeShared = strings.CutSuffix(opts, "h")
	opts, r.IncludeExternal = strings.CutSuffix(opts, "e")
	switch opts {
	case "n":
		r.OnConflict = Fail
	case "f":
		r.OnConflict = Force
	case "s":
		r.OnConflict = Skip
	default:
		return "", false, errs.New(errs.Invalid, "invalid_plan", "plan must be the token of a dry run of this revert.").With("field", "plan")
	}
	return fp, apart, nil
}
