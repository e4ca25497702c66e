package replay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/gitcmd"
)

// Squash says what becomes one commit of an export.
type Squash string

// The ways. What belongs to no task counts as one of its own.
const (
	SquashNone    Squash = "none"    // each commit
	SquashSubtask Squash = "subtask" // commits of one subtask that follow each other
	SquashTask    Squash = "task"    // commits of one task that follow each other: a task's export is one commit
)

// ExportOptions say what is exported, and whereto.
type ExportOptions struct {
	From   string // URL, repository or bundle
	Token  string // for a URL: sent as password
	Task   string // empty: the whole workspace
	Repo   string // a folder of the user's own repository
	Branch string // new
	Squash Squash
	Notes  []Notes // formats in which the commits are annotated
	// Progress, if not nil, is called with the commits done and all.
	Progress func(done, all int)
}

// ExportConflict is a file that a commit could not be applied to.
type ExportConflict struct {
	Commit string `json:"commit"`
	Title  string `json:"title"`
	Conflict
}

// Exported is the result of an export.
type Exported struct {
	OK     bool   `json:"ok"`
	Task   string `json:"task_id,omitempty"`
	Branch string `json:"branch"`
	// Base is the commit that the branch begins at; empty: it has a root of its
	// own, since the repository had no commit.
	Base string `json:"base,omitempty"`
	// SameBase: the base's files are those that the work began with. Else it was
	// merged three-way onto HEAD.
	SameBase  bool             `json:"same_base"`
	Squash    Squash           `json:"squash"`
	Changes   int              `json:"changes"` // recorded commits that went in
	Commits   int              `json:"commits"` // written
	Commit    string           `json:"commit,omitempty"`
	Conflicts []ExportConflict `json:"conflicts,omitempty"`
	Notes     []NotesWritten   `json:"notes,omitempty"`
}

