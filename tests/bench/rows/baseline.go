package rows

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

func baselineRows(s measure.Scale) []Row {
	var list []Row
	for _, files := range s.Files {
		list = append(list, Row{
			Name:  "baseline/files=" + report.Count(files),
			Title: fmt.Sprintf("Baseline of %s files", report.Count(files)),
			About: "A directory that was never recorded is taken whole (1.8 KB a file on average; a plain directory, no git checkout; its files were just written or read, so they are in memory). " +
				"umbra compresses as zlib does at level 1, which is git's for loose objects by default.",
			EveryDisk: files == s.Largest(),
			Run: func(ctx context.Context, env *measure.Env, r *report.Result) error {
				return baseline(ctx, env, r, files, false)
			},
		})
	}
	return append(list, Row{
		Name:  "baseline/checkout,files=" + report.Count(s.Largest()),
		Title: fmt.Sprintf("Baseline of a clean git checkout of %s files", report.Count(s.Largest())),
		About: "The same files, committed in a repository of the directory's own, all objects in one pack, as a clone leaves it. umbra trusts the index and copies the objects, each held against its CRC and one of 64 hashed; git starts from an empty repository, as before.",
		Run: func(ctx context.Context, env *measure.Env, r *report.Result) error {
			return baseline(ctx, env, r, s.Largest(), true)
		},
	})
}

// baseline measures takes of a plain folder, or of a clean checkout.
func baseline(ctx context.Context, env *measure.Env, r *report.Result, files int, checkout bool) error {
	folder, err := env.Dir("project")
	if err != nil {
		return err
	}
	env.Log("writing %d files", files)
	if err := corpus.Write(ctx, folder, files); err != nil {
		return err
	}
	if checkout {
		env.Log("committing them")
		if err := peers.Checkout(ctx, folder); err != nil {
			return err
		}
	}
	takers := peers.Takers(files <= env.Scale.SlowBaseline && !checkout)
	took := make([][]time.Duration, len(takers))
	order := rand.New(rand.NewPCG(1, 1))
	for round := range env.Scale.BaselineRounds {
		for _, i := range order.Perm(len(takers)) {
			env.Log("round %d: %s", round+1, takers[i].Name)
			d, err := takenOnce(ctx, env, takers[i], folder)
			if err != nil {
				return fmt.Errorf("%s: %w", takers[i].Name, err)
			}
			took[i] = append(took[i], d)
		}
	}
	seconds := make(map[string][]float64)
	for i, t := range takers {
		for _, d := range took[i] {
			seconds[t.Name] = append(seconds[t.Name], d.Seconds())
		}
	}
	r.Columns = []string{"", "rounds", "median s", "longest s", "median ÷ umbra's", "durable when it answers"}
	for i, t := range takers {
		s := stats.Of(took[i])
		ratio := math.NaN()
		if t.Name != peers.NameTakeServer {
			ratio = stats.Ratio(seconds[t.Name], seconds[peers.NameTakeServer])
		}
		r.Line(t.Name, fmt.Sprint(s.N), report.Seconds(s.P50), report.Seconds(s.Max),
			report.Times(ratio), t.Durable)
	}
	r.Data = seconds
	// The targets are set for the largest project; the others are reported to show
	// how it grows.
	if checkout {
		r.Checks = append(r.Checks,
			report.AtLeast("≥ 10× faster than `git add -A`", stats.Ratio(seconds[peers.NameTakeGit], seconds[peers.NameTakeServer]), 10, "%.1f×"))
	} else if files == env.Scale.Largest() {
		r.Checks = append(r.Checks,
			report.AtLeast("≥ 5× faster than `git add -A`", stats.Ratio(seconds[peers.NameTakeGit], seconds[peers.NameTakeServer]), 5, "%.1f×"),
			report.AtMost("≤ 6× read + SHA-1", stats.Ratio(seconds[peers.NameTakeServer], seconds[peers.NameTakeRead]), 6, "%.1f×"))
	}
	return nil
}

// takenOnce has what one take leaves removed before the next begins.
func takenOnce(ctx context.Context, env *measure.Env, t peers.Taker, folder string) (d time.Duration, err error) {
	part, err := env.Part()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, part.Close()) }()
	return t.Take(ctx, part, folder)
}
