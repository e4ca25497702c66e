package rows

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

const (
	cloneFiles  = 1000
	cloneRounds = 5
	// eachCommit is how many commits git checks out one by one: the figure is per
	// commit, and the replay is of all.
	eachCommit = 100
)

func cloneRows(s measure.Scale) []Row {
	commits := s.CloneCommits
	of := "commits=" + report.Count(commits)
	about := fmt.Sprintf("A task of %s commits on %s files.", report.Count(commits), report.Count(cloneFiles))
	return []Row{{
		Name:  "clone/" + of,
		Title: fmt.Sprintf("Clone of %s commits", report.Count(commits)),
		About: about + " The same git, and no checkout; from the server over HTTP, and from its repository on the same disk by file://, in turns.",
		Run:   clone,
	}, {
		Name:  "replay/" + of,
		Title: fmt.Sprintf("Replay of %s commits", report.Count(commits)),
		About: about + fmt.Sprintf(" The whole run of `umbra replay`, the fetch of the history included; every tree is compared with the recorded one. git checks out the last %d commits one by one.", eachCommit),
		Run:   replayed,
	}}
}

// history makes a server whose one task has the commits of the scale.
func history(ctx context.Context, env *measure.Env) (s *peers.Server, t peers.Task, repo string, err error) {
	if s, err = peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1}); err != nil {
		return nil, t, "", err
	}
	folder, err := env.Dir("project")
	if err != nil {
		return nil, t, "", err
	}
	if err := corpus.Write(ctx, folder, cloneFiles); err != nil {
		return nil, t, "", err
	}
	if t, err = s.Open(ctx, folder); err != nil {
		return nil, t, "", err
	}
	if err := s.Stop(); err != nil {
		return nil, t, "", err
	}
	env.Log("making %d commits", env.Scale.CloneCommits)
	if err := peers.AgeWorkspace(ctx, s.Data, t, cloneFiles, env.Scale.CloneCommits); err != nil {
		return nil, t, "", err
	}
	repo = filepath.Join(s.Data, "workspaces", t.Workspace, "repo.git")
	s, err = peers.StartServer(ctx, env, s.Data, 1)
	return s, t, repo, err
}

func clone(ctx context.Context, env *measure.Env, r *report.Result) error {
	s, t, repo, err := history(ctx, env)
	if err != nil {
		return err
	}
	kinds := []struct {
		name string
		args []string
	}{{"full", nil}, {"depth 1", []string{"--depth", "1"}}}
	urls := []struct{ name, url string }{
		{peers.NameCloneHTTP, s.URL + "/git/" + t.Workspace + ".git"}, {peers.NameCloneFile, "file://" + repo},
	}
	r.Columns = []string{"", "rounds", "median s", "longest s", "median ÷ file://"}
	data := make(map[string][]float64)
	order := rand.New(rand.NewPCG(2, 2))
	for _, kind := range kinds {
		took := make([][]time.Duration, len(urls))
		for range cloneRounds {
			for _, i := range order.Perm(len(urls)) {
				d, err := clonedOnce(ctx, env, urls[i].url, kind.args)
				if err != nil {
					return err
				}
				took[i] = append(took[i], d)
			}
		}
		seconds := make([][]float64, len(urls))
		for i, u := range urls {
			for _, d := range took[i] {
				seconds[i] = append(seconds[i], d.Seconds())
			}
			data[u.name+", "+kind.name] = seconds[i]
		}
		ratio := stats.Ratio(seconds[0], seconds[1])
		for i, u := range urls {
			sum := stats.Of(took[i])
			cell := ""
			if i == 0 {
				cell = report.Times(ratio)
			}
			r.Line(u.name+", "+kind.name, fmt.Sprint(sum.N), report.Seconds(sum.P50), report.Seconds(sum.Max), cell)
		}
		r.Checks = append(r.Checks, report.AtMost("clone over HTTP, "+kind.name+": ≤ 1.5× of `git clone file://`", ratio, 1.5, "%.2f×"))
	}
	r.Data = data
	return nil
}

// clonedOnce has a clone removed before the next begins.
func clonedOnce(ctx context.Context, env *measure.Env, url string, args []string) (d time.Duration, err error) {
	part, err := env.Part()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, part.Close()) }()
	return peers.Clone(ctx, part, url, args...)
}

func replayed(ctx context.Context, env *measure.Env, r *report.Result) error {
	s, t, repo, err := history(ctx, env)
	if err != nil {
		return err
	}
	if err := s.Sync(ctx, t.Workspace); err != nil {
		return err
	}
	var rates []float64
	var best []time.Duration
	steps := 0
	for range cloneRounds {
		d, n, err := peers.Replay(ctx, env, repo, t)
		if err != nil {
			return err
		}
		steps = n
		best = append(best, d)
		rates = append(rates, float64(n)/d.Seconds())
	}
	commits := min(eachCommit, steps)
	each, err := peers.CheckoutEach(ctx, env, repo, commits)
	if err != nil {
		return err
	}
	rate, gitRate := stats.Median(rates), float64(commits)/each.Seconds()
	sum := stats.Of(best)
	r.Columns = []string{"", "steps", "median s", "steps a second"}
	r.Line(peers.NameReplay, fmt.Sprint(steps), report.Seconds(sum.P50), report.Number(rate, ""))
	r.Line(peers.NameEachCommit, fmt.Sprint(commits), report.Seconds(each), report.Number(gitRate, ""))
	r.Checks = append(r.Checks,
		report.AtLeast("replay with proof: ≥ 2,000 steps a second", rate, 2000, "%.0f"),
		report.AtLeast("≥ 20× faster than checking out each commit with git", rate/gitRate, 20, "%.0f×"))
	r.Data = map[string]any{"replay": rates, "checkout": gitRate}
	return nil
}
