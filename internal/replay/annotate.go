package replay

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/gitcmd"
	"umbra/internal/notes"
)

// Notes is a format in which exported commits are annotated.
type Notes string

// The formats.
const (
	NotesGitAI      Notes = "git-ai"
	NotesAgentTrace Notes = "agent-trace"
)

func (n Notes) ref() string {
	if n == NotesGitAI {
		return notes.GitAIRef
	}
	return notes.TraceRef
}

func (n Notes) text(c *notes.Commit) ([]byte, error) {
	if n == NotesGitAI {
		return notes.GitAI(c)
	}
	return notes.AgentTrace(c)
}

// NotesWritten says what became of the notes of one format.
type NotesWritten struct {
	Format  Notes  `json:"format"`
	Ref     string `json:"ref"`
	Written int    `json:"written"`
	// Kept are commits that had a note already: an earlier export wrote the same
	// commit, or another tool annotated it.
	Kept int `json:"kept"`
}

// annotator follows the lines of the files through an export. A nil one does
// nothing.
type annotator struct {
	e       *export
	infos   map[string]string // object ids of the tasks' records
	writers []*notes.Writer
	lines   map[string]notes.Lines // by path; absent: as it was where the branch begins
	from    map[string]string      // path before the commit being made; absent or empty: the same, or it is new
	first   int                    // writers from here on are of the commit being made
	claims  map[object.ID][]*commit
	undone  map[object.ID]bool
	prior   map[object.ID]map[string]version // of undone commits: files as they were before
	out     []notes.Commit                   // one for each commit written
	pending []notes.File
}

// version is a file with its lines.
type version struct {
	file  file
	lines notes.Lines
}

// newAnnotator begins before the first of the commits.
func newAnnotator(e *export, list []*commit) (*annotator, error) {
	a := &annotator{e: e, infos: make(map[string]string), lines: make(map[string]notes.Lines), from: make(map[string]string),
		claims: make(map[object.ID][]*commit), undone: make(map[object.ID]bool), prior: make(map[object.ID]map[string]version),
		out: make([]notes.Commit, e.branch.n)}
	for i := range a.out { // where the repository was empty, the work's base
		base, err := e.src.commit(e.src.base)
		if err != nil {
			return nil, err
		}
		a.out[i].When = base.when
	}
	for _, c := range list {
		for _, id := range c.msg.Reverts {
			a.undone[id] = true
		}
		if id, err := object.ParseID(c.msg.Trailer(message.KeyClaims)); err == nil {
			a.claims[id] = append(a.claims[id], c)
		}
	}
	cmd, err := gitcmd.Command(e.ctx, e.src.dir, "for-each-ref", "--format=%(objectname) %(refname)", "refs/umbra/tasks")
	if err != nil {
		return nil, err
	}
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		id, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		if task, ok := strings.CutSuffix(strings.TrimPrefix(ref, "refs/umbra/tasks/"), "/info"); ok {
			a.infos[task] = id
		}
	}
	return a, nil
}

// before returns the files that a step finds, by their old paths.
func (a *annotator) before(changes []change) map[string]version {
	if a == nil {
		return nil
	}
	out := make(map[string]version, len(changes))
	for _, ch := range changes {
		out[ch.oldPath] = version{a.e.state.files[ch.oldPath], a.lines[ch.oldPath]}
		if _, ok := out[ch.path]; !ok {
			out[ch.path] = version{a.e.state.files[ch.path], a.lines[ch.path]}
		}
	}
	return out
}

// text returns a version's bytes; none where it is no text.
func (a *annotator) text(f file) ([]byte, error) {
	if f.mode != object.Regular && f.mode != object.Executable {
		return nil, nil
	}
	data, err := a.e.state.bytes(f.id)
	if err != nil || diff.Binary(data) {
		return nil, err
	}
	return data, nil
}

// full returns a version's lines; those of one that no step has written yet are
// of no writer.
func (v version) full(text []byte) notes.Lines {
	if v.lines == nil {
		return notes.Whole(text, -1)
	}
	return v.lines
}

// step carries the lines over what a commit did.
func (a *annotator) step(c *commit, changes []change, found map[string]version) error {
	if a == nil {
		return nil
	}
	if a.undone[c.id] {
		a.prior[c.id] = found
	}
	lines, from := make(map[string]notes.Lines), make(map[string]string)
	for _, ch := range changes {
		now := a.e.state.files[ch.path]
		if !now.exists() {
			continue
		}
		old := found[ch.oldPath]
		origin, ok := a.from[ch.oldPath]
		if !ok && old.file.exists() {
			origin = ch.oldPath
		}
		from[ch.path] = origin
		text, err := a.text(now)
		if err != nil {
			return err
		}
		was, err := a.text(old.file)
		if err != nil {
			return err
		}
		who, err := a.writer(c, ch.path)
		if err != nil {
			return err
		}
		l := notes.Carry(old.full(was), was, text, who)
		for _, id := range c.msg.Reverts {
			v, ok := a.prior[id][ch.path]
			if !ok || !v.file.exists() {
				continue
			}
			older, err := a.text(v.file)
			if err != nil {
				return err
			}
			l = notes.Restore(l, text, v.full(older), older, who)
		}
		lines[ch.path] = l
	}
	for _, ch := range changes {
		for _, p := range []string{ch.oldPath, ch.path} {
			if !a.e.state.files[p].exists() {
				delete(a.lines, p)
				delete(a.from, p)
			}
		}
	}
	for p := range lines {
		a.lines[p], a.from[p] = lines[p], from[p]
	}
	return nil
}

