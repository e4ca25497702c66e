package rows

import (
	"context"
	"fmt"
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
	// callMayTake is the target of the contract for a begin and an end, at p50.
	callMayTake = 3 * time.Millisecond
	// stormWriters are agents whose editing tools write stormEach files a call, as fast
	// as they can.
	stormWriters, stormEach = 2, 20
)

func callRows(s measure.Scale) []Row {
	var list []Row
	for _, files := range []int{s.Smallest(), s.Largest()} {
		list = append(list, Row{
			Name:  "calls/files=" + report.Count(files),
			Title: fmt.Sprintf("Begin and end of a call with %s files", report.Count(files)),
			About: "`POST /calls`, one file written by a shell, `POST /calls/{id}/end`, over a connection that is kept: the watcher is on, and the end commits the file. For comparison, in turns: a file by `PUT /tasks/{id}/content`, which is a commit as well, and `GET /healthz`, which is what HTTP costs. " +
				fmt.Sprintf("Then the same while the tools of %d other agents write %d files a call without a pause.", stormWriters, stormEach),
			Run: func(ctx context.Context, env *measure.Env, r *report.Result) error {
				return callTimes(ctx, env, r, files)
			},
		})
	}
	return list
}

// The subjects of a row of calls.
const (
	callBegin   = "begin"
	callEnd     = "end"
	callPut     = "`PUT /tasks/{id}/content`"
	callHealthz = "`GET /healthz`"
)

func callTimes(ctx context.Context, env *measure.Env, r *report.Result, files int) error {
	s, t, err := peers.NewWorkspace(peers.Params{Ctx: ctx, Env: env, Clients: 1 + stormWriters, Files: files})
	if err != nil {
		return err
	}
	changes, own := s.Changes(t), corpus.NewSequence(files, 0, 2, 5)
	count := 3 * stats.ForP99
	work := func(phase string) (map[string][]time.Duration, error) {
		took := make(map[string][]time.Duration)
		timed := func(name string, do func() error) error {
			start := time.Now()
			err := do()
			took[name] = append(took[name], time.Since(start))
			return err
		}
		for n := range count {
			id := ""
			if err := timed(callBegin, func() (err error) {
				id, err = s.Begin(ctx, t.Folder, phase, nil)
				return err
			}); err != nil {
				return nil, err
			}
			if err := os.WriteFile(filepath.Join(t.Folder, "shell"), fmt.Appendln(nil, phase, n), 0o644); err != nil {
				return nil, err
			}
			for _, x := range []struct {
				name string
				do   func() error
			}{
				{callEnd, func() error { return s.End(ctx, id) }},
				{callPut, func() error { return changes.Change(ctx, 0, own.Next()) }},
				{callHealthz, func() error { return s.Healthz(ctx) }},
			} {
				if err := timed(x.name, x.do); err != nil {
					return nil, err
				}
			}
		}
		return took, nil
	}
	env.Log("%d calls", count)
	quiet, err := work("quiet")
	if err != nil {
		return err
	}
	env.Log("%d calls in a storm", count)
	stop := toolStorm(ctx, s, t.Folder)
	storm, err := work("storm")
	written, stopErr := stop()
	if err != nil {
		return err
	}
	if stopErr != nil {
		return stopErr
	}
	r.Columns = []string{"", "runs", "p50 ms", "p99 ms", "longest ms", "p50 ÷ that of the PUT"}
	for _, phase := range []struct {
		name string
		took map[string][]time.Duration
	}{{"", quiet}, {", in the storm", storm}} {
		put := stats.Of(phase.took[callPut])
		for _, name := range []string{callBegin, callEnd, callPut, callHealthz} {
			sum := stats.Of(phase.took[name])
			r.Line(name+phase.name, fmt.Sprint(sum.N), report.Millis(sum.P50), report.Millis(sum.P99), report.Millis(sum.Max), report.Times(float64(sum.P50)/float64(put.P50)))
		}
	}
	r.Note("The storm wrote %d files meanwhile.", written)
	for _, name := range []string{callBegin, callEnd} {
		r.Checks = append(r.Checks, report.AtMost(fmt.Sprintf("%s with %s files ≤ 3 ms, p50", name, report.Count(files)), float64(stats.Of(quiet[name]).P50)/1e6, float64(callMayTake)/1e6, "%.2f ms"))
	}
	r.Data = map[string]any{"quiet": quiet, "storm": storm, "written": written}
	return nil
}

// toolStorm has the editing tools of other agents write files of their own, until the
// function that it returns is called, which returns how many they wrote.
func toolStorm(ctx context.Context, s *peers.Server, folder string) (stop func() (files int, err error)) {
	done := make(chan struct{})
	var group errgroup.Group
	written := make([]int, stormWriters)
	for w := range stormWriters {
		group.Go(func() error {
			for n := 0; ; n++ {
				select {
				case <-done:
					return nil
				default:
				}
				paths := make([]string, stormEach)
				for i := range paths {
					paths[i] = fmt.Sprintf("storm%d/%d/%d", w, n%5, i)
				}
				id, err := s.Begin(ctx, folder, fmt.Sprint("tools", w), map[string]any{"only_paths": true, "paths": paths})
				if err != nil {
					return err
				}
				for _, p := range paths {
					name := filepath.Join(folder, p)
					if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
						return err
					}
					if err := os.WriteFile(name, fmt.Appendln(nil, n, p), 0o644); err != nil {
						return err
					}
				}
				written[w] += len(paths)
				if err := s.End(ctx, id); err != nil {
					return err
				}
			}
		})
	}
	return func() (int, error) {
		close(done)
		err := group.Wait()
		files := 0
		for _, n := range written {
			files += n
		}
		return files, err
	}
}
