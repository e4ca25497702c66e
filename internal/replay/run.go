package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"umbra/gitstore/object"
)

// Options of a replay.
type Options struct {
	From       string // URL, repository or bundle
	Task       string
	Onto       string // folder, or repository with "@REV"; empty: the task's own base
	Subtask    string // only this one's commits are steps
	Only       bool   // leave others' commits out
	Exec       string // command after each step, by sh -c
	StopOnFail bool
	Branch     string // write the result as commits on a new branch of Onto
	// Resume, if set, names a file in which the steps done are noted: a replay
	// that was cut off goes on behind them. It is removed at the end.
	Resume string
	// Progress, if not nil, is called with the steps done and all.
	Progress func(done, all int)
}

// Outcome of a step.
type Outcome string

// The outcomes. Context is a commit of others between the task's own.
const (
	OK         Outcome = "ok"
	Differs    Outcome = "differs"
	Conflicted Outcome = "conflict"
	ExecFailed Outcome = "exec_failed"
	Skipped    Outcome = "skipped"
)

// Step is one commit of the task, replayed.
type Step struct {
	Number    int        `json:"step"` // from 1
	Commit    string     `json:"commit"`
	Seq       uint64     `json:"seq"`
	Change    uint64     `json:"change,omitempty"`
	Subtask   string     `json:"subtask_id,omitempty"`
	Title     string     `json:"title"`
	Paths     []string   `json:"paths"`
	Outcome   Outcome    `json:"outcome"`
	Detail    string     `json:"detail,omitempty"`
	Conflicts []Conflict `json:"conflicts,omitempty"`
	Exec      *Exec      `json:"exec,omitempty"`
	Millis    int64      `json:"duration_ms"`
}

// Report is the result of a replay.
type Report struct {
	Task    string `json:"task_id"`
	Base    string `json:"base"`
	Head    string `json:"head"`
	Onto    string `json:"onto,omitempty"`
	Proven  bool   `json:"proven"` // every tree equalled the recorded one
	OK      bool   `json:"ok"`
	Context int    `json:"context"` // others' commits applied between the steps
	Steps   []Step `json:"steps"`
	// Broken is the first step that is not OK; 0: none. Where a commit of
	// others between the steps is not as recorded, Detail says so.
	Broken int    `json:"broken,omitempty"`
	Detail string `json:"detail,omitempty"`
	Branch string `json:"branch,omitempty"`
	Commit string `json:"branch_commit,omitempty"`
}

// Run replays. An error means that it could not be done at all; what was found
// is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	temp, err := os.MkdirTemp("", "umbra-replay-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	src, err := fetch(ctx, origin{from: o.From, task: o.Task}, temp)
	if err != nil {
		return nil, err
	}
	defer src.close()
	list, err := src.commits(ctx)
	if err != nil {
		return nil, err
	}
	r := &run{ctx: ctx, o: o, src: src, report: &Report{Task: o.Task, Base: src.base.String(), Head: src.head.String(), Onto: o.Onto, Steps: []Step{}}}
	defer func() { r.onto.close(); r.branch.close() }()
	if err := r.prepare(temp); err != nil {
		return nil, err
	}
	if r.progress, err = r.openProgress(); err != nil {
		return nil, err
	}
	if err = r.all(list); err == nil {
		err = r.finish()
	}
	if err = errors.Join(err, r.progress.close(err == nil)); err != nil {
		return nil, err
	}
	return r.report, nil
}

func (r *run) openProgress() (*progressFile, error) {
	if r.o.Resume == "" {
		return nil, nil
	}
	s := subject{Format: 1, Task: r.o.Task, Base: r.report.Base, Onto: r.o.Onto, Subtask: r.o.Subtask, Only: r.o.Only, Exec: r.o.Exec, Branch: r.o.Branch}
	if r.onto != nil {
		s.Rev = r.onto.rev
	}
	return openProgress(r.o.Resume, s, r.o.Exec != "")
}

// run is one replay under way.
type run struct {
	ctx    context.Context
	o      Options
	src    *source
	state  *state
	onto   *target
	branch *branch
	report *Report
	merged bool      // the state is no longer what was recorded: files are merged
	before object.ID // recorded tree before the next commit
	failed bool

	progress *progressFile // nil: none is kept
}

func (r *run) prepare(temp string) (err error) {
	disk := ""
	if r.o.Exec != "" {
		disk = filepath.Join(temp, "checkout")
		if err := os.Mkdir(disk, 0o755); err != nil {
			return err
		}
	}
	r.state = newState(func(id object.ID) ([]byte, error) { return r.src.get(id, object.Blob) }, disk)
	base, err := r.src.commit(r.src.base)
	if err != nil {
		return err
	}
	r.before = base.tree
	if r.o.Onto == "" {
		if r.o.Branch != "" {
			return errors.New("--commit needs --onto with a repository")
		}
		return r.state.fill(r.src, base.tree)
	}
	if r.onto, err = openTarget(r.ctx, r.o.Onto); err != nil {
		return err
	}
	r.merged = true
	if r.o.Branch != "" {
		if r.onto.repo == "" {
			return errors.New("--commit needs --onto with a repository")
		}
		if r.branch, err = newBranch(r.ctx, r.onto.repo, r.onto.rev, r.o.Branch, temp); err != nil {
			return err
		}
	}
	if err := r.onto.copyInto(r.ctx, r.state); err != nil {
		return err
	}
	if r.branch != nil {
		r.branch.begin(r.state)
	}
	return nil
}

