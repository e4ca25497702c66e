package exec

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/calls"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/idem"
	"umbra/internal/ignore"
	"umbra/internal/layer"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// maxRounds bounds how often a layer is judged again because others change the
// same files.
const maxRounds = 8

// Apply says how a layer is applied.
type Apply struct {
	ExitCode *int // of the command
	// DryRun judges the layer and changes nothing; the layer stays.
	DryRun bool
	// Patch has the differences of a dry run returned.
	Patch bool
	// Note, if not nil, is called before a layer becomes decided; its error ends the apply.
	// Result needs what it was called with.
	Note func(Planned) error

	RequestID string
	Sees      task.Sees
}

// Planned is what is known of the outcome of an apply before the layer is decided.
type Planned struct {
	Records   bool // something is recorded, so there will be a commit
	Conflicts []Conflict
	Ref       string // of the conflicts' versions; empty without any
	// Skipped are paths that are not applied, and why.
	Skipped []Skip
	// Moved counts the paths, or whole directories, that were moved over without
	// being recorded.
	Moved int
}

// Applied is what became of a layer.
type Applied struct {
	Layer
	Planned
	Commit  object.ID // zero: nothing was recorded
	Entries []workspace.ChangeEntry
	// Finished reports that an earlier apply had decided the layer, to which alone Planned
	// was known but for what could not be moved over.
	Finished bool
	Patch    []byte
}

// Apply brings a layer onto its workspace as one change set, ends its call, and
// removes it. A layer that a stop left in the middle is finished.
//
// Besides the errors of workspace.Apply: NotFound "layer_not_found"; Conflict
// "layer_in_use", "layer_incomplete", and why the task takes no changes. The layer
// stays then, and nothing is changed.
func (s *Service) Apply(ctx context.Context, id string, a Apply) (*Applied, error) {
	l, release, err := s.take(id, a.Sees)
	if err != nil {
		return nil, err
	}
	defer release()
	w, err := s.o.Workspaces.Get(ctx, l.Workspace)
	if err != nil {
		return nil, err
	}
	defer w.Release()
	if a.ExitCode == nil { // its client was killed, maybe
		if err := layer.EndOrphans(s.path(id, "upper")); err != nil {
			return nil, errs.Wrap(err, "")
		}
	}
	out := &Applied{Layer: *l}
	decided, err := s.decided(ctx, l)
	if err != nil {
		return nil, err
	}
	if !decided && l.Boot != clock.BootID() {
		return nil, errs.New(errs.Conflict, "layer_incomplete", "The system was restarted since the layer was written, so it may be incomplete; it can only be dropped.")
	}
	rec, err := s.o.Calls.Get(id, a.Sees)
	if err != nil {
		return nil, err
	}
	if a.ExitCode != nil && *a.ExitCode != 0 && !a.DryRun {
		if err := writeDurably(s.path(id), exitFile, []byte(strconv.Itoa(*a.ExitCode))); err != nil {
			return nil, errs.Wrap(err, "")
		}
	}
	if !decided {
		undecided := func() error {
			return s.closeAgain(w, id, func() (bool, error) { return s.decided(ctx, l) })
		}
		if err := undecided(); err != nil { // of an apply that was stopped
			return nil, err
		}
		err := s.commit(ctx, w, l, &rec, a, out)
		if failed := undecided(); failed != nil {
			err = errors.Join(err, failed)
		}
		if err != nil || a.DryRun {
			return out, err
		}
	} else if out.Finished = true; a.DryRun {
		return nil, errs.New(errs.Conflict, "layer_decided", "The layer is applied in part; apply it to finish that.")
	}
	ctx = context.WithoutCancel(ctx) // there is no way back
	moved, err := s.finish(ctx, w, l, out)
	if err != nil {
		return nil, err
	}
	if err := s.stepped(); err != nil {
		return nil, err
	}
	end := calls.End{Status: calls.OK, ExitCode: a.ExitCode}
	if end.ExitCode == nil {
		if end.ExitCode, err = s.exitCode(id); err != nil {
			return nil, err
		}
	}
	if end.ExitCode != nil && *end.ExitCode != 0 {
		end.Status = calls.Failed
	}
	if _, err := s.o.Calls.End(ctx, id, end); err != nil {
		return nil, err
	}
	if err := s.stepped(); err != nil {
		return nil, err
	}
	if err := s.o.Calls.Applied(ctx, w, id, out.Commit); err != nil {
		return nil, err
	}
	return out, s.removeApplied(l, moved)
}

