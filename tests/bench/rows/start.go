package rows

import (
	"context"
	"fmt"
	"time"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

const (
	starts     = 5
	startFiles = 20
	// mayStart is the target for the ready line.
	mayStart = time.Second
)

func startRows(s measure.Scale) []Row {
	return []Row{{
		Name:  "start",
		Title: fmt.Sprintf("Start with %s workspaces, %s commits", report.Count(s.StartWorkspaces), report.Count(s.StartCommits)),
		About: fmt.Sprintf("From the start of the program to its ready line, after a clean stop; its files are in memory. Workspaces of %d files are opened on demand: the first change after the start shows what that costs one of them.", startFiles),
		Run:   startup,
	}}
}

func startup(ctx context.Context, env *measure.Env, r *report.Result) error {
	count := env.Scale.StartWorkspaces
	s, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1})
	if err != nil {
		return err
	}
	env.Log("opening %d workspaces", count)
	tasks := make([]peers.Task, count)
	for i := range tasks {
		folder, err := env.Dir("workspace")
		if err != nil {
			return err
		}
		if err := corpus.Write(ctx, folder, startFiles); err != nil {
			return err
		}
		if tasks[i], err = s.Open(ctx, folder); err != nil {
			return err
		}
	}
	if err := s.Stop(); err != nil {
		return err
	}
	env.Log("making %d commits", env.Scale.StartCommits)
	for _, t := range tasks {
		if err := peers.AgeWorkspace(ctx, s.Data, t, startFiles, env.Scale.StartCommits/count); err != nil {
			return err
		}
	}
	var ready, first []time.Duration
	for n := range starts {
		begin := time.Now()
		again, err := peers.StartServer(ctx, env, s.Data, 1)
		if err != nil {
			return err
		}
		ready = append(ready, time.Since(begin))
		begin = time.Now()
		if err := again.Changes(tasks[n%count]).Change(ctx, 0, corpus.NewSequence(startFiles, 0, 1, uint64(6+n)).Next()); err != nil {
			return err
		}
		first = append(first, time.Since(begin))
		if err := again.Stop(); err != nil {
			return err
		}
	}
	r.Columns = []string{"", "starts", "median s", "longest s"}
	for _, l := range []struct {
		name string
		took []time.Duration
	}{{"ready", ready}, {"first change in one of the workspaces", first}} {
		sum := stats.Of(l.took)
		r.Line(l.name, fmt.Sprint(sum.N), report.Seconds(sum.P50), report.Seconds(sum.Max))
	}
	r.Checks = append(r.Checks, report.AtMost(fmt.Sprintf("%s workspaces, %s commits: ready in ≤ 1 s", report.Count(count), report.Count(env.Scale.StartCommits)), stats.Of(ready).P50.Seconds(), mayStart.Seconds(), "%.2f s"))
	r.Data = map[string][]time.Duration{"ready": ready, "first": first}
	return nil
}
