package history

import (
	"context"
	"errors"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// minAbbrev is how many digits of a commit's id are asked for at least, as git
// does (gitrevisions(7)).
const minAbbrev = 4

// Find gives the commit of a workspace's history that a person names: "head",
// or its id, which may be cut short as long as it is one commit's alone.
// NotFound "commit_not_found"; Gone "history_dropped", "history_rewritten"; Invalid "invalid_commit",
// "commit_ambiguous".
func Find(ctx context.Context, st *gitstore.Store, name string) (*gitstore.Commit, error) {
	if name == "head" {
		tip := st.Tip()
		if tip.Commit.IsZero() {
			return nil, errs.New(errs.NotFound, "commit_not_found", "No commit exists yet.")
		}
		return st.ReadCommit(ctx, tip.Commit)
	}
	name = strings.ToLower(name)
	if id, err := object.ParseID(name); err == nil {
		return st.Own(ctx, id)
	}
	if len(name) < minAbbrev || len(name) > 40 || strings.Trim(name, "0123456789abcdef") != "" {
		return nil, errs.New(errs.Invalid, "invalid_commit", "A commit is named by \"head\" or at least %d hexadecimal digits of its id.", minAbbrev)
	}
	var found object.ID
	several := errs.New(errs.Invalid, "commit_ambiguous", "More than one commit's id begins so.")
	err := st.Records(ctx, 1, st.Tip().Seq, func(r gitstore.Record) error {
		if strings.HasPrefix(r.Commit.String(), name) {
			if !found.IsZero() {
				return several
			}
			found = r.Commit
		}
		return nil
	})
	switch {
	case errors.Is(err, several):
		return nil, several
	case err != nil:
		return nil, err
	case found.IsZero() && len(st.DroppedWith(name, 1)) > 0:
		return nil, gitstore.ErrDropped()
	case found.IsZero():
		if old, _, moved, err := st.Moved(name); err != nil || moved {
			if err != nil {
				return nil, err
			}
			return st.ReadCommit(ctx, old) // errs.Gone, with what it is now
		}
		return nil, errs.New(errs.NotFound, "commit_not_found", "The workspace's history has no such commit.")
	}
	return st.ReadCommit(ctx, found)
}

// PairsOf gives the files that changelog entries are about, before and after
// each; empty folders are left out.
func PairsOf(entries []workspace.ChangeEntry) []Pair {
	var out []Pair
	for i := range entries {
		e := &entries[i]
		if strings.HasSuffix(e.Path, "/") {
			continue
		}
		to := e.Path
		if e.NewPath != "" {
			to = e.NewPath
		}
		out = append(out, Pair{Old: State{Path: e.Path, Mode: e.BeforeMode, ID: e.Before}, New: State{Path: to, Mode: e.Mode, ID: e.After}})
	}
	return out
}
