package rows

import (
	"context"
	"fmt"
	"time"

	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
)

// Before lists the rows that compare the server's program with an earlier one.
func Before(s measure.Scale, program string) []Row {
	var list []Row
	add := func(name, title, about string, clients int, subject func(peers.Params) (measure.Subject, error)) {
		list = append(list, Row{
			Name:      "before/" + name,
			Title:     "Two programs in turns, " + title,
			About:     about + " By an earlier program, this one, and this one once more: how far the two servers of one program differ is noise.",
			EveryDisk: true,
			Run: func(ctx context.Context, env *measure.Env, r *report.Result) error {
				return before(ctx, env, r, program, clients, subject)
			},
		})
	}
	for _, clients := range s.Clients {
		add(fmt.Sprintf("clients=%d", clients), fmt.Sprintf("clients: %d", clients),
			"The same edits. CPU is the server's processor time, user and system.", clients, peers.Umbra)
	}
	add("revert", fmt.Sprintf("reverts of %d files", revertFiles), fmt.Sprintf("The revert of a subtask that changed %d files.", revertFiles), 1,
		func(p peers.Params) (measure.Subject, error) { return peers.Reverts(p, revertFiles) })
	add("start", fmt.Sprintf("starts with %d workspaces", beforeWorkspaces), fmt.Sprintf("From the start of the program, after a clean stop, to the answer of the first change in one of %d workspaces.", beforeWorkspaces), 1,
		func(p peers.Params) (measure.Subject, error) { return peers.Starts(p, beforeWorkspaces) })
	return list
}

// beforeWorkspaces is how many workspaces a start finds.
const beforeWorkspaces = 20

func before(ctx context.Context, env *measure.Env, r *report.Result, program string, clients int, subject func(peers.Params) (measure.Subject, error)) error {
	programs := []struct{ label, path string }{{"before", program}, {"now", env.Umbra}, {"now" + twin, env.Umbra}}
	lanes := make([]measure.Lane, len(programs))
	servers := make([]*peers.Process, len(programs))
	used := make([]time.Duration, len(programs))
	for i, p := range programs {
		part, err := env.Part()
		if err != nil {
			return err
		}
		env.Defer(p.label, part.Close)
		part.Umbra = p.path
		subject, err := subject(peers.Params{Ctx: ctx, Env: part, Files: env.Scale.Middle(), Clients: clients})
		if err != nil {
			return err
		}
		lanes[i] = measure.Lane{Subject: subject, Files: env.Scale.Middle(), Clients: clients, Label: p.label}
		if s, ok := subject.(*peers.HTTP); ok {
			servers[i] = s.Process()
			if used[i], err = servers[i].CPU(); err != nil {
				return err
			}
		}
	}
	list, err := env.Loop(ctx, lanes)
	if err != nil {
		return err
	}
	r.Columns = []string{"", "clients", "p50 ms", "p99 ms", "changes/s", "CPU ms a change", "p50 ÷ before", "changes/s ÷ before", "CPU ÷ before"}
	var first time.Duration
	for i, m := range list {
		var each time.Duration
		if servers[i] != nil {
			end, err := servers[i].CPU()
			if err != nil {
				return err
			}
			each = (end - used[i]) / time.Duration(max(m.N, 1))
		}
		if i == 0 {
			first = each
		}
		r.Line(m.Name, fmt.Sprint(m.Clients), report.Millis(m.P50), report.Millis(m.P99), report.Number(m.Rate, ""), report.Millis(each),
			report.Times(m.P50Ratio(list[0])), report.Times(m.RateRatio(list[0])), report.Times(divided(each, first)))
	}
	r.Data = list
	r.Checks = append(r.Checks,
		report.AtMost("p50 within 3 % of the earlier program's", list[1].P50Ratio(list[0]), 1.03, "%.3f×"),
		report.AtLeast("changes/s within 3 % of the earlier program's", list[1].RateRatio(list[0]), 0.97, "%.3f×"))
	return nil
}