// writer returns the index of the one that a commit's lines at a path belong to.
func (a *annotator) writer(c *commit, path string) (int32, error) {
	for _, claim := range slices.Backward(a.claims[c.id]) {
		if slices.ContainsFunc(claim.msg.Entries, func(e message.Entry) bool { return e.Path == path }) {
			c = claim
			break
		}
	}
	id := c.id.String()
	for i := len(a.writers) - 1; i >= a.first; i-- {
		if a.writers[i].Commit == id {
			return int32(i), nil
		}
	}
	w := &notes.Writer{Commit: id, Task: c.msg.TaskID, Actor: c.msg.Actor, Model: c.msg.Trailer(message.KeyModel), Call: c.msg.Trailer(message.KeyCall)}
	if name := a.infos[w.Task]; name != "" {
		info, err := a.e.src.info(name)
		if err != nil {
			return 0, err
		}
		var meta struct {
			Agent   string `json:"agent"`
			Session string `json:"agent_session"`
		}
		if json.Unmarshal(info.Metadata, &meta) == nil { // else it is not of the calls' form
			w.Agent, w.Session = meta.Agent, meta.Session
		}
	}
	a.writers = append(a.writers, w)
	return int32(len(a.writers) - 1), nil
}

// collect finds the lines that the next commit adds.
func (a *annotator) collect() error {
	a.pending = nil
	for p := range a.e.state.changed {
		f := a.e.state.files[p]
		l := a.lines[p]
		if !f.exists() || l == nil {
			continue
		}
		from := a.from[p]
		if from == "" {
			from = p // new, or removed and made again
		}
		was := a.e.branch.last[from]
		old, err := a.text(was)
		if err != nil {
			return err
		}
		now, err := a.text(f)
		if err != nil {
			return err
		}
		if runs := l.Added(old, now, int32(a.first), func(i int32) *notes.Writer { return a.writers[i] }); len(runs) > 0 {
			a.pending = append(a.pending, notes.File{Path: p, Runs: runs})
		}
	}
	slices.SortFunc(a.pending, func(x, y notes.File) int { return strings.Compare(x.Path, y.Path) })
	return nil
}

// added notes whether what was collected became a commit.
func (a *annotator) added(written bool, when time.Time) {
	if written {
		a.out = append(a.out, notes.Commit{When: when, Files: a.pending})
	}
	clear(a.from)
	a.first = len(a.writers)
}

// write writes the notes of all commits.
func (a *annotator) write(ctx context.Context, temp string) error {
	ids, err := a.e.branch.ids()
	if err != nil {
		return err
	}
	if len(ids) != len(a.out) {
		return fmt.Errorf("%d commits for %d notes", len(ids), len(a.out))
	}
	for i, id := range ids {
		a.out[i].ID = id
	}
	for _, n := range a.e.o.Notes {
		w, err := a.writeRef(ctx, n, temp)
		if err != nil {
			return fmt.Errorf("notes: %w", err)
		}
		a.e.out.Notes = append(a.e.out.Notes, *w)
	}
	return nil
}

// writeRef adds notes to a ref, by git-fast-import(1). Existing notes stay.
func (a *annotator) writeRef(ctx context.Context, n Notes, temp string) (*NotesWritten, error) {
	out := &NotesWritten{Format: n, Ref: n.ref()}
	tip, has, err := annotated(ctx, a.e.branch.repo, out.Ref)
	if err != nil {
		return nil, err
	}
	spool, err := os.Create(filepath.Join(temp, string(n)))
	if err != nil {
		return nil, err
	}
	defer spool.Close()
	w := bufio.NewWriter(spool)
	for i := range a.out {
		c := &a.out[i]
		if has[c.ID] {
			out.Kept++
			continue
		}
		if out.Written++; out.Written == 1 {
			name, mail := message.Committer()
			text := "notes of umbra export\n"
			fmt.Fprintf(w, "commit %s\ncommitter %s <%s> %d +0000\ndata %d\n%s", out.Ref, name, mail, a.out[len(a.out)-1].When.Unix(), len(text), text)
			if tip != "" {
				fmt.Fprintf(w, "from %s\n", tip)
			}
		}
		text, err := n.text(c)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(w, "N inline %s\ndata %d\n%s\n", c.ID, len(text), text)
	}
	w.WriteString("done\n")
	if err := w.Flush(); err != nil || out.Written == 0 {
		return out, err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	cmd, err := gitcmd.Command(ctx, a.e.branch.repo, "fast-import", "--quiet", "--done")
	if err != nil {
		return nil, err
	}
	cmd.Stdin = spool
	return out, gitcmd.Run(cmd)
}

// annotated returns the newest commit of a notes ref, empty if there is none, and
// the objects that have a note there.
func annotated(ctx context.Context, repo, ref string) (tip string, has map[string]bool, err error) {
	cmd, err := gitcmd.Command(ctx, repo, "for-each-ref", "--format=%(objectname)", ref)
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.Output()
	if err != nil {
		return "", nil, err
	}
	has = make(map[string]bool)
	if tip = strings.TrimSpace(string(out)); tip == "" {
		return "", has, nil
	}
	if cmd, err = gitcmd.Command(ctx, repo, "notes", "--ref="+ref, "list"); err != nil {
		return "", nil, err
	}
	if out, err = cmd.Output(); err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(string(out)) {
		_, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		has[id] = true
	}
	return tip, has, nil
}
