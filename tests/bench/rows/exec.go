package rows

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

const (
	// execRecorded and execIgnored are the files that the command of exec/changes
	// changes.
	execRecorded, execIgnored = 500, 50_000
	// emptyMayTake is the target of the contract for a command that does nothing,
	// changesMayAdd for what a layer adds to that of exec/changes.
	emptyMayTake  = 40 * time.Millisecond
	changesMayAdd = time.Second
)

func execRows(s measure.Scale) []Row {
	ignored := min(execIgnored, s.Largest())
	list := []Row{}
	for _, files := range []int{s.Smallest(), s.Largest()} {
		list = append(list, Row{
			Name:  "exec/files=" + report.Count(files),
			Title: fmt.Sprintf("A command that changes nothing, with %s files", report.Count(files)),
			About: "`true` by `umbra exec`, with a layer and without (`--live`), from the start of the process to its end. For comparison the program alone, and in namespaces with an overlay that util-linux makes, which nothing records or applies.",
			Run: func(ctx context.Context, env *measure.Env, r *report.Result) error {
				return execEmpty(ctx, env, r, files)
			},
		})
	}
	return append(list, Row{
		Name:      "exec/changes",
		Title:     fmt.Sprintf("A command that changes %d recorded and %s ignored files", execRecorded, report.Count(ignored)),
		About:     "Each round the command writes all of these files, in place, with other content; then it does so after it has removed the directory of the ignored ones. Alone it runs in a directory that no server knows. For comparison an overlay that util-linux makes, which shows what the kernel's copies cost; in place also with its upper directory copied over the project by `cp -a`: nothing is recorded or merged, and nothing is durable.",
		EveryDisk: true,
		Run: func(ctx context.Context, env *measure.Env, r *report.Result) error {
			return execChanges(ctx, env, r, ignored)
		},
	})
}

// execProject makes a project of some files with ignored ones.
func execProject(ctx context.Context, env *measure.Env, name string, files, ignored int) (string, error) {
	dir, err := env.Dir(name)
	if err != nil {
		return "", err
	}
	env.Log("writing %d files, and %d ignored ones", files, ignored)
	if err := corpus.Write(ctx, dir, files); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(peers.Ignored+"/\n"), 0o644); err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(dir, peers.Ignored), 0o755); err != nil {
		return "", err
	}
	return dir, corpus.Write(ctx, filepath.Join(dir, peers.Ignored), ignored)
}

// overlayFor makes the peer, nil where the system has none.
func overlayFor(ctx context.Context, env *measure.Env, r *report.Result, folder string) (*peers.Overlay, error) {
	o, err := peers.NewOverlay(ctx, env, folder)
	if errors.Is(err, peers.ErrMissing) {
		r.Note("util-linux makes no overlay here.")
		return nil, nil
	}
	return o, err
}

func execEmpty(ctx context.Context, env *measure.Env, r *report.Result, files int) error {
	folder, err := execProject(ctx, env, "project", files, 0)
	if err != nil {
		return err
	}
	s, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1})
	if err != nil {
		return err
	}
	if _, err := s.Open(ctx, folder); err != nil { // takes the baseline
		return err
	}
	overlay, err := overlayFor(ctx, env, r, folder)
	if err != nil {
		return err
	}
	type subject struct {
		name string
		argv []string
	}
	subjects := []subject{
		{peers.NameExec, s.Exec(folder, []string{"--isolate=require"}, "true")},
		{peers.NameLive, s.Exec(folder, []string{"--live"}, "true")},
		{peers.NamePlain, []string{"true"}},
	}
	if overlay != nil {
		subjects = append(subjects, subject{peers.NameOverlay, overlay.Argv("true")})
	}
	took := make(map[string][]time.Duration)
	order := rand.New(rand.NewPCG(3, 3))
	env.Log("%d runs of each", stats.ForP99)
	for range stats.ForP99 {
		for _, i := range order.Perm(len(subjects)) {
			d, err := peers.Timed(ctx, "", nil, nil, subjects[i].argv...)
			if err != nil {
				return err
			}
			took[subjects[i].name] = append(took[subjects[i].name], d)
		}
	}
	r.Columns = []string{"", "runs", "p50 ms", "p99 ms", "longest ms", "p50 ÷ `umbra exec`"}
	own := stats.Of(took[peers.NameExec])
	for _, x := range subjects {
		sum := stats.Of(took[x.name])
		r.Line(x.name, fmt.Sprint(sum.N), report.Millis(sum.P50), report.Millis(sum.P99), report.Millis(sum.Max), report.Times(float64(sum.P50)/float64(own.P50)))
	}
	r.Checks = append(r.Checks, report.AtMost(fmt.Sprintf("an empty command with %s files ≤ 40 ms, p50", report.Count(files)), float64(own.P50)/1e6, float64(emptyMayTake)/1e6, "%.1f ms"))
	r.Data = took
	return nil
}