// exitCode returns the exit code of a layer's command that an apply was begun with; nil if
// it was 0, or is not known.
func (s *Service) exitCode(id string) (*int, error) {
	raw, err := os.ReadFile(s.path(id, exitFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	n, err := strconv.Atoi(string(raw))
	return &n, err
}

// Result returns what an apply that is complete gave, and whose layer does not exist any
// more. p is what its Note was called with. NotFound "layer_not_found" if the layer was
// dropped.
func (s *Service) Result(ctx context.Context, id string, sees task.Sees, p Planned) (*Applied, error) {
	rec, err := s.o.Calls.Get(id, sees)
	if err != nil {
		return nil, err
	}
	w, err := s.o.Workspaces.Get(ctx, rec.Workspace)
	if err != nil {
		return nil, err
	}
	defer w.Release()
	out := &Applied{Layer: Layer{ID: id, Workspace: rec.Workspace, Root: w.Root(), Task: rec.Task, Begun: rec.Begun}, Planned: p}
	found := false
	if out.Commit, found, err = s.commitOf(ctx, w, &out.Layer); err != nil {
		return nil, err
	}
	if !found && (out.Records || rec.Status == calls.Cancelled) {
		return nil, unknown()
	}
	if found {
		out.Entries, err = w.EntriesAt(ctx, out.Commit)
	}
	return out, err
}

// commit judges a layer and makes its commit; it is decided then.
func (s *Service) commit(ctx context.Context, w *workspace.Workspace, l *Layer, rec *calls.Record, a Apply, out *Applied) error {
	var last error
	for range maxRounds {
		n, err := s.planner(ctx, w, l)
		if err != nil {
			return err
		}
		if err := n.plan(l.From, !a.DryRun); err != nil {
			return err
		}
		out.Conflicts, out.Skipped, out.Moved = n.p.conflicts, n.p.skipped, 0
		for _, m := range n.p.moves {
			if m.Op == opPut {
				out.Moved++
			}
		}
		if a.DryRun && a.Patch {
			if err := n.diffs(n.p.ops); err != nil {
				return err
			}
			if err := out.format(n.p.patches); err != nil {
				return err
			}
		}
		planned := func() error {
			if out.Records = len(n.p.ops) > 0; a.DryRun || a.Note == nil {
				return nil
			}
			return a.Note(out.Planned)
		}
		if len(n.p.ops)+len(n.p.moves)+len(n.p.conflicts) == 0 {
			return planned()
		}
		if err := n.obeys(ctx, w, rec.Task); err != nil {
			return err
		}
		if !a.DryRun {
			if err := s.prepare(w, l, n, out); err != nil {
				return err
			}
		}
		if err := planned(); err != nil {
			return err
		}
		if err := s.stepped(); err != nil {
			return err
		}
		if len(n.p.ops) > 0 {
			req := workspace.Request{By: workspace.By{RequestID: a.RequestID, IdempotencyKey: key(l.ID)}, DryRun: a.DryRun}
			if err := s.record(ctx, w, n, rec, req, out); fasterWriter(err) {
				last = err
				continue
			} else if err != nil {
				return err
			}
		}
		if a.DryRun {
			return nil
		}
		return s.promote(l.ID)
	}
	return last
}

// plan judges the layer against the workspace as it is now. With record, what the
// disk holds otherwise than history is recorded first.
func (n *planner) plan(from uint64, record bool) error {
	commit, err := n.w.Store().CommitAt(n.ctx, from)
	if err != nil {
		return err
	}
	if n.base, err = n.w.Store().SnapshotOf(n.ctx, commit); err != nil {
		return err
	}
	n.tip = n.w.Store().Snapshot()
	if err := n.read(); err != nil {
		return err
	}
	if err := n.openUpper(); err != nil {
		return err
	}
	if record && n.w.Root() != "" {
		if err := n.openRoot(); err != nil {
			return err
		}
	}
	if record && len(n.touched) > 0 {
		if err := n.w.RecordPaths(n.ctx, n.onDisk()); err != nil {
			return err
		}
		n.tip = n.w.Store().Snapshot()
	}
	return n.decide()
}

// onDisk returns the paths of the layer that history has or will have. Where others
// replaced a directory above one by a link or a file, that is returned instead.
func (n *planner) onDisk() (out []wspath.Path) {
	known := map[string]string{".": ""} // by directory: what is in the way, at or above it
	var way func(dir string) string
	way = func(dir string) string {
		at, ok := known[dir]
		if ok {
			return at
		}
		if at = way(path.Dir(dir)); at == "" {
			if info, err := os.Lstat(filepath.Join(n.w.Root(), dir)); err == nil && !info.IsDir() {
				at = dir
			}
		}
		known[dir] = at
		return at
	}
	seen := map[string]bool{}
	for _, p := range sortedKeys(n.touched) {
		if at := way(path.Dir(p)); at != "" {
			p = at
		}
		if !seen[p] {
			seen[p] = true
			out = append(out, wspath.Path(p))
		}
	}
	return out
}

// prepare writes down what is done after the commit, and keeps what conflicts.
func (s *Service) prepare(w *workspace.Workspace, l *Layer, n *planner, out *Applied) error {
	for _, x := range n.p.moves {
		if x.Op == opPut && path.Base(x.Path) == ".git" {
			kept, err := keepGit(w.Root(), n.upper, x.Path, changedAt(s.path(l.ID, metaFile)))
			if err != nil {
				return errs.Wrap(err, "")
			}
			n.p.moves = append(n.p.moves, kept...)
		}
	}
	n.p.moves = append(n.p.moves, n.closing()...)
	if out.Moved > 0 {
		// What is moved over must be whole after a power failure, as the commit is.
		if err := syncFiles(n.upper); err != nil {
			return errs.Wrap(err, "")
		}
	}
	if err := errors.Join(s.anchor(l.ID), s.o.Calls.Durable(l.ID)); err != nil {
		return err
	}
	if err := s.note(l.ID, draftFile, n.p.moves); err != nil {
		return err
	}
	if err := s.stepped(); err != nil {
		return err
	}
	return keep(w, l, n, out)
}

// keep keeps the versions that could not be merged.
func keep(w *workspace.Workspace, l *Layer, n *planner, out *Applied) error {
	out.Ref = ""
	if !slices.ContainsFunc(n.p.conflicts, func(c Conflict) bool { return c.Theirs.Mode != 0 }) {
		return nil
	}
	out.Ref = conflictsPrefix + l.ID
	return keepConflicts(w.GitDir(), out.Ref, l, n.upper, n.p.conflicts)
}

// note writes moves durably.
func (s *Service) note(id, name string, list []move) error {
	if err := s.stepped(); err != nil {
		return err
	}
	raw, err := movesText(list)
	if err != nil {
		return err
	}
	return errs.Wrap(writeDurably(s.path(id), name, raw), "")
}

// anchor makes durable what says that there is a layer. Without it no start would know
// after a power failure that an apply of it had begun. (Begin does not wait for that.)
func (s *Service) anchor(id string) error {
	f, err := os.Open(s.path(id, metaFile))
	if err != nil {
		return errs.Wrap(err, "")
	}
	return errs.Wrap(errors.Join(f.Sync(), f.Close(), syncDir(s.path(id)), syncDir(s.o.Dir)), "")
}

func writeDurably(dir, name string, data []byte) error {
	temp := path.Join(dir, name+".new")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// promote makes the draft of the moves the moves: the layer is decided.
func (s *Service) promote(id string) error {
	if err := s.stepped(); err != nil {
		return err
	}
	if err := os.Rename(s.path(id, draftFile), s.path(id, movesFile)); err != nil {
		return errs.Wrap(err, "")
	}
	return errs.Wrap(syncDir(s.path(id)), "")
}

// finish does what is left of a decided layer. It may be done again at any point.
// It returns a directory of the file system that was changed without being synced;
// empty if none was.
func (s *Service) finish(ctx context.Context, w *workspace.Workspace, l *Layer, out *Applied) (moved string, err error) {
	if _, err := os.Lstat(s.path(l.ID, movesFile)); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(s.path(l.ID, draftFile)); errors.Is(err, fs.ErrNotExist) {
			return "", nil // there is nothing in it
		}
		if err := s.promote(l.ID); err != nil { // the commit was the last thing done
			return "", err
		}
	}
	raw, err := os.ReadFile(s.path(l.ID, movesFile))
	if err != nil {
		return "", errs.Wrap(err, "")
	}
	list, err := movesOf(raw)
	if err != nil {
		return "", errs.Wrap(err, "")
	}
	if out.Commit.IsZero() {
		if c, ok, err := s.commitOf(ctx, w, l); err != nil {
			return "", err
		} else if ok {
			out.Commit = c
			if out.Entries, err = w.EntriesAt(ctx, c); err != nil {
				return "", err
			}
		}
	}
	if l.Over != "" {
		return l.Over, s.absorb(ctx, w, l, list)
	}
	if len(list) == 0 {
		return "", nil
	}
	root, err := os.OpenRoot(w.Root())
	if err != nil {
		return "", errs.Wrap(err, "")
	}
	defer root.Close()
	n := &planner{ctx: ctx, w: w, rules: map[string]*ignore.Dir{}}
	sources, err := w.IgnoreOptions()
	if err != nil {
		return "", err
	}
	sources.Options.ReadFile = beneath(sources.Options.ReadFile)
	if n.rules[""], err = ignore.NewRoot(sources.Options); err != nil {
		return "", errs.Wrap(err, "")
	}
	if err := reopen(root, list); err != nil {
		return "", err
	}
	m := &mover{away: s.path(l.ID, awayDir), step: s.stepped, since: changedAt(s.path(l.ID, metaFile)), kept: map[string]bool{}, root: root, upper: s.path(l.ID, "upper"), tip: w.Store().Snapshot(), rules: n.ruleDir}
	defer m.close()
	for _, x := range list {
		if x.Op == opKeep {
			m.kept[x.Path] = true
		}
	}
	if err := m.move(list, opClear); err != nil {
		return "", err
	}
	// What is put now must not be cleared when this is done again.
	list = slices.DeleteFunc(list, func(x move) bool { return x.Op == opClear })
	if err := s.note(l.ID, movesFile, list); err != nil {
		return "", err
	}
	if err := m.move(list, opPut); err != nil {
		return "", err
	}
	if slices.ContainsFunc(list, func(x move) bool { return x.Op == opChmod && x.Perm&ownerAll != ownerAll }) {
		// What is in a directory that is closed now cannot be synced later.
		if err := syncFiles(w.Root()); err != nil {
			return "", errs.Wrap(err, "")
		}
	}
	if err := m.move(insideFirst(list), opChmod); err != nil {
		return "", err
	}
	out.Skipped = append(out.Skipped, m.left...)
	return w.Root(), nil
}

// commitOf finds the commit that applied a layer. The clock may have been set back since the
// layer was begun.
func (s *Service) commitOf(ctx context.Context, w *workspace.Workspace, l *Layer) (object.ID, bool, error) {
	since := idem.Since(time.Now())
	if l.Begun.Before(since) {
		since = l.Begun
	}
	r, ok, err := w.Store().FindKey(ctx, key(l.ID), since.Add(-time.Hour))
	return r.Commit, ok && r.Source == message.Call, err
}

// format renders a dry run's differences.
func (o *Applied) format(list []patch) error {
	var all diff.Series
	for _, x := range list {
		p, err := diff.Format(x.old, x.new, diff.Options{})
		if err != nil {
			return err
		}
		all.Add(p)
	}
	o.Patch = all.Bytes()
	return nil
}

// gitPath reports whether a path has a component that no history records.
func gitPath(p string) bool {
	for p != "." && p != "/" {
		if wspath.CheckName(path.Base(p)) != nil {
			return true
		}
		p = path.Dir(p)
	}
	return false
}

// tempName names a file next to p that scans leave out.
func tempName(p string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return path.Join(path.Dir(p), ".umbra-"+hex.EncodeToString(b[:])+".tmp")
}
