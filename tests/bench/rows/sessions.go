package rows

import (
	"context"
	"fmt"
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
	// mayRead, mayList and mayWalk are the targets: of the static server's
	// speed, times os.ReadDir and a stat of each, entries a second.
	mayRead = 0.6
	mayList = 2
	mayWalk = 200_000
	readOf  = 1000 // files
)

func sessionRows(s measure.Scale) []Row {
	flat, deep := s.Largest()/2, s.Largest()
	return []Row{
		{
			Name:  "sessions/read",
			Title: "A small file read by a session",
			About: "The file's content in JSON (read) and its bytes (download), next to gin's own static files; files of 1.8 KB on average.",
			Run:   readSmall,
		},
		{
			Name:  fmt.Sprintf("sessions/list,entries=%s", report.Count(flat)),
			Title: fmt.Sprintf("A directory of %s entries listed by a session", report.Count(flat)),
			About: "All pages of 10,000 entries, one after the other; the first page of 1,000; next to os.ReadDir and an Lstat of each name, in process.",
			Run:   listing{flat, false}.run,
		},
		{
			Name:  fmt.Sprintf("sessions/walk,files=%s", report.Count(deep)),
			Title: fmt.Sprintf("%s files listed recursively by a session", report.Count(deep)),
			About: "The same with recursive=true, of a project with directories of fifty files. Every page walks over all of it, since it has the total.",
			Run:   listing{deep, true}.run,
		},
	}
}

func readSmall(ctx context.Context, env *measure.Env, r *report.Result) error {
	p := peers.Params{Ctx: ctx, Env: env, Clients: 1, Files: readOf}
	folder, err := env.Dir("read")
	if err != nil {
		return err
	}
	if err := corpus.Write(ctx, folder, readOf); err != nil {
		return err
	}
	s, err := peers.NewServer(p)
	if err != nil {
		return err
	}
	session, err := s.Session(ctx, folder)
	if err != nil {
		return err
	}
	static, err := peers.GinStatic(p, folder)
	if err != nil {
		return err
	}
	var lanes []measure.Lane
	for _, subject := range []measure.Subject{session.Reading(peers.NameRead, "read"), session.Reading(peers.NameDownload, "download"), static} {
		lanes = append(lanes, measure.Lane{Subject: subject, Files: readOf})
	}
	list, err := env.Loop(ctx, lanes)
	if err != nil {
		return err
	}
	latencyLines(r, list, peers.NameRead)
	r.Checks = append(r.Checks, report.AtLeast("read ≥ 60% of gin's static file speed", slower(list, peers.NameGinStatic, peers.NameRead), mayRead, "%.2f×"))
	r.Data = list
	return nil
}

// listing lists a folder of so many files.
type listing struct {
	files     int
	recursive bool
}

func (l listing) run(ctx context.Context, env *measure.Env, r *report.Result) error {
	folder, err := l.make(ctx, env)
	if err != nil {
		return err
	}
	s, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1})
	if err != nil {
		return err
	}
	session, err := s.Session(ctx, folder)
	if err != nil {
		return err
	}
	var entries int
	subjects := []struct {
		name string
		do   func() error
	}{
		{"all pages", func() (err error) { entries, err = session.ListAll(ctx, l.recursive); return err }},
		{"first page", func() error { return session.ListFirst(ctx, l.recursive) }},
		{"os.ReadDir and a stat of each", func() error { _, err := peers.ReadDirs(folder, l.recursive); return err }},
	}
	took := make([][]time.Duration, len(subjects))
	rounds := make([][]float64, len(subjects))
	for range env.Scale.Rounds {
		for i, subject := range subjects {
			begin := time.Now()
			if err := subject.do(); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(begin))
			rounds[i] = append(rounds[i], time.Since(begin).Seconds())
		}
	}
	r.Columns = []string{"", "p50 ms", "longest ms", "entries/s"}
	for i, subject := range subjects {
		sum := stats.Of(took[i])
		r.Line(subject.name, report.Millis(sum.P50), report.Millis(sum.Max), report.Number(float64(entries)/sum.P50.Seconds(), ""))
	}
	if l.recursive {
		r.Checks = append(r.Checks, report.AtLeast("≥ 200,000 entries/s", float64(entries)/stats.Of(took[0]).P50.Seconds(), mayWalk, "%.0f"))
	} else {
		r.Checks = append(r.Checks, report.AtMost("≤ 2× of os.ReadDir and a stat of each", stats.Ratio(rounds[0], rounds[2]), mayList, "%.2f×"))
	}
	r.Data = took
	return nil
}

func (l listing) make(ctx context.Context, env *measure.Env) (string, error) {
	folder, err := env.Dir("list")
	if err != nil || l.recursive {
		if err == nil {
			err = corpus.Write(ctx, folder, l.files)
		}
		return folder, err
	}
	for i := range l.files {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("file-%d.txt", i)), []byte("x\n"), 0o644); err != nil {
			return "", err
		}
	}
	return folder, ctx.Err()
}
