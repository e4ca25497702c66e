package rows

import (
	"context"

	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
)

// toolMayCost is the target: a tool's call, in times of the same operation in the tasks
// dialect.
const toolMayCost = 1.3

func toolsetRows(s measure.Scale) []Row {
	commits := report.Count(s.LongestHistory())
	return []Row{{
		Name:  "toolsets/call,commits=" + commits,
		Title: "A tool's call in a task of " + commits + " commits",
		About: "`write_file` and `read_file` by `POST /toolsets/{id}/call`, next to the same operations in the tasks dialect on the same workspace.",
		Run:   toolCalls,
	}}
}

func toolCalls(ctx context.Context, env *measure.Env, r *report.Result) error {
	s, t, err := peers.NewWorkspace(peers.Params{Ctx: ctx, Env: env, Clients: 1, Files: readOf, History: env.Scale.LongestHistory()})
	if err != nil {
		return err
	}
	write, read, err := s.Tools(ctx, t)
	if err != nil {
		return err
	}
	var lanes []measure.Lane
	for _, subject := range []measure.Subject{s.Changes(t), write, s.Content(t), read} {
		lanes = append(lanes, measure.Lane{Subject: subject, Files: readOf})
	}
	list, err := env.Loop(ctx, lanes)
	if err != nil {
		return err
	}
	latencyLines(r, list, "")
	r.Checks = append(r.Checks,
		report.AtMost("`write_file` ≤ 1.3× of a PUT, p50", slower(list, peers.NameWriteTool, peers.NameServer), toolMayCost, "%.2f×"),
		report.AtMost("`read_file` ≤ 1.3× of a GET, p50", slower(list, peers.NameReadTool, peers.NameContent), toolMayCost, "%.2f×"))
	r.Data = list
	return nil
}
