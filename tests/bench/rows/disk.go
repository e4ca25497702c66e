package rows

import (
	"context"
	"fmt"
	"math"
	"time"

	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

func diskRows(s measure.Scale) []Row {
	return []Row{
		{
			Name: "storm", Title: "Writes in a storm", EveryDisk: true, Run: storm,
			About: "A client writes over HTTP while another process makes and replaces small files in the same workspace as fast as it can, all of which is recorded too. For comparison, in turns in the same storm: " +
				"the least that such a write asks of the disk, without HTTP. Calm: the same without the storm.",
		},
		{
			Name: "unchanged/files=" + report.Count(s.Largest()), Title: fmt.Sprintf("A sync of %s files with nothing changed", report.Count(s.Largest())), Run: unchanged,
			About: "Watched: only reported paths are compared. Scanned whole: the cost of a start, a lost event or a file system without events. For comparison: all directories listed and an lstat for each file, on all processors.",
		},
		{
			Name: "idle", Title: fmt.Sprintf("Processor time of %d workspaces that nothing happens in", s.Idle), Run: idleTime,
			About: fmt.Sprintf("Each has %d files and an executing task, and is watched. User and system time of the server, by /proc/PID/stat.", idleFiles),
		},
	}
}

func storm(ctx context.Context, env *measure.Env, r *report.Result) error {
	p := peers.Params{Ctx: ctx, Env: env, Files: env.Scale.Smallest(), Clients: 1, Templates: peers.NewTemplates(env)}
	s, t, err := peers.NewWorkspace(p)
	if err != nil {
		return err
	}
	bare, err := peers.BareWrite(p)
	if err != nil {
		return err
	}
	lanes := lanesOf([]measure.Subject{s.Changes(t), bare})
	for i := range lanes {
		lanes[i].Files = p.Files
	}
	calm, err := env.Loop(ctx, lanes)
	if err != nil {
		return err
	}
	stop := peers.Storm(ctx, t.Folder)
	began := time.Now()
	wild, err := env.Loop(ctx, lanes)
	made, failed := stop()
	if err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	perSecond := float64(made) / time.Since(began).Seconds()
	r.Columns = []string{"", "calm p50 ms", "p99 ms", "storm p50 ms", "p99 ms", "longest ms", "storm's p50 ÷ calm's"}
	for i, m := range wild {
		r.Line(m.Name, report.Millis(calm[i].P50), report.Millis(calm[i].P99), report.Millis(m.P50), report.Millis(m.P99), report.Millis(m.Max),
			report.Times(divided(m.P50, calm[i].P50)))
	}
	r.Note("The storm made %.0f files a second.", perSecond)
	r.Data = map[string]any{"calm": calm, "storm": wild, "files a second": perSecond}
	r.Checks = append(r.Checks, report.AtMost("p50 in the storm ≤ 2× bare exchange + fdatasync in the same storm", wild[0].P50Ratio(wild[1]), 2, "%.1f×"))
	return nil
}

func unchanged(ctx context.Context, env *measure.Env, r *report.Result) error {
	folder, err := env.Dir("project")
	if err != nil {
		return err
	}
	files := env.Scale.Largest()
	env.Log("writing %d files", files)
	if err := corpus.Write(ctx, folder, files); err != nil {
		return err
	}
	p := peers.Params{Ctx: ctx, Env: env, Clients: 1}
	s, err := peers.NewServer(p)
	if err != nil {
		return err
	}
	t, err := s.Open(ctx, folder)
	if err != nil {
		return err
	}
	m, err := peers.NewManager(p)
	if err != nil {
		return err
	}
	w, _, err := m.Open(ctx, folder, workspaces.OpenOptions{Force: true})
	if err != nil {
		return err
	}
	defer w.Release()
	const bare = 2
	what := []struct {
		name string
		do   func() error
	}{
		{"umbra, HTTP, watched", func() error { return s.Sync(ctx, t.Workspace) }},
		{"umbra, in process, scanned whole", func() error {
			_, err := w.Sync(ctx, workspace.SyncOptions{})
			return err
		}},
		{"bare parallel lstat walk", func() error { return peers.WalkAll(ctx, folder) }},
	}
	took := make([][]time.Duration, len(what))
	seconds := make([][]float64, len(what))
	for round := range env.Scale.Rounds + 1 {
		for i := range what {
			start := time.Now()
			if err := what[i].do(); err != nil {
				return fmt.Errorf("%s: %w", what[i].name, err)
			}
			if d := time.Since(start); round > 0 { // the first one reads what changed while it was taken
				took[i], seconds[i] = append(took[i], d), append(seconds[i], d.Seconds())
			}
		}
	}
	r.Columns = []string{"", "rounds", "p50 ms", "longest ms", "÷ bare walk"}
	for i := range what {
		sum := stats.Of(took[i])
		ratio := math.NaN()
		if i != bare {
			ratio = stats.Ratio(seconds[i], seconds[bare])
		}
		r.Line(what[i].name, fmt.Sprint(sum.N), report.Millis(sum.P50), report.Millis(sum.Max), report.Times(ratio))
	}
	r.Data = seconds
	for i := range bare {
		r.Checks = append(r.Checks, report.AtMost(what[i].name+": ≤ 2× a bare parallel lstat walk", stats.Ratio(seconds[i], seconds[bare]), 2, "%.2f×"))
	}
	return nil
}

// idleMayTake is what counts as no processor time, in percent of one processor.
const idleMayTake = 0.5

func idleTime(ctx context.Context, env *measure.Env, r *report.Result) error {
	s, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1})
	if err != nil {
		return err
	}
	r.Columns = []string{"", "seconds", "processor ms a minute", "of one processor"}
	share := func(name string) (float64, error) {
		if err := measure.Pause(ctx, env.Scale.Settle); err != nil {
			return 0, err
		}
		before, err := s.CPU()
		if err != nil {
			return 0, err
		}
		began := time.Now()
		if err := measure.Pause(ctx, 4*env.Scale.Settle); err != nil {
			return 0, err
		}
		after, err := s.CPU()
		over := time.Since(began)
		part := float64(after-before) / float64(over)
		r.Line(name, report.Seconds(over), report.Number(part*60_000, ""), fmt.Sprintf("%.2f%%", 100*part))
		return 100 * part, err
	}
	if _, err := share("no workspace"); err != nil {
		return err
	}
	if err := openIdle(ctx, env, s); err != nil {
		return err
	}
	got, err := share(fmt.Sprintf("%d workspaces", env.Scale.Idle))
	r.Checks = append(r.Checks, report.AtMost(fmt.Sprintf("%d idle workspaces: ~0 (≤ 0.5%% of a processor)", env.Scale.Idle), got, idleMayTake, "%.2f%%"))
	return err
}
