package rows

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

const (
	// ignoredFiles are in the project besides its files, as node_modules are.
	ignoredFiles = 20_000
	// manyForks of one workspace exist at once; busyForks of them are written to.
	manyForks, busyForks = 1000, 64
	// writesEach is how often each of the busy ones is written to.
	writesEach = 10
	// manyFiles are so many that each copy of all takes long; copyRounds is in how many
	// rounds they are copied then.
	manyFiles, copyRounds = 50_000, 2
	// quickForkers of peers.Forkers copy nothing, and take quickForks turns in a round.
	quickForkers, quickForks = 3, 10
	// forkMayTake and layerMayTake are the targets of the contract, in seconds; the
	// memory of many forks may be so many times that of none.
	forkMayTake, layerMayTake = 0.002, 0.030
	forksMayHold              = 1.5
	// quietAfter is how long a server may take to unload what is not used any more.
	quietAfter = 4 * time.Minute
)

func forkRows(s measure.Scale) []Row {
	var list []Row
	for _, files := range []int{s.Smallest(), s.Largest()} {
		list = append(list, Row{
			Name:      "forks/files=" + report.Count(files),
			Title:     fmt.Sprintf("A fork of %s files and %s ignored ones", report.Count(files), report.Count(ignoredFiles)),
			About:     "A clean git checkout, in memory, that is a workspace. Each peer makes a fork by its own means, in turns, and takes it away again, which is not measured. Reflinks need a file system that has them, such as xfs.",
			EveryDisk: true,
			Run: func(ctx context.Context, env *measure.Env, r *report.Result) error {
				return forks(ctx, env, r, files)
			},
		})
	}
	return append(list, Row{
		Name:  "forks/many",
		Title: fmt.Sprintf("%s forks of one workspace, %d written to at once", report.Count(manyForks), busyForks),
		About: fmt.Sprintf("Virtual forks of %s files, made by one request; then %d clients make %d changes each, in a fork each. Memory is that of the server when it is quiet; quiet again it is once it has unloaded what is not used.", report.Count(s.Smallest()), busyForks, writesEach),
		Run:   manyForksRow,
	})
}

// forkProject makes a checkout with ignored files, and opens it.
func forkProject(ctx context.Context, env *measure.Env, files int) (*peers.Server, peers.Task, error) {
	parent, err := env.Dir("forked")
	if err != nil {
		return nil, peers.Task{}, err
	}
	folder := filepath.Join(parent, "project")
	env.Log("writing %d files, and %d ignored ones", files, ignoredFiles)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return nil, peers.Task{}, err
	}
	if err := corpus.Write(ctx, folder, files); err != nil {
		return nil, peers.Task{}, err
	}
	if err := os.WriteFile(filepath.Join(folder, ".gitignore"), []byte("node_modules/\n"), 0o644); err != nil {
		return nil, peers.Task{}, err
	}
	if err := peers.Checkout(ctx, folder); err != nil {
		return nil, peers.Task{}, err
	}
	if err := corpus.Write(ctx, filepath.Join(folder, "node_modules"), ignoredFiles); err != nil {
		return nil, peers.Task{}, err
	}
	s, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: busyForks})
	if err != nil {
		return nil, peers.Task{}, err
	}
	t, err := s.Open(ctx, folder)
	return s, t, err
}

func forks(ctx context.Context, env *measure.Env, r *report.Result, files int) error {
	s, t, err := forkProject(ctx, env, files)
	if err != nil {
		return err
	}
	forkers := peers.Forkers(s, t)
	if !peers.Reflinks(ctx, filepath.Dir(t.Folder)) {
		forkers = forkers[:len(forkers)-1]
		r.Note("This file system has no reflinks.")
	}
	took := make(map[string][]time.Duration)
	seconds := make(map[string][]float64)
	order := rand.New(rand.NewPCG(2, 2))
	for round := range env.Scale.BaselineRounds {
		for _, i := range order.Perm(len(forkers)) {
			f, times := forkers[i], 1
			if i < quickForkers {
				times = quickForks
			} else if files >= manyFiles && round >= copyRounds {
				continue
			}
			env.Log("round %d: %s", round+1, f.Name)
			for n := range times {
				d, err := f.Fork(ctx, round*100+n)
				if err != nil {
					return fmt.Errorf("%s: %w", f.Name, err)
				}
				took[f.Name] = append(took[f.Name], d)
				seconds[f.Name] = append(seconds[f.Name], d.Seconds())
			}
		}
	}
	r.Columns = []string{"", "forks", "median ms", "longest ms", "median ÷ umbra's layer", "what it has"}
	for _, f := range forkers {
		sum := stats.Of(took[f.Name])
		r.Line(f.Name, fmt.Sprint(sum.N), inMillis(sum.P50), inMillis(sum.Max), report.Times(stats.Ratio(seconds[f.Name], seconds[peers.NameForkLayer])), f.Has)
	}
	r.Data = seconds
	r.Checks = append(r.Checks,
		report.AtMost("a virtual fork takes ≤ 2 ms", stats.Of(took[peers.NameForkVirtual]).P50.Seconds()*1000, forkMayTake*1000, "%.2f ms"),
		report.AtMost("a layer takes ≤ 30 ms, with a command in it", stats.Of(took[peers.NameForkLayerIn]).P50.Seconds()*1000, layerMayTake*1000, "%.1f ms"))
	return nil
}

