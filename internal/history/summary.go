package history

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/merge3"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// Status is what a task made of a file on the whole.
type Status string

// The statuses.
const (
	Created  Status = "created"
	Modified Status = "modified"
	Deleted  Status = "deleted"
	Renamed  Status = "renamed"
)

// File is one line of a summary.
type File struct {
	Status        Status
	Path          string // where it is now, or was last
	From          string // Renamed: its name before
	Before, After State  // what the first entry found, what the last left
	Additions     int
	Deletions     int
	Binary        bool
	Mixed         bool     // others' changes lie between
	Shared        bool     // others may have made some of it
	Subtasks      []string // sorted, without those of no subtask
	chain         *Chain
}

// Summary is the net effect of one task alone.
type Summary struct {
	Files []File // sorted by path, bytewise
}

// counts gives the numbers of lines of the files that are one task's alone.
func (s *Summary) counts() map[pair]lines {
	out := make(map[pair]lines, len(s.Files))
	for i := range s.Files {
		if f := &s.Files[i]; !f.Mixed && f.Before.ID != f.After.ID {
			out[pair{f.Before.ID, f.After.ID}] = lines{f.Additions, f.Deletions, f.Binary}
		}
	}
	return out
}

// Summary gives what a task's work comes to. The result is shared: it must not
// be changed.
func (c *Cache) Summary(ctx context.Context, w *workspace.Workspace, id string) (*Summary, error) {
	s := c.slot(key{w.ID(), id})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.summary(ctx, w, id)
}

// summary brings the slot's summary up to date; mu is held.
func (s *cached) summary(ctx context.Context, w *workspace.Workspace, id string) (*Summary, error) {
	t, err := s.read(ctx, w, id)
	if err != nil {
		return nil, err
	}
	if s.sum == nil {
		chains, _ := t.Chains(t.Work(), nil)
		if s.sum, err = summarize(ctx, w.Store(), chains, s.counts); err != nil {
			return nil, err
		}
		s.counts, s.counted = s.sum.counts(), s.recs
		s.keep(w, id, max(keptFrom, s.kept.recs/8))
	}
	return s.sum, nil
}

// summarize gives what work comes to. counts are of files whose lines were
// counted before.
func summarize(ctx context.Context, st *gitstore.Store, chains []*Chain, counts map[pair]lines) (*Summary, error) {
	sum := &Summary{}
	for _, c := range chains {
		if f, ok := fileOf(c); ok {
			sum.Files = append(sum.Files, f)
		}
	}
	err := spread(ctx, len(sum.Files), func(i int) error {
		f := &sum.Files[i]
		if l, ok := counts[pair{f.Before.ID, f.After.ID}]; ok && !f.Mixed {
			f.Additions, f.Deletions, f.Binary = l.additions, l.deletions, l.binary
			return nil
		}
		return f.count(ctx, st)
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(sum.Files, func(a, b File) int {
		// Removals come before what took their place: git apply needs this order.
		gone := func(f File) int {
			if f.Status == Deleted {
				return 0
			}
			return 1
		}
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(gone(a), gone(b)))
	})
	// Of two files that ended at one path, a forced revert removed one; of two
	// that began at one, the later is listed.
	snap := st.Snapshot()
	for i := 1; i < len(sum.Files); {
		a, b := &sum.Files[i-1], &sum.Files[i]
		if a.Path != b.Path || a.After.Exists() != b.After.Exists() {
			i++
			continue
		}
		is, err := fileAt(snap, a.Path)
		if err != nil {
			return nil, err
		}
		if is.Same(a.After) && !is.Same(b.After) {
			*b = *a
		}
		sum.Files = slices.Delete(sum.Files, i-1, i)
	}
	return sum, nil
}

// fileOf classes a chain; false where it comes to nothing.
func fileOf(c *Chain) (File, bool) {
	f := File{Before: c.First(), After: c.Last(), Mixed: c.Mixed(), chain: c}
	f.Path = f.After.Path
	switch {
	case !f.Before.Exists() && !f.After.Exists():
		return f, false
	case !f.Before.Exists():
		f.Status = Created
	case !f.After.Exists():
		// Known by the name that people knew before the task.
		f.Status, f.Path = Deleted, f.Before.Path
	case f.Before.Path != f.After.Path:
		f.Status, f.From = Renamed, f.Before.Path
	case f.Before.Same(f.After) && !f.Mixed:
		return f, false
	default:
		f.Status = Modified
	}
	seen := make(map[string]bool)
	for _, e := range c.Entries() {
		f.Shared = f.Shared || e.Shared()
		for _, s := range append([]string{e.SubtaskID}, e.subtasks...) {
			if s != "" && !seen[s] {
				seen[s] = true
				f.Subtasks = append(f.Subtasks, s)
			}
		}
	}
	slices.Sort(f.Subtasks)
	return f, true
}

// maxCounted is the size up to which lines are counted; larger files are reported
// like binary ones.
const maxCounted = 16 << 20

// count fills in the numbers of lines.
func (f *File) count(ctx context.Context, st *gitstore.Store) error {
	if f.Before.ID == f.After.ID && !f.Mixed {
		return nil
	}
	old, now, err := f.Sides(ctx, st, maxCounted)
	if errs.Is(err, errs.TooLarge) {
		f.Binary = true
		return nil
	}
	if err != nil {
		return err
	}
	f.Additions, f.Deletions, f.Binary = diff.Stat(old.Data, now.Data)
	return nil
}

// Sides gives the two versions whose difference is the task's alone: for a
// mixed file others' changes are taken out by three-way merge; where that does
// not come out clean, the plain range is used. Above max bytes: errs.TooLarge.
func (f *File) Sides(ctx context.Context, st *gitstore.Store, max int64) (old, now diff.File, err error) {
	if old, err = side(ctx, st, f.Before, max); err != nil {
		return old, now, err
	}
	if now, err = side(ctx, st, f.After, max); err != nil || !f.Mixed {
		return old, now, err
	}
	data, clean, err := alone(ctx, st, f.chain, old.Data, max)
	if err != nil || !clean {
		return old, now, err
	}
	now.Data, now.ID = data, object.Hash(object.Blob, data)
	return old, now, nil
}

func side(ctx context.Context, st *gitstore.Store, s State, max int64) (diff.File, error) {
	f := diff.File{Path: s.Path, Mode: s.Mode, ID: s.ID}
	if !s.Exists() {
		return f, nil
	}
	var err error
	f.Data, err = st.ReadBlob(ctx, s.ID, max)
	return f, err
}

// alone plays the chain's runs on what its first found, without what others
// did in between; clean is false where that is not possible.
func alone(ctx context.Context, st *gitstore.Store, c *Chain, data []byte, max int64) ([]byte, bool, error) {
	for i, r := range c.Runs {
		if !r.After.Exists() || i > 0 && !r.Before.Exists() {
			return nil, false, nil
		}
		if r.After.Mode == object.Symlink || r.Before.Mode == object.Symlink {
			return nil, false, nil // a link's target is no text
		}
		base, err := side(ctx, st, r.Before, max)
		if err != nil {
			return nil, false, err
		}
		theirs, err := side(ctx, st, r.After, max)
		if err != nil {
			return nil, false, err
		}
		res, err := merge3.Merge(base.Data, data, theirs.Data, merge3.Options{})
		if err != nil || !res.Clean {
			return nil, false, nil
		}
		data = res.Merged
	}
	return data, true, nil
}
