package rows

import (
	"context"
	"fmt"
	"time"

	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
)

const (
	agentPace = 200 * time.Millisecond
	slowPace  = 5 * time.Second
	// agentBlock is how many changes of one subject follow each other at the
	// pace of an agent before the next has its turn.
	agentBlock = 10
)

func pacedRows(measure.Scale) []Row {
	const about = "One client makes a change, and another after a pause, as an agent does. Loop: the same subjects in the same run without a pause."
	return []Row{
		{Name: "paced/200ms", Title: "Paced: a change each 200 ms", About: about, EveryDisk: true,
			Run: func(ctx context.Context, env *measure.Env, r *report.Result) error {
				return paced(ctx, env, r, agentPace, env.Scale.Calm, agentBlock)
			}},
		{Name: "paced/5s", Title: "Paced: a change each 5 s", About: about, EveryDisk: true,
			Run: func(ctx context.Context, env *measure.Env, r *report.Result) error {
				return paced(ctx, env, r, slowPace, env.Scale.Slow, 1)
			}},
	}
}

func paced(ctx context.Context, env *measure.Env, r *report.Result, period time.Duration, count, block int) error {
	g := peers.Group{Params: peers.Params{Ctx: ctx, Env: env, Files: env.Scale.Middle(), Clients: 1, Templates: peers.NewTemplates(env)}}
	if err := g.Add(peers.Umbra, peers.Apply, peers.SafeGin, peers.Append); err != nil {
		return err
	}
	env.Log("%d changes of %d subjects, %v apart", count, len(g.Lanes), period)
	loop, err := env.Loop(ctx, g.Lanes)
	if err != nil {
		return err
	}
	calm, err := env.Paced(ctx, g.Lanes, period, count, block)
	if err != nil {
		return err
	}
	r.Columns = []string{"", "changes", "p50 ms", "p99 ms", "longest ms", "loop's p50 ms", "loop's p99 ms", "p50 ÷ loop's", "durable when it answers"}
	for i, m := range calm {
		r.Line(m.Name, fmt.Sprint(m.N), report.Millis(m.P50), report.Millis(m.P99), report.Millis(m.Max),
			report.Millis(loop[i].P50), report.Millis(loop[i].P99), report.Times(divided(m.P50, loop[i].P50)), m.Durable)
	}
	r.Data = map[string]any{"paced": calm, "loop": loop}
	ours, ourLoop := calm[0], loop[0]
	worst := ours.P99
	if worst == 0 {
		worst = ours.Max
		r.Note("With fewer than 100 changes there is no 99th percentile: the targets use the longest instead.")
	}
	// "As in the loop" cannot be to the last percent: a machine that pauses has
	// cold caches, which the peers show too.
	r.Checks = append(r.Checks,
		report.AtMost("p50 as in the loop (≤ 1.25×)", divided(ours.P50, ourLoop.P50), asInLoop, "%.2f×"),
		report.AtMost("p99 ≤ 3× its own p50", divided(worst, ours.P50), 3, "%.2f×"),
		report.AtMost("p99 ≤ 3× the loop's", divided(worst, ourLoop.P99), 3, "%.2f×"),
		report.AtMost("the safe server's p50, paced the same (≤ 1×)", slower(calm, peers.NameServer, peers.NameSafeGin), 1, "%.2f×"))
	return nil
}

// asInLoop is what a pause may cost the median.
const asInLoop = 1.25
