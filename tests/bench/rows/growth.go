package rows

import (
	"context"
	"fmt"

	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
)

func growthRows(s measure.Scale) []Row {
	files := growth{
		small: size{s.Smallest(), 0}, large: size{s.Largest(), 0}, limit: 1.2,
		smallName: report.Count(s.Smallest()) + " files", largeName: report.Count(s.Largest()) + " files",
	}
	history := growth{
		small: size{s.Middle(), 0}, large: size{s.Middle(), s.LongestHistory()}, limit: 1.1,
		smallName: "no commits before", largeName: report.Count(s.LongestHistory()) + " commits before",
	}
	const about = "The same edits in two workspaces in turn. There are two of the smaller, since two workspaces of one size differ by their place on disk: the notes say by how much."
	return []Row{
		{Name: "growth/files", Title: fmt.Sprintf("Growth with the workspace: %s against %s", files.largeName, files.smallName), About: about, Run: files.run},
		{Name: "growth/history", Title: fmt.Sprintf("Growth with history: %s against none", history.largeName), About: about, Run: history.run},
	}
}

type size struct{ files, history int }

type growth struct {
	small, large         size
	smallName, largeName string
	limit                float64
}

const twin = ", its twin"

func (g growth) run(ctx context.Context, env *measure.Env, r *report.Result) error {
	makers := []struct {
		name string
		make peers.Maker
	}{{peers.NameServer, peers.Umbra}, {peers.NameEngine, peers.Engine}}
	var lanes []measure.Lane
	for _, m := range makers {
		for _, w := range []struct {
			size
			label string
		}{{g.small, g.smallName}, {g.large, g.largeName}, {g.small, g.smallName + twin}} {
			env.Log("%s with %s", m.name, w.label)
			subject, err := m.make(peers.Params{Ctx: ctx, Env: env, Files: w.files, History: w.history, Clients: 1})
			if err != nil {
				return err
			}
			lanes = append(lanes, measure.Lane{Subject: subject, Files: w.files, Label: m.name + ": " + w.label})
		}
	}
	list, err := env.Loop(ctx, lanes)
	if err != nil {
		return err
	}
	latencyLines(r, list, peers.NameServer+": "+g.smallName)
	r.Data = list
	for _, m := range makers {
		small, large := m.name+": "+g.smallName, m.name+": "+g.largeName
		r.Checks = append(r.Checks, report.AtMost(fmt.Sprintf("%s: %s ≤ %.1f× %s, p50", m.name, g.largeName, g.limit, g.smallName),
			slower(list, large, small), g.limit, "%.2f×"))
		r.Note("%s: two workspaces with %s differ by %s.", m.name, g.smallName, report.Times(slower(list, small+twin, small)))
	}
	return nil
}
