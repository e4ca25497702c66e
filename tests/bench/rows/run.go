package rows

import (
	"context"
	"errors"

	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
)

const (
	// mayHello and mayCSV are the targets in milliseconds, fasterRun how many times
	// as fast a program runs as an interpreter is started for it.
	mayHello  = 20
	mayCSV    = 15
	fasterRun = 2
)

// csvScript makes 10,000 rows with string.format and saves them as one file.
const csvScript = `local rows = table.create(10000)
for i = 1, 10000 do
  rows[i] = string.format("%d,%s,%.2f", i, "name", i * 1.5)
end
file.save("rows.csv", table.concat(rows, "\n"))
return #rows`

func runRows(measure.Scale) []Row {
	return []Row{
		{
			Name:  "run/hello",
			Title: "A program that says hello",
			About: "`console.log(\"hello\")` as TypeScript; the server's pool of sandboxes is warm. For comparison: an interpreter that is started for it, without a sandbox.",
			Run:   runHello,
		},
		{
			Name:  "run/csv",
			Title: "A script that saves 10,000 rows",
			About: "Luau: 10,000 rows by `string.format`, joined and saved as a CSV file of 210 KB. The same bytes are saved each time: one commit, then none.",
			Run:   runCSV,
		},
	}
}

func runHello(ctx context.Context, env *measure.Env, r *report.Result) error {
	const hello = `console.log("hello")`
	s, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1})
	if err != nil {
		return err
	}
	own, err := s.Execute(hello, "hello")
	if err != nil {
		return err
	}
	subjects, others := []measure.Subject{own}, []string{}
	var missing []string
	for _, c := range []struct {
		name string
		argv []string
	}{{peers.NameNode, []string{"node", "-e", hello}}, {peers.NameDeno, []string{"deno", "eval", hello}}} {
		subject, err := peers.Started(c.name, "hello", c.argv...)
		if errors.Is(err, peers.ErrMissing) {
			missing = append(missing, err.Error())
			continue
		}
		if err != nil {
			return err
		}
		subjects, others = append(subjects, subject), append(others, c.name)
	}
	list, err := env.Loop(ctx, lanesOf(subjects))
	if err != nil {
		return err
	}
	latencyLines(r, list, peers.NameExecute)
	reportMissing(r, missing)
	m, _ := peers.Find(list, peers.NameExecute)
	r.Checks = append(r.Checks, report.AtMost("hello ≤ 20 ms, p50", m.P50.Seconds()*1000, mayHello, "%.1f ms"))
	for _, name := range others {
		r.Checks = append(r.Checks, report.AtLeast("≥ 2× faster than "+name, slower(list, name, peers.NameExecute), fasterRun, "%.1f×"))
	}
	r.Data = list
	return nil
}

func runCSV(ctx context.Context, env *measure.Env, r *report.Result) error {
	s, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1})
	if err != nil {
		return err
	}
	own, err := s.Script(csvScript, `"result":10000`)
	if err != nil {
		return err
	}
	list, err := env.Loop(ctx, lanesOf([]measure.Subject{own}))
	if err != nil {
		return err
	}
	latencyLines(r, list, peers.NameScript)
	m, _ := peers.Find(list, peers.NameScript)
	r.Checks = append(r.Checks, report.AtMost("10,000 rows ≤ 15 ms, p50", m.P50.Seconds()*1000, mayCSV, "%.1f ms"))
	r.Data = list
	return nil
}

// lanesOf gives each subject a lane of one client on one file.
func lanesOf(subjects []measure.Subject) []measure.Lane {
	lanes := make([]measure.Lane, len(subjects))
	for i, subject := range subjects {
		lanes[i] = measure.Lane{Subject: subject, Files: 1}
	}
	return lanes
}