func manyForksRow(ctx context.Context, env *measure.Env, r *report.Result) error {
	s, t, err := forkProject(ctx, env, env.Scale.Smallest())
	if err != nil {
		return err
	}
	before, err := settled(ctx, env, s)
	if err != nil {
		return err
	}
	start := time.Now()
	ids, err := s.Forks(ctx, t.Workspace, map[string]any{"kind": "virtual", "count": manyForks})
	if err != nil {
		return err
	}
	made := time.Since(start)
	idle, err := settled(ctx, env, s)
	if err != nil {
		return err
	}
	start = time.Now()
	group, within := errgroup.WithContext(ctx)
	for i, id := range ids[:busyForks] {
		group.Go(func() error {
			in, err := s.Open(within, id)
			if err != nil {
				return err
			}
			changes := corpus.NewSequence(env.Scale.Smallest(), 0, 1, uint64(i+1))
			for range writesEach {
				if err := s.Changes(in).Change(within, 0, changes.Next()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	wrote := time.Since(start)
	busy, err := settled(ctx, env, s)
	if err != nil {
		return err
	}
	quiet, after, err := quietAgain(ctx, s, int64(forksMayHold*float64(before.Anonymous)))
	if err != nil {
		return err
	}
	if err := s.Stop(); err != nil {
		return err
	}
	again, err := peers.StartServer(ctx, env, s.Data, 1)
	if err != nil {
		return err
	}
	away, err := settled(ctx, env, again)
	if err != nil {
		return err
	}
	r.Columns = []string{"", "seconds", "resident MB", "of it anonymous MB"}
	line := func(name, took string, m peers.Memory) {
		r.Line(name, took, report.Number(float64(m.Resident)/1e6, ""), report.Number(float64(m.Anonymous)/1e6, ""))
	}
	line("no fork yet", "", before)
	line(fmt.Sprintf("%d forks made", manyForks), report.Seconds(made), idle)
	line(fmt.Sprintf("%d of them written to, %d changes each", busyForks, writesEach), report.Seconds(wrote), busy)
	line("quiet again", report.Seconds(after), quiet)
	line("after a restart", "", away)
	r.Note("A fork took %.2f ms, a change in one of %d at once %.2f ms of the whole.", made.Seconds()*1000/manyForks, busyForks, wrote.Seconds()*1000/(busyForks*writesEach))
	r.Checks = append(r.Checks, report.AtMost(fmt.Sprintf("%d quiet forks take ≤ %.1f× the memory of none", manyForks, forksMayHold), float64(idle.Anonymous)/float64(before.Anonymous), forksMayHold, "%.2f×"),
		report.AtMost(fmt.Sprintf("quiet again they take ≤ %.1f×", forksMayHold), float64(quiet.Anonymous)/float64(before.Anonymous), forksMayHold, "%.2f×"))
	r.Data = map[string]any{"made": made.Seconds(), "wrote": wrote.Seconds(), "before": before, "idle": idle, "busy": busy, "quiet": quiet, "away": away}
	return nil
}

// quietAgain waits until an unused server has at most so much anonymous memory, or
// for quietAfter, and returns what it has then and how long that took.
func quietAgain(ctx context.Context, s *peers.Server, anonymous int64) (peers.Memory, time.Duration, error) {
	for start := time.Now(); ; {
		if err := measure.Pause(ctx, time.Second); err != nil {
			return peers.Memory{}, 0, err
		}
		now, err := s.Memory()
		if took := time.Since(start); err != nil || now.Anonymous <= anonymous || took > quietAfter {
			return now, took, err
		}
	}
}

func inMillis(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()*1000) }
