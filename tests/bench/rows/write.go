package rows

import (
	"context"
	"fmt"
	"slices"

	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

const writeAbout = "One small edit of one file (1.8 KB on average) is one commit. umbra's server and write service also put the file into the workspace; " +
	"for git, go-git and libgit2 the writing of the file is not measured. Peers that take one change at a time are measured with one client."

// theTargetSize is the number of files at which the targets against git hold.
const theTargetSize = 10_000

func writeRows(s measure.Scale) []Row {
	var list []Row
	add := func(files, history int, clients []int, every bool, makers []peers.Maker) {
		c := cell{files: files, history: history, clients: clients, makers: makers}
		list = append(list, Row{
			Name:  fmt.Sprintf("write/files=%s,commits=%s", report.Count(files), report.Count(history)),
			Title: fmt.Sprintf("One change, one commit: %s files, %s commits before", report.Count(files), report.Count(history)),
			About: writeAbout, EveryDisk: every, Run: c.run,
		})
	}
	one := s.Clients[:1]
	for _, files := range s.Files {
		for _, history := range s.Histories {
			middle, first := files == s.Middle(), history == s.Histories[0]
			switch {
			case middle && first:
				add(files, history, s.Clients, true, append(everybody(), peers.GitAddAllSynced))
			case first, middle:
				add(files, history, clientsOf(s, one), false, everybody())
			case s.Cross:
				add(files, history, s.Clients, false, ours())
			}
		}
	}
	return list
}

// clientsOf gives all numbers of clients where each is measured with each.
func clientsOf(s measure.Scale, otherwise []int) []int {
	if s.Cross {
		return s.Clients
	}
	return otherwise
}

func ours() []peers.Maker {
	return []peers.Maker{peers.Umbra, peers.Apply, peers.Engine, peers.SafeGin, peers.Safe, peers.Append, peers.Exchange}
}

func everybody() []peers.Maker {
	return append(ours(), peers.GoGit, peers.GitAddAll, peers.GitPlumbing, peers.FastImport, peers.Libgit2, peers.Libgit2Fsync)
}

// cell is one project and its history, with several numbers of clients.
type cell struct {
	files, history int
	clients        []int
	makers         []peers.Maker
}

// umbraAlone is the lane of one client next to the lane of many.
const umbraAlone = peers.NameServer + ", one client"

func (c cell) run(ctx context.Context, env *measure.Env, r *report.Result) error {
	g := peers.Group{Params: peers.Params{Ctx: ctx, Env: env, Files: c.files, History: c.history, Clients: slices.Max(c.clients), Templates: peers.NewTemplates(env)}}
	if err := g.Add(c.makers...); err != nil {
		return err
	}
	var all []measure.Measured
	for _, clients := range c.clients {
		lanes := slices.Clone(g.Lanes)
		for i := range lanes {
			lanes[i].Clients = clients
		}
		if clients > 1 {
			lanes = append(lanes, measure.Lane{Subject: g.Lanes[0].Subject, Files: c.files, Label: umbraAlone})
		}
		env.Log("%s files, %s commits, %d clients: %d subjects", report.Count(c.files), report.Count(c.history), clients, len(lanes))
		list, err := env.Loop(ctx, lanes)
		if err != nil {
			return err
		}
		c.lines(r, list, clients)
		if clients == 1 {
			c.aloneTargets(env, r, list)
		} else {
			c.crowdTargets(env, r, list, clients)
		}
		all = append(all, list...)
	}
	r.Data = all
	reportMissing(r, g.Missing)
	return nil
}

// lines leaves out of the lines for many clients those that work alone.
func (c cell) lines(r *report.Result, list []measure.Measured, clients int) {
	shown := slices.DeleteFunc(slices.Clone(list), func(m measure.Measured) bool { return m.Clients != clients })
	latencyLines(r, shown, peers.NameServer)
}

func (c cell) aloneTargets(env *measure.Env, r *report.Result, list []measure.Measured) {
	toSafe := slower(list, peers.NameServer, peers.NameSafeGin)
	r.Checks = append(r.Checks, report.AtMost("over HTTP, file included, one client: no slower than the safe server, p50", toSafe, 1, "%.2f×"))
	if env.Disk.Journaled {
		r.Checks = append(r.Checks, report.AtMost("and ≤ 0.5× of it on a journaled file system", toSafe, 0.5, "%.2f×"))
	}
	bare := stats.Sum(p50s(list, peers.NameAppend), p50s(list, peers.NameExchange))
	r.Checks = append(r.Checks, report.AtMost("≤ 3× one bare append + fdatasync plus one bare file exchange",
		stats.Ratio(p50s(list, peers.NameServer), bare), 3, "%.2f×"))
	if c.files == theTargetSize {
		r.Checks = append(r.Checks, report.AtLeast("one client ≥ 50× the commits/s of "+peers.NameGitAddAll+" at 10k files",
			faster(list, peers.NameServer, peers.NameGitAddAll), 50, "%.0f×"))
	}
}

// crowd is the number of clients that the targets are set for.
const crowd = 64

func (c cell) crowdTargets(env *measure.Env, r *report.Result, list []measure.Measured, clients int) {
	if clients != crowd {
		return
	}
	toSafe := faster(list, peers.NameServer, peers.NameSafeGin)
	r.Checks = append(r.Checks, report.AtLeast("64 clients: not below 64 clients of the safe server", toSafe, 1, "%.2f×"))
	if env.Disk.Journaled {
		r.Checks = append(r.Checks, report.AtLeast("and ≥ 2× on a journaled file system", toSafe, 2, "%.2f×"))
	}
	r.Checks = append(r.Checks,
		report.AtLeast("64 clients: ≥ 2× the commits/s of one client", faster(list, peers.NameServer, umbraAlone), 2, "%.2f×"),
		report.AtLeast("64 clients: ≥ 10× libgit2 with fsync", faster(list, peers.NameServer, peers.NameLibgit2Fsync), 10, "%.1f×"))
	if c.files == theTargetSize {
		r.Checks = append(r.Checks, report.AtLeast("64 clients: ≥ 100× "+peers.NameGitAddAll+" at 10k files",
			faster(list, peers.NameServer, peers.NameGitAddAll), 100, "%.0f×"))
	}
}
