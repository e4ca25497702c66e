package rows

import (
	"context"
	"fmt"
	"time"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
)

const (
	sustainedClients = 16
	// probeEvery is how often the disk is asked how it does, during a load.
	probeEvery = 5 * time.Millisecond
	// mayStall is what a stall may take beyond the disk's own.
	mayStall = 100 * time.Millisecond
)

func sustainedRows(s measure.Scale) []Row {
	return []Row{{
		Name:  "sustained",
		Title: fmt.Sprintf("%v of load by %d clients", s.Sustained, sustainedClients),
		About: "Checkpoints, closing of journals and merging of packs go on as they do by themselves. Silence: the longest time in which no change was answered. " +
			"Disk meanwhile: a bare append + fdatasync each 5 ms to another file of the same disk.",
		EveryDisk: true, Run: sustained,
	}}
}

func sustained(ctx context.Context, env *measure.Env, r *report.Result) error {
	g := peers.Group{Params: peers.Params{Ctx: ctx, Env: env, Files: env.Scale.Middle(), Clients: sustainedClients, Templates: peers.NewTemplates(env)}}
	if err := g.Add(peers.Umbra, peers.SafeGin, peers.Append); err != nil {
		return err
	}
	probe, err := peers.Append(g.Params)
	if err != nil {
		return err
	}
	r.Columns = []string{"", "changes/s", "p50 ms", "p99 ms", "longest ms", "silence ms", "disk meanwhile: p50 ms", "longest ms"}
	var loads []measure.Load
	for _, lane := range g.Lanes {
		env.Log("%s for %v", lane.Subject.Name(), env.Scale.Sustained)
		lane.Clients = sustainedClients
		stop := measure.Beside(probeEvery, func() error { return probe.Change(ctx, 0, corpus.Change{}) })
		load, err := env.Sustain(ctx, lane, env.Scale.Sustained)
		beside, probeErr := stop()
		if err != nil {
			return err
		}
		if probeErr != nil {
			return probeErr
		}
		loads = append(loads, load)
		r.Line(load.Name, report.Number(load.Rate, ""), report.Millis(load.P50), report.Millis(load.P99), report.Millis(load.Max),
			report.Millis(load.Silence), report.Millis(beside.P50), report.Millis(beside.Max))
	}
	r.Data = loads
	// The bare loop is judged against: a probe during the load would forgive
	// what the load itself does to the disk.
	own := loads[len(loads)-1].Max
	r.Checks = append(r.Checks, report.AtMost(fmt.Sprintf("no stall above %v beyond the disk's own (%s ms, bare append + fdatasync)", mayStall, report.Millis(own)),
		float64(loads[0].Max-own)/1e6, float64(mayStall)/1e6, "%.0f ms beyond"))
	return nil
}
