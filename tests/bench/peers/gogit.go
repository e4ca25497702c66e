package peers

import (
	"context"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// NameGoGit is the subject's name.
const NameGoGit = "go-git Worktree Add(path) + Commit"

type goGit struct {
	inWorktree
	repo *gitRepo
	tree *git.Worktree
}

// GoGit makes the subject.
func GoGit(p Params) (measure.Subject, error) {
	repo, err := repository(p, "gogit")
	if err != nil {
		return nil, err
	}
	if err := checkedOut(p, repo, "gogit-work"); err != nil {
		return nil, err
	}
	r, err := git.Open(filesystem.NewStorage(osfs.New(repo.dir), cache.NewObjectLRUDefault()), osfs.New(repo.work))
	if err != nil {
		return nil, err
	}
	tree, err := r.Worktree()
	return &goGit{inWorktree{repo.work}, repo, tree}, err
}

func (g *goGit) Name() string    { return NameGoGit }
func (g *goGit) Durable() string { return "nothing: go-git never syncs" }
func (g *goGit) OneAtATime()     {}

func (g *goGit) Change(_ context.Context, _ int, c corpus.Change) error {
	if _, err := g.tree.Add(c.Path); err != nil {
		return err
	}
	who := &object.Signature{Name: "bench", Email: "bench@umbra.invalid", When: time.Now()}
	_, err := g.tree.Commit("edit "+c.Path, &git.CommitOptions{Author: who, Committer: who})
	return err
}
