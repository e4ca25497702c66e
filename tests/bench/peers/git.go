package peers

import (
	"context"
	"fmt"
	"path/filepath"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// gitAddAll is what undo tools do: git add -A && git commit.
type gitAddAll struct {
	inWorktree
	repo          *gitRepo
	name, durable string
}

// The names of git's subjects.
const (
	NameGitAddAll    = "`git add -A && git commit`"
	NameGitAddAllAll = "the same, core.fsync=all"
	NameGitPlumbing  = "git plumbing, five processes"
	// git's default for core.fsync leaves out loose objects and refs.
	durableGit = "nothing: by default git syncs neither loose objects nor refs"
)

// GitAddAll makes the subject with git's own defaults.
func GitAddAll(p Params) (measure.Subject, error) {
	return newGitAddAll(p, NameGitAddAll, durableGit)
}

// GitAddAllSynced makes it with everything synced.
func GitAddAllSynced(p Params) (measure.Subject, error) {
	return newGitAddAll(p, NameGitAddAllAll, "objects, index and ref", "core.fsync=all")
}

func newGitAddAll(p Params, name, durable string, settings ...string) (measure.Subject, error) {
	repo, err := repository(p, "git")
	if err != nil {
		return nil, err
	}
	repo.settings = settings
	if err := checkedOut(p, repo, "git-work"); err != nil {
		return nil, err
	}
	return &gitAddAll{inWorktree{repo.work}, repo, name, durable}, nil
}

func (g *gitAddAll) Name() string    { return g.name }
func (g *gitAddAll) Durable() string { return g.durable }
func (g *gitAddAll) OneAtATime()     {}

func (g *gitAddAll) Change(ctx context.Context, _ int, c corpus.Change) error {
	if _, err := g.repo.run(ctx, nil, "add", "-A"); err != nil {
		return err
	}
	_, err := g.repo.run(ctx, nil, "commit", "-q", "-m", "edit "+c.Path)
	return err
}

// TraceGit has a subject of git add -A && git commit make changes, and adds what
// they synced to counts.
func TraceGit(ctx context.Context, env *measure.Env, subject measure.Subject, files, changes int, counts map[string]int) error {
	g, ok := subject.(*gitAddAll)
	if !ok {
		return fmt.Errorf("%s is not made of git's commands", subject.Name())
	}
	dir, err := env.Dir("strace")
	if err != nil {
		return err
	}
	edits := corpus.NewSequence(files, 0, 1, 2)
	for range changes {
		c := edits.Next()
		if err := g.Prepare(c); err != nil {
			return err
		}
		for _, args := range [][]string{{"add", "-A"}, {"commit", "-q", "-m", "edit " + c.Path}} {
			if err := traced(g.repo.command(ctx, args...), filepath.Join(dir, "calls"), counts); err != nil {
				return err
			}
		}
	}
	return nil
}

// gitPlumbing records a change without looking at the other files: five
// processes of git's.
type gitPlumbing struct{ repo *gitRepo }

// GitPlumbing makes the subject.
func GitPlumbing(p Params) (measure.Subject, error) {
	repo, err := repository(p, "plumbing")
	if err != nil {
		return nil, err
	}
	_, err = repo.run(p.Ctx, nil, "read-tree", "HEAD")
	return &gitPlumbing{repo}, err
}

func (g *gitPlumbing) Name() string    { return NameGitPlumbing }
func (g *gitPlumbing) Durable() string { return durableGit }
func (g *gitPlumbing) OneAtATime()     {}

func (g *gitPlumbing) Change(ctx context.Context, _ int, c corpus.Change) error {
	blob, err := g.repo.run(ctx, c.Data, "hash-object", "-w", "--stdin")
	if err != nil {
		return err
	}
	if _, err := g.repo.run(ctx, nil, "update-index", "--add", "--cacheinfo", "100644,"+blob+","+c.Path); err != nil {
		return err
	}
	tree, err := g.repo.run(ctx, nil, "write-tree")
	if err != nil {
		return err
	}
	commit, err := g.repo.run(ctx, []byte("edit "+c.Path+"\n"), "commit-tree", tree, "-p", "HEAD")
	if err != nil {
		return err
	}
	_, err = g.repo.run(ctx, nil, "update-ref", "HEAD", commit)
	return err
}