// isStep reports whether a commit is the task's own, and not context.
func (r *run) isStep(c *commit) bool {
	return c.msg.TaskID == r.o.Task && (r.o.Subtask == "" || c.msg.SubtaskID == r.o.Subtask)
}

func (r *run) all(list []*commit) error {
	steps := 0
	for _, c := range list {
		if r.isStep(c) {
			steps++
		}
	}
	if r.o.Subtask != "" && steps == 0 {
		return fmt.Errorf("the task has no subtask %q", r.o.Subtask)
	}
	r.report.Proven = !r.merged
	for _, c := range list {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if !r.isStep(c) {
			if err := r.context(c); err != nil {
				return err
			}
			r.before = c.tree
			if r.failed {
				break
			}
			continue
		}
		s := Step{Number: len(r.report.Steps) + 1, Commit: c.id.String(), Seq: c.msg.Seq, Change: c.msg.Change, Subtask: c.msg.SubtaskID,
			Title: title(c), Paths: []string{}}
		if r.failed {
			s.Outcome = Skipped
		} else if err := r.timed(c, &s); err != nil {
			return err
		}
		r.before = c.tree
		r.report.Steps = append(r.report.Steps, s)
		if s.Outcome != OK && s.Outcome != Skipped {
			if r.report.Broken == 0 {
				r.report.Broken = s.Number
			}
			// After a tree that is not as recorded nothing can be proven any more.
			r.failed = r.o.StopOnFail || s.Outcome == Differs
		}
		if r.o.Progress != nil {
			r.o.Progress(len(r.report.Steps), steps)
		}
	}
	r.report.OK = r.report.Broken == 0 && r.report.Detail == ""
	r.report.Proven = r.report.Proven && r.report.OK
	return nil
}

func title(c *commit) string {
	if c.msg.Subject != "" {
		t, _, _ := strings.Cut(c.msg.Subject, "\n")
		return t
	}
	return c.msg.Summary
}

// context applies a commit of others; it is proven as the steps are.
func (r *run) context(c *commit) error {
	if r.merged || r.o.Only {
		// Left out. From here on the files may differ from what was recorded.
		r.merged = true
		r.report.Proven = r.report.Proven && r.o.Only && r.o.Onto == ""
		return nil
	}
	r.report.Context++
	changes, err := r.src.changes(r.before, c)
	if err == nil {
		if _, err = r.state.apply(changes); err == nil {
			err = r.prove(c)
		}
	}
	if err != nil {
		r.failed = true
		r.report.Detail = fmt.Sprintf("commit %s (number %d, of others): %v", c.id, c.msg.Seq, err)
	}
	return nil
}

// prove compares the state with the recorded tree, hash for hash.
func (r *run) prove(c *commit) error {
	root, err := r.state.root()
	if err != nil {
		return err
	}
	if root != c.tree {
		return fmt.Errorf("the tree is %s, recorded was %s", root, c.tree)
	}
	return nil
}

// timed does a step. One that a run before has done is applied again, and is
// what it was then, as long as it is proven.
func (r *run) timed(c *commit, s *Step) error {
	before, again, err := r.progress.before(s)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := r.step(c, s, !again && r.o.Exec != ""); err != nil {
		return err
	}
	s.Millis = time.Since(began).Milliseconds()
	if !again {
		return r.progress.note(s)
	}
	if s.Outcome != Differs {
		*s = before
	}
	return nil
}

// step applies a commit of the task, proves it where that can be, and runs the
// command on it if asked to.
func (r *run) step(c *commit, s *Step, exec bool) error {
	changes, err := r.src.changes(r.before, c)
	if err != nil {
		s.Outcome, s.Detail = Differs, err.Error()
		return nil
	}
	for _, ch := range changes {
		s.Paths = append(s.Paths, ch.path)
	}
	for _, e := range c.msg.Entries {
		if strings.HasSuffix(e.Path, "/") {
			s.Paths = append(s.Paths, e.Path)
		}
	}
	slices.Sort(s.Paths)
	if s.Conflicts, err = r.state.apply(changes); err != nil {
		return err
	}
	switch {
	case len(s.Conflicts) > 0:
		s.Outcome = Conflicted
	case !r.merged:
		if err := r.prove(c); err != nil {
			s.Outcome, s.Detail = Differs, err.Error()
			return nil
		}
		s.Outcome = OK
	default:
		s.Outcome = OK
	}
	if exec {
		if s.Exec, err = r.exec(c, s); err != nil {
			return err
		}
		if s.Exec.Status != 0 && s.Outcome == OK {
			s.Outcome = ExecFailed
		}
	}
	if r.branch != nil {
		return r.branch.add(r.state, c.head())
	}
	return nil
}

func (r *run) finish() error {
	if r.branch == nil || r.failed && r.o.StopOnFail {
		return nil
	}
	id, err := r.branch.write(r.ctx)
	if err != nil {
		return err
	}
	r.report.Branch = r.o.Branch
	if !id.IsZero() {
		r.report.Commit = id.String()
	}
	return nil
}
