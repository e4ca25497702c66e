package peers

import (
	"context"
	"crypto/sha1"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"golang.org/x/sync/errgroup"

	"umbra/internal/workspaces"
	"umbra/tests/bench/measure"
)

// Taker takes the baseline of a whole directory into something new, and returns
// how long that took. What it needs is made before and removed after, unmeasured.
type Taker struct {
	Name, Durable string
	Take          func(ctx context.Context, env *measure.Env, folder string) (time.Duration, error)
}

// The names of the takers that targets compare.
const (
	NameTakeServer = "umbra, `POST /tasks`"
	NameTakeGit    = "`git add -A` into an empty repository"
	NameTakeRead   = "read + SHA-1, two threads"
)

// Takers lists all; slow says whether the slowest take part.
func Takers(slow bool) []Taker {
	list := []Taker{
		{NameTakeServer, "the commit with all its objects", takeServer},
		{"umbra's write service, in process", "the commit with all its objects", takeManager},
		{NameTakeGit, "nothing: loose objects are not synced", takeGit},
		{NameTakeRead, "nothing is written", takeRead},
	}
	if slow {
		list = append(list, Taker{"go-git Add all + Commit", "nothing: go-git never syncs", takeGoGit})
	}
	return list
}

func takeServer(ctx context.Context, env *measure.Env, folder string) (time.Duration, error) {
	s, err := NewServer(Params{Ctx: ctx, Env: env})
	if err != nil {
		return 0, err
	}
	start := time.Now()
	_, err = s.Open(ctx, folder)
	return time.Since(start), err
}

func takeManager(ctx context.Context, env *measure.Env, folder string) (time.Duration, error) {
	m, err := NewManager(Params{Ctx: ctx, Env: env})
	if err != nil {
		return 0, err
	}
	start := time.Now()
	w, _, err := m.Open(ctx, folder, workspaces.OpenOptions{Force: true})
	if err != nil {
		return 0, err
	}
	defer w.Release()
	return time.Since(start), nil
}

// emptyRepo makes one outside of the folder, which stays as it is.
func emptyRepo(ctx context.Context, env *measure.Env, folder string) (*gitRepo, error) {
	parent, err := env.Dir("repo")
	if err != nil {
		return nil, err
	}
	g, err := initialized(ctx, filepath.Join(parent, "repo.git"))
	if err != nil {
		return nil, err
	}
	g.work = folder
	_, err = g.run(ctx, nil, "config", "core.bare", "false")
	return g, err
}

func takeGit(ctx context.Context, env *measure.Env, folder string) (time.Duration, error) {
	g, err := emptyRepo(ctx, env, folder)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	_, err = g.run(ctx, nil, "add", "-A")
	return time.Since(start), err
}

func takeGoGit(ctx context.Context, env *measure.Env, folder string) (time.Duration, error) {
	g, err := emptyRepo(ctx, env, folder)
	if err != nil {
		return 0, err
	}
	repo, err := git.Open(filesystem.NewStorage(osfs.New(g.dir), cache.NewObjectLRUDefault()), osfs.New(folder))
	if err != nil {
		return 0, err
	}
	tree, err := repo.Worktree()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := tree.AddWithOptions(&git.AddOptions{All: true}); err != nil {
		return 0, err
	}
	who := &object.Signature{Name: "bench", Email: "bench@umbra.invalid", When: start}
	_, err = tree.Commit("baseline", &git.CommitOptions{Author: who, Committer: who})
	return time.Since(start), err
}

// takeRead is the least that any program does to learn what exists.
func takeRead(ctx context.Context, _ *measure.Env, folder string) (time.Duration, error) {
	start := time.Now()
	names := make(chan string, 1024)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(names)
		return filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			select {
			case names <- name:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	for range 2 {
		group.Go(func() error {
			h := sha1.New()
			for name := range names {
				data, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				h.Reset()
				fmt.Fprintf(h, "blob %d\x00", len(data))
				h.Write(data)
				h.Sum(nil)
			}
			return nil
		})
	}
	err := group.Wait()
	return time.Since(start), err
}
