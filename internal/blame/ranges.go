package blame

import (
	"context"
	"encoding/json"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/project"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Range is adjacent lines of one commit.
type Range struct {
	Start, End int // from 1, inclusive
	Origin     *Origin
	OriginLine int     // of the first line
	Via        *Origin // the revert that brought them back; nil: none did
	Who        Who
	// Project is whose the lines were in the project's own git, where the
	// workspace began with them and that is known.
	Project *project.Line
}

// Who made a change.
type Who struct {
	Task, Subtask, Actor string
	Agent, Model, Call   string
	Certainty, Source    string
	At                   time.Time
}

// Ranges groups the lines from first to last (from 1, inclusive) of a file. With
// repo, baseline lines are told apart by the project's own commits.
func (f *File) Ranges(ctx context.Context, w *workspace.Workspace, first, last int, repo *project.Repo) ([]Range, error) {
	var out []Range
	t := teller{w: w, known: make(map[*Origin]Who), repo: repo, lines: make(map[*Origin][]project.Line)}
	for n := first; n <= last; n++ {
		l := f.Lines[n-1]
		p, err := t.project(ctx, l)
		if err != nil {
			return nil, err
		}
		if k := len(out) - 1; k >= 0 && same(out[k].Origin, l.Origin) && same(out[k].Via, l.Via) && sameProject(out[k].Project, p) {
			out[k].End = n
			continue
		}
		who, err := t.who(ctx, l.Origin)
		if err != nil {
			return nil, err
		}
		out = append(out, Range{Start: n, End: n, Origin: l.Origin, OriginLine: l.No, Via: l.Via, Who: who, Project: p})
	}
	return out, nil
}

func same(a, b *Origin) bool {
	return a == b || a != nil && b != nil && a.Commit == b.Commit && a.Path == b.Path
}

func sameProject(a, b *project.Line) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Commit == b.Commit
}

// teller tells who made commits.
type teller struct {
	w     *workspace.Workspace
	known map[*Origin]Who
	repo  *project.Repo
	lines map[*Origin][]project.Line
}

// project gives whose a baseline's line was before; nil for others, and where that
// is not known.
func (t *teller) project(ctx context.Context, l Line) (*project.Line, error) {
	if t.repo == nil || l.Origin.Seq > max(1, t.w.Store().Boundary().Seq) {
		return nil, nil
	}
	lines, ok := t.lines[l.Origin]
	if !ok {
		snap, err := t.w.Store().SnapshotOf(ctx, l.Origin.Commit)
		if err != nil {
			return nil, err
		}
		e, there, err := snap.Lookup(wspath.Path(l.Origin.Path))
		if err != nil {
			return nil, err
		}
		if there {
			lines = t.repo.Blame(ctx, project.Version{Path: l.Origin.Path, Blob: e.ID})
		}
		t.lines[l.Origin] = lines
	}
	if l.No > len(lines) {
		return nil, nil
	}
	return &lines[l.No-1], nil
}

func (t *teller) who(ctx context.Context, o *Origin) (Who, error) {
	if who, ok := t.known[o]; ok {
		return who, nil
	}
	c, err := t.w.Store().ReadCommit(ctx, o.Commit)
	if err != nil {
		return Who{}, err
	}
	m := c.Message
	who := Who{Task: m.TaskID, Subtask: m.SubtaskID, Actor: m.Actor, Source: string(m.Source), At: c.When,
		Model: m.Trailer(message.KeyModel), Call: m.Trailer(message.KeyCall), Certainty: m.Trailer(message.KeyCertainty)}
	if who.Certainty != "" {
		if who, err = t.ofCall(ctx, c, o.Path, who); err != nil {
			return who, err
		}
	}
	who.Agent = agentOf(t.w.Store(), who.Task)
	t.known[o] = who
	return who, nil
}

// ofCall fills in the certainty of one path's change, and who claimed it since.
func (t *teller) ofCall(ctx context.Context, c *gitstore.Commit, path string, who Who) (Who, error) {
	entries, err := t.w.EntriesAt(ctx, c.ID)
	if err != nil {
		return who, err
	}
	for i := range entries {
		if e := &entries[i]; e.Path == path || e.NewPath == path {
			who.Certainty = string(e.Certainty)
		}
	}
	if c.Message.Source != message.Shared {
		return who, nil
	}
	recs, _, err := t.w.Store().Claimed(ctx, 0)
	if err != nil {
		return who, err
	}
	for i := len(recs) - 1; i >= 0 && recs[i].Seq > c.Seq; i-- {
		if !recs[i].Claims {
			continue
		}
		of, err := t.w.EntriesAt(ctx, recs[i].Commit)
		if errs.Is(err, errs.Gone) {
			continue
		}
		if err != nil {
			return who, err
		}
		for j := range of {
			if e := &of[j]; e.ClaimsSeq == c.Seq && (e.Path == path || e.NewPath == path) {
				return Who{Task: e.TaskID, Subtask: e.SubtaskID, Actor: e.Actor, Source: string(e.Source), At: who.At, Model: e.Model, Call: e.CallID,
					Certainty: string(e.Certainty)}, nil
			}
		}
	}
	return who, nil
}

// agentOf is the agent that a task's metadata names.
func agentOf(st *gitstore.Store, task string) string {
	t, ok := st.Task(task)
	var meta struct {
		Agent string `json:"agent"`
	}
	if !ok || json.Unmarshal(t.Info.Metadata, &meta) != nil {
		return ""
	}
	return meta.Agent
}
