// Package restore brings files and directories back to the state that they had
// at a commit, by one new change set of the workspace. Other than package revert
// it does not ask who changed what since: what is named comes back as it was.
package restore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/audit"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Request is a restore.
type Request struct {
	By     workspace.By
	Commit *gitstore.Commit // whose state comes back
	Paths  []wspath.Path    // files, or directories with all in them; the root is everything
	DryRun bool             // report, and change nothing
	Plan   string           // a dry run's token: do exactly that, or nothing
	// May, if set, is called before anything is done and just before the commit;
	// its error fails the request. It must not block.
	May func() error
}

// Action is what happens to a file.
type Action string

// The actions.
const (
	Restored Action = "restored"
	Deleted  Action = "deleted"
)

// File is what a restore does to one file.
type File struct {
	Path   string
	Action Action
}

// Result reports what a restore did, or would do. Files that are as they were
// are not listed.
type Result struct {
	Commit object.ID // zero: nothing was changed
	Files  []File
	Plan   string // token of a dry run
	// Others is what was done since to the files, of a dry run: the last change of
	// each, the newest first; More counts those beyond maxOthers.
	Others   []workspace.ChangeEntry
	More     int
	Replayed bool
}

// maxOthers bounds the files whose last change a dry run lists.
const maxOthers = 1000

// others reads the last changes of paths since a commit.
func others(ctx context.Context, w *workspace.Workspace, since uint64, paths map[wspath.Path]bool) (out []workspace.ChangeEntry, more int, err error) {
	var recs []gitstore.Record
	if err := w.Store().Records(ctx, since+1, w.Store().Tip().Seq, func(r gitstore.Record) error {
		if r.Seq > since && r.Entries > 0 {
			recs = append(recs, r)
		}
		return nil
	}); err != nil {
		return nil, 0, err
	}
	seen := make(map[wspath.Path]bool)
	for i := len(recs) - 1; i >= 0 && len(seen) < len(paths); i-- {
		of, err := w.EntriesAt(ctx, recs[i].Commit)
		if err != nil {
			return nil, 0, err
		}
		for j := len(of) - 1; j >= 0; j-- {
			e := of[j]
			listed := false
			for _, name := range []string{e.Path, e.NewPath} {
				if q := wspath.Path(name); paths[q] && !seen[q] {
					seen[q], listed = true, true
				}
			}
			switch {
			case !listed:
			case len(out) < maxOthers:
				out = append(out, e)
			default:
				more++
			}
		}
	}
	return out, more, nil
}

// maxTries bounds how often a plan is made again because another writer was
// faster; from freeTries on the paths are held.
const (
	maxTries  = 6
	freeTries = 2
)

// Do carries a restore out, or reports what it would do. errs.NotFound
// file_not_found if a path exists neither now nor in the commit; errs.Conflict
// plan_stale, file_changing; what workspace.Apply returns.
func Do(ctx context.Context, w *workspace.Workspace, req Request) (*Result, error) {
	if req.May != nil {
		if err := req.May(); err != nil {
			return nil, err
		}
	}
	for try := range maxTries {
		res, err := attempt(ctx, w, &req, try >= freeTries && !req.DryRun)
		switch errs.CodeOf(err) {
		case "precondition_failed", "target_exists", "not_a_directory", "is_a_directory", "directory_not_empty":
			if err != nil && req.Plan == "" {
				continue
			}
			if err != nil {
				return nil, errStale()
			}
		}
		if err == nil && !req.DryRun && !res.Replayed && !res.Commit.IsZero() {
			audit.Allowed(ctx, audit.Restore, w.ID(), slog.String("commit", res.Commit.String()))
		}
		return res, err
	}
	return nil, errs.New(errs.Conflict, "file_changing", "The files keep being changed by another process.")
}

func errStale() error {
	return errs.New(errs.Conflict, "plan_stale", "Something that the plan touches has changed since; ask for a new one.")
}

func attempt(ctx context.Context, w *workspace.Workspace, req *Request, hold bool) (*Result, error) {
	if hold {
		held, release, err := w.Hold(ctx, []wspath.Path{wspath.Root})
		if err != nil {
			return nil, err
		}
		defer release()
		ctx = held
	}
	then, err := w.Store().SnapshotOf(ctx, req.Commit.ID)
	if err != nil {
		return nil, err
	}
	// What is on disk goes into history before it is replaced.
	names := make(map[wspath.Path]bool)
	for _, snap := range []gitstore.Snapshot{then, w.Store().Snapshot()} {
		for _, p := range req.Paths {
			names[p] = true
			if err := snap.Walk(p, func(e gitstore.Entry) error {
				names[e.Path] = true
				return nil
			}); err != nil {
				return nil, err
			}
		}
	}
	if slices.Contains(req.Paths, wspath.Root) {
		clear(names)
		if !hold { // a scan may wait for the hold
			if _, err := w.Reconcile(ctx, workspace.SyncOptions{Attribute: true}, clock.Boot()); err != nil {
				return nil, err
			}
		}
	}
	if err := w.RecordPaths(ctx, slices.Sorted(maps.Keys(names))); err != nil {
		return nil, err
	}
	p := &plan{then: then, now: w.Store().Snapshot()}
	for _, path := range req.Paths {
		if err := p.add(path); err != nil {
			return nil, err
		}
	}
	token := p.token(req.Commit.ID)
	res := &Result{Files: p.files}
	switch {
	case req.DryRun:
		if w.Judged(req.By.TaskID) && len(p.files) > 0 {
			ops, err := p.operations(ctx, w.Store())
			if err != nil {
				return nil, err
			}
			if _, err := w.Apply(ctx, workspace.Request{By: req.By, Ops: ops, AllowRepoShape: true, DryRun: true}); errs.CodeOf(err) == "policy_refused" {
				return nil, err
			}
		}
		res.Plan = token
		res.Others, res.More, err = others(ctx, w, req.Commit.Seq, p.seen)
		return res, err
	case req.Plan != "" && req.Plan != token:
		return nil, errStale()
	case len(p.files) == 0:
		return res, nil
	}
	ops, err := p.operations(ctx, w.Store())
	if err != nil {
		return nil, err
	}
	by := req.By
	if by.Message == "" {
		by.Message = fmt.Sprintf("restore to commit %s", req.Commit.ID.String()[:12])
	}
	done, err := w.Apply(ctx, workspace.Request{By: by, Ops: ops, AllowRepoShape: true, Check: req.May})
	if err != nil {
		return nil, err
	}
	res.Commit, res.Replayed = done.Commit, done.Replayed
	return res, nil
}