func execChanges(ctx context.Context, env *measure.Env, r *report.Result, ignored int) error {
	files := max(execRecorded, env.Scale.Smallest())
	folders := make([]string, 3) // alone, of umbra, of the overlay
	var err error
	for i, name := range []string{"alone", "project", "lower"} {
		if folders[i], err = execProject(ctx, env, name, files, ignored); err != nil {
			return err
		}
	}
	s, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1})
	if err != nil {
		return err
	}
	if _, err := s.Open(ctx, folders[1]); err != nil {
		return err
	}
	overlay, err := overlayFor(ctx, env, r, folders[2])
	if err != nil {
		return err
	}
	r.Columns = []string{"", "runs", "median s", "longest s", "median s more than alone"}
	data := make(map[string]map[string][]time.Duration)
	version := uint64(0)
	for _, way := range []struct {
		name  string
		renew bool
	}{{"in place", false}, {"directory made again", true}} {
		took := make(map[string][]time.Duration)
		added := make(map[string][]float64)
		for round := range env.Scale.BaselineRounds {
			env.Log("%s: round %d", way.name, round+1)
			version++
			command := append([]string{env.Self}, peers.EditArgs(execRecorded, ignored, version, way.renew)...)
			alone := time.Duration(0)
			for i, name := range []string{peers.NamePlain, peers.NameExec, peers.NameOverlay} {
				dir, argv := "", command
				switch name {
				case peers.NamePlain:
					dir = folders[i]
				case peers.NameExec:
					argv = s.Exec(folders[i], []string{"--isolate=require"}, command...)
				case peers.NameOverlay:
					if overlay == nil {
						continue
					}
					argv = overlay.Argv(command...)
				}
				if err := peers.Settle(ctx, folders[i]); err != nil {
					return err
				}
				start := time.Now()
				if _, err := peers.Timed(ctx, dir, nil, nil, argv...); err != nil {
					return err
				}
				note := func(name string) {
					d := time.Since(start)
					took[name] = append(took[name], d)
					added[name] = append(added[name], (d - alone).Seconds())
				}
				switch name {
				case peers.NamePlain:
					alone = time.Since(start)
					note(name)
				case peers.NameExec:
					note(name)
				case peers.NameOverlay:
					note(name)
					if !way.renew { // a copy of its upper directory removes nothing
						if err := overlay.Apply(ctx); err != nil {
							return err
						}
						note(peers.NameApplied)
					}
					if err := overlay.Clear(); err != nil {
						return err
					}
				}
			}
		}
		for _, name := range []string{peers.NamePlain, peers.NameExec, peers.NameOverlay, peers.NameApplied} {
			if sum := stats.Of(took[name]); sum.N > 0 {
				r.Line(name+", "+way.name, fmt.Sprint(sum.N), report.Seconds(sum.P50), report.Seconds(sum.Max), report.Number(stats.Median(added[name]), ""))
			}
		}
		r.Checks = append(r.Checks, report.AtMost(fmt.Sprintf("%s: a layer adds ≤ 1 s", way.name), stats.Median(added[peers.NameExec]), changesMayAdd.Seconds(), "%.2f s"))
		data[way.name] = took
	}
	r.Data = data
	return nil
}
