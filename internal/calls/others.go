package calls

import (
	"context"
	"fmt"
	"strings"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Other is a path that others changed since a session's last call: its last
// change.
type Other struct {
	Path      string
	Operation string
	Task      string
	Subtask   string
	Actor     string
	Source    string
	Message   string // of a rejection
	At        time.Time
	// Lines are the ranges of the file as it is now that are not as the session
	// left them, "10-30,42-42"; empty if there are none.
	Lines string
}

const (
	maxOthers = 20
	// maxOtherCommits bounds the commits that are read for others.
	maxOtherCommits = 2000
	// maxCompared bounds a file whose lines are compared, in bytes.
	maxCompared = 1 << 20
)

// others returns what others changed between a session's last call and this one,
// newest first, one item a path, and how many paths there are beyond these.
func (s *Service) others(ctx context.Context, w *workspace.Workspace, r *Record) (out []Other, more int, err error) {
	if r.Since == 0 {
		return nil, 0, nil
	}
	var recs []gitstore.Record
	from := r.Since + 1
	if r.From > maxOtherCommits {
		from = max(from, r.From-maxOtherCommits+1)
	}
	if err := w.Store().Records(ctx, from, r.From, func(c gitstore.Record) error {
		if c.Seq >= from && c.Task != r.Task && c.Source != message.Baseline && c.Entries > 0 {
			recs = append(recs, c)
		}
		return nil
	}); err != nil {
		return nil, 0, err
	}
	seen := make(map[string]bool)
	if s.o.Rejected != nil {
		rejected, err := s.o.Rejected(ctx, w, r.Task, r.Since)
		if err != nil {
			return nil, 0, err
		}
		for _, o := range rejected {
			seen[o.Path] = true
			out = append(out, o)
		}
	}
	for i := len(recs) - 1; i >= 0; i-- {
		of, err := w.EntriesAt(ctx, recs[i].Commit)
		if errs.Is(err, errs.Gone) || errs.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		for j := len(of) - 1; j >= 0; j-- {
			e := &of[j]
			path := e.Path
			if e.NewPath != "" {
				path = e.NewPath
			}
			if seen[path] || mayBe(e, r.Task) {
				continue
			}
			seen[path] = true
			if len(out) >= maxOthers {
				more++
				continue
			}
			o := Other{Path: path, Operation: string(e.Operation), Task: e.TaskID, Subtask: e.SubtaskID, Actor: e.Actor, Source: string(e.Source), At: e.When}
			if o.Lines, err = changedLines(ctx, w.Store(), r.Since, r.From, path); err != nil {
				return nil, 0, err
			}
			out = append(out, o)
		}
	}
	return out[:min(len(out), maxOthers)], more, nil
}

// mayBe reports whether a shared change may be a task's own.
func mayBe(e *workspace.ChangeEntry, task string) bool {
	for _, v := range e.ClaimantTasks {
		if id, _, _ := strings.Cut(v, " "); id == task {
			return true
		}
	}
	return false
}

// changedLines gives the ranges of a file at one commit that differ from an older
// one.
func changedLines(ctx context.Context, st *gitstore.Store, since, from uint64, path string) (string, error) {
	read := func(seq uint64) ([]byte, bool, error) {
		id, err := st.CommitAt(ctx, seq)
		if err != nil {
			return nil, false, err
		}
		e, ok, err := fileAt(ctx, st, id, path)
		if err != nil || !ok || e.Mode == object.Symlink {
			return nil, false, err
		}
		data, err := st.ReadBlob(ctx, e.ID, maxCompared)
		return data, err == nil, err
	}
	now, ok, err := read(from)
	if err != nil || !ok || diff.Binary(now) {
		return "", unread(err)
	}
	was, _, err := read(since)
	if unread(err) != nil {
		return "", err
	}
	var t diff.Table
	var ranges []string
	for _, c := range t.Compare(t.Cut(was), t.Cut(now), &diff.Work{}) {
		if c.New.Len() > 0 {
			ranges = append(ranges, fmt.Sprintf("%d-%d", c.New.Start+1, c.New.End))
		}
	}
	return strings.Join(ranges, ","), nil
}

// unread forgives that a version is too large or dropped.
func unread(err error) error {
	if errs.Is(err, errs.TooLarge) || errs.Is(err, errs.Gone) || errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// fileAt returns the file or link at a path of a commit.
func fileAt(ctx context.Context, st *gitstore.Store, commit object.ID, path string) (gitstore.Entry, bool, error) {
	snap, err := st.SnapshotOf(ctx, commit)
	if err != nil {
		return gitstore.Entry{}, false, err
	}
	e, ok, err := snap.Lookup(wspath.Path(strings.TrimSuffix(path, "/")))
	if err != nil || !ok || e.Mode == object.Dir {
		return gitstore.Entry{}, false, err
	}
	return e, true, nil
}