// change is one file that is not as it was.
type change struct{ now, then gitstore.Entry } // Mode 0: does not exist

type plan struct {
	then, now gitstore.Snapshot
	changes   []change
	files     []File
	seen      map[wspath.Path]bool
}

// add compares what is at a path, and under it, in both trees.
func (p *plan) add(path wspath.Path) error {
	entries := func(snap gitstore.Snapshot) (map[wspath.Path]gitstore.Entry, error) {
		out := make(map[wspath.Path]gitstore.Entry)
		if e, ok, err := snap.Lookup(path); err != nil || ok && e.Mode != object.Dir {
			e.Path = path
			out[path] = e
			return out, err
		}
		err := snap.Walk(path, func(e gitstore.Entry) error {
			out[e.Path] = e
			return nil
		})
		return out, err
	}
	was, err := entries(p.then)
	if err != nil {
		return err
	}
	is, err := entries(p.now)
	if err != nil {
		return err
	}
	if len(was) == 0 && len(is) == 0 {
		return &errs.Error{Kind: errs.NotFound, Code: "file_not_found", Detail: "The path exists neither now nor in that commit.", Path: string(path)}
	}
	if p.seen == nil {
		p.seen = make(map[wspath.Path]bool)
	}
	var names []wspath.Path
	for q := range was {
		names = append(names, q)
	}
	for q := range is {
		if _, ok := was[q]; !ok {
			names = append(names, q)
		}
	}
	slices.Sort(names)
	for _, q := range names {
		c := change{now: is[q], then: was[q]}
		if p.seen[q] || c.now.Mode == c.then.Mode && c.now.ID == c.then.ID {
			continue
		}
		p.seen[q] = true
		c.now.Path, c.then.Path = q, q
		p.changes = append(p.changes, c)
		action := Restored
		if c.then.Mode == 0 {
			action = Deleted
		}
		p.files = append(p.files, File{Path: string(q), Action: action})
	}
	return nil
}

// token names what a plan would do.
func (p *plan) token(commit object.ID) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", commit)
	for _, c := range p.changes {
		fmt.Fprintf(h, "%q %o %s %o %s\n", c.now.Path, c.now.Mode, c.now.ID, c.then.Mode, c.then.ID)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// operations gives what goes first, then what comes back, then directories that
// did not exist and are empty by then.
func (p *plan) operations(ctx context.Context, st *gitstore.Store) ([]workspace.Op, error) {
	var ops []workspace.Op
	prune := make(map[wspath.Path]bool)
	for _, c := range p.changes {
		if c.then.Mode != 0 {
			continue
		}
		ops = append(ops, workspace.Op{Kind: workspace.OpDelete, Path: c.now.Path, If: workspace.Condition{Match: []string{c.now.ID.String()}}})
		for dir := range c.now.Path.Ancestors() {
			if e, ok, err := p.then.Lookup(dir); err != nil {
				return nil, err
			} else if !dir.IsRoot() && (!ok || e.Mode != object.Dir) {
				prune[dir] = true
			}
		}
	}
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(prune))) { // what is inside first
		ops = append(ops, workspace.Op{Kind: workspace.OpPrune, Path: dir})
	}
	for i := range p.changes {
		c := &p.changes[i]
		if c.then.Mode == 0 {
			continue
		}
		cond := workspace.Condition{NoneMatchAny: true}
		if c.now.Mode != 0 {
			cond = workspace.Condition{Match: []string{c.now.ID.String()}}
		}
		if c.then.Mode == object.Symlink {
			to, err := st.ReadBlob(ctx, c.then.ID, wspath.MaxTarget)
			if err != nil {
				return nil, err
			}
			ops = append(ops, workspace.Op{Kind: workspace.OpSymlink, Path: c.then.Path, Target: string(to), Overwrite: true, If: cond})
			continue
		}
		ops = append(ops, workspace.Op{Kind: workspace.OpWrite, Path: c.then.Path, Blob: &c.then.ID, Mode: &c.then.Mode, NoFollow: true, If: cond})
	}
	return ops, nil
}