// Export writes a task's, or a whole workspace's, history as ordinary commits
// on a new branch of the user's own repository. Its index and working tree are
// not touched; after a conflict nothing is.
func Export(ctx context.Context, o ExportOptions) (*Exported, error) {
	temp, err := os.MkdirTemp("", "umbra-export-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	repo, err := gitDirOf(ctx, o.Repo)
	if err != nil {
		return nil, err
	}
	e := &export{ctx: ctx, o: o, out: &Exported{Task: o.Task, Branch: o.Branch, Squash: o.Squash}}
	defer func() { e.onto.close(); e.branch.close() }()
	if e.src, err = fetch(ctx, origin{from: o.From, task: o.Task, token: o.Token, infos: len(o.Notes) > 0}, temp); err != nil {
		return nil, err
	}
	defer e.src.close()
	if err := e.begin(repo, temp); err != nil {
		return nil, err
	}
	if err := e.all(); err != nil {
		return nil, err
	}
	if len(e.out.Conflicts) > 0 {
		return e.out, nil
	}
	id, err := e.branch.write(ctx)
	if err != nil {
		return nil, err
	}
	if e.notes != nil {
		if err := e.notes.write(ctx, temp); err != nil {
			return nil, errors.Join(err, e.branch.remove(ctx, id))
		}
	}
	e.out.OK, e.out.Commits = true, e.branch.n
	if !id.IsZero() {
		e.out.Commit = id.String()
	}
	return e.out, nil
}

// export is one under way.
type export struct {
	ctx    context.Context
	o      ExportOptions
	src    *source
	onto   *target
	state  *state
	branch *branch
	goal   string     // of the task
	notes  *annotator // nil: no notes are wanted
	exact  bool       // the files are those that were recorded
	out    *Exported
}

// begin finds the commit that the branch begins at.
func (e *export) begin(repo, temp string) error {
	base, err := e.src.commit(e.src.base)
	if err != nil {
		return err
	}
	e.goal = e.src.goal(e.ctx, e.o.Task)
	head, err := headOf(e.ctx, repo)
	if err != nil {
		return err
	}
	from := ""
	if head != "" {
		if from, err = commitWith(e.ctx, repo, head, base.tree); err != nil {
			return err
		}
	}
	if e.out.SameBase = from != "" || head == ""; from == "" {
		from = head
	}
	e.out.Base = from
	e.exact = e.out.SameBase
	if e.branch, err = newBranch(e.ctx, repo, from, e.o.Branch, temp); err != nil {
		return err
	}
	e.state = newState(func(id object.ID) ([]byte, error) { return e.src.get(id, object.Blob) }, "")
	if e.exact {
		err = e.state.fill(e.src, base.tree)
	} else {
		e.onto = &target{repo: repo, rev: from}
		err = e.onto.copyInto(e.ctx, e.state)
	}
	if err != nil || head != "" {
		e.branch.begin(e.state)
		return err
	}
	// The repository has no commit yet: the work's base becomes the first.
	files := e.state.files
	e.state.files = nil
	e.branch.begin(e.state)
	e.state.files = files
	for p := range files {
		e.state.changed[p] = true
	}
	first := base.head()
	if e.o.Task != "" {
		first.text = "base of task " + e.o.Task + "\n"
	}
	return e.branch.add(e.state, first)
}

// all applies the commits, and writes each group of them as one.
func (e *export) all() error {
	list, err := e.src.commits(e.ctx)
	if err != nil {
		return err
	}
	before, err := e.src.commit(e.src.base)
	if err != nil {
		return err
	}
	if len(e.o.Notes) > 0 {
		if e.notes, err = newAnnotator(e, list); err != nil {
			return err
		}
	}
	tree := before.tree
	var group []*commit
	flush := func() error {
		if len(group) == 0 {
			return nil
		}
		c := e.squashed(group)
		group = group[:0]
		return e.add(c)
	}
	for i, c := range list {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		if e.o.Task == "" || c.msg.TaskID == e.o.Task {
			if len(group) > 0 && !e.together(group[0], c) {
				if err := flush(); err != nil {
					return err
				}
			}
			if err := e.step(tree, c); err != nil {
				return err
			}
			group = append(group, c)
		} else if c.tree != tree {
			e.exact = false // left out: from here on files may differ
		}
		tree = c.tree
		if e.o.Progress != nil {
			e.o.Progress(i+1, len(list))
		}
	}
	return flush()
}

// add writes what was applied as a commit.
func (e *export) add(c written) error {
	if e.notes == nil {
		return e.branch.add(e.state, c)
	}
	if err := e.notes.collect(); err != nil {
		return err
	}
	n := e.branch.n
	err := e.branch.add(e.state, c)
	e.notes.added(e.branch.n > n, c.when)
	return err
}

// together reports whether two commits become one.
func (e *export) together(a, b *commit) bool {
	switch e.o.Squash {
	case SquashTask:
		return a.msg.TaskID == b.msg.TaskID
	case SquashSubtask:
		return a.msg.TaskID == b.msg.TaskID && a.msg.SubtaskID == b.msg.SubtaskID
	}
	return false
}

// step applies one commit. On the base that it was recorded on, the tree must
// be the recorded one afterwards.
func (e *export) step(before object.ID, c *commit) error {
	changes, err := e.src.changes(before, c)
	if err != nil {
		return fmt.Errorf("commit %s is not what its message says: %w", c.id, err)
	}
	found := e.notes.before(changes)
	conflicts, err := e.state.apply(changes)
	if err != nil {
		return err
	}
	for _, x := range conflicts {
		e.out.Conflicts = append(e.out.Conflicts, ExportConflict{Commit: c.id.String(), Title: title(c), Conflict: x})
	}
	e.out.Changes++
	if len(e.out.Conflicts) == 0 {
		if err := e.notes.step(c, changes, found); err != nil {
			return err
		}
	}
	if !e.exact {
		return nil
	}
	root, err := e.state.root()
	if err == nil && root != c.tree {
		err = fmt.Errorf("commit %s: the tree is %s, recorded was %s", c.id, root, c.tree)
	}
	return err
}

// goal returns what a task was for, from its record; empty if there is none.
func (s *source) goal(ctx context.Context, task string) string {
	if task == "" {
		return ""
	}
	cmd, err := gitcmd.Command(ctx, s.dir, "rev-parse", "--verify", "-q", "refs/umbra/tasks/"+task+"/info")
	if err != nil {
		return ""
	}
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	info, err := s.info(strings.TrimSpace(string(out)))
	if err != nil {
		return ""
	}
	return message.CleanText(info.Goal)
}

// info reads the record of a task, a tag.
func (s *source) info(name string) (*message.Info, error) {
	id, err := object.ParseID(name)
	if err != nil {
		return nil, err
	}
	data, err := s.get(id, object.Tag)
	if err != nil {
		return nil, err
	}
	tag, err := object.ParseTag(data)
	if err != nil {
		return nil, err
	}
	return message.ParseInfo(tag.Message)
}

// headOf gives a repository's checked out commit, empty before the first.
func headOf(ctx context.Context, repo string) (string, error) {
	cmd, err := gitcmd.Command(ctx, repo, "rev-parse", "--verify", "-q", "HEAD^{commit}")
	if err != nil {
		return "", err
	}
	out, err := cmd.Output()
	if err != nil && len(out) == 0 && ctx.Err() == nil {
		return "", nil
	}
	return strings.TrimSpace(string(out)), err
}

// commitWith gives a commit of the repository with this tree: HEAD, or the
// newest one that HEAD, else any branch or tag, comes from. Empty: none.
func commitWith(ctx context.Context, repo, head string, tree object.ID) (string, error) {
	found, err := searchTree(ctx, repo, tree, head)
	if found != "" || err != nil {
		return found, err
	}
	return searchTree(ctx, repo, tree, "--branches", "--tags", "--remotes", "^"+head)
}

// searchTree reads commits, newest first, until one has the tree.
func searchTree(ctx context.Context, repo string, tree object.ID, revs ...string) (found string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd, err := gitcmd.Command(ctx, repo, append([]string{"rev-list", "--format=%T"}, revs...)...)
	if err != nil {
		return "", err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	want := tree.String()
	lines := bufio.NewScanner(pipe)
	commit := ""
	for lines.Scan() {
		if id, ok := strings.CutPrefix(lines.Text(), "commit "); ok {
			commit = id
		} else if lines.Text() == want {
			cancel() // the rest need not be read
			_, _ = io.Copy(io.Discard, pipe)
			_ = cmd.Wait()
			return commit, nil
		}
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("git rev-list: %w", err)
	}
	return "", lines.Err()
}
