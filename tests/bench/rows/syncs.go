package rows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
)

// syncsAfter is how long what follows a change may still come: a journal is
// closed, and a checkpoint made, after the answer.
const syncsAfter = 2 * time.Second

func syncsRows(measure.Scale) []Row {
	return []Row{{
		Name: "syncs", Title: "fsyncs and bytes a change", EveryDisk: true, Run: syncs,
		About: "What the whole process asks of the disk, background work included, divided by the changes made: system calls by strace, bytes by write_bytes of /proc/PID/io " +
			"(pages made dirty: 4 KB each at least). Writes started are sync_file_range, which does not wait.",
	}}
}

// served is a subject that is a server of its own.
type served interface {
	measure.Subject
	Process() *peers.Process
}

// manner is how changes are made while they are counted.
type manner struct {
	name    string
	clients int
	period  time.Duration // 0: in a loop
	changes int
}

func syncs(ctx context.Context, env *measure.Env, r *report.Result) error {
	p := peers.Params{Ctx: ctx, Env: env, Files: env.Scale.Middle(), Clients: crowd, Templates: peers.NewTemplates(env)}
	r.Columns = []string{"", "how", "changes", "fdatasync", "fsync", "writes started", "KB written"}
	n := env.Scale.Counted
	manners := []manner{
		{"loop, one client", 1, 0, n}, {"loop, 16 clients", 16, 0, n}, {"loop, 64 clients", crowd, 0, n},
		{"each 200 ms", 1, agentPace, max(n/10, 5)}, {"each 5 s", 1, slowPace, max(n/75, 2)},
	}
	for _, m := range []peers.Maker{peers.Umbra, peers.SafeGin} {
		subject, err := m(p)
		if err != nil {
			return err
		}
		server, ok := subject.(served)
		if !ok {
			return fmt.Errorf("%s has no process of its own", subject.Name())
		}
		for _, how := range manners {
			env.Log("%s: %s", subject.Name(), how.name)
			if err := counted(ctx, env, r, server, how); errors.Is(err, peers.ErrMissing) {
				r.Note("Left out: %s.", err)
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	return countedGit(ctx, env, r, p)
}

func counted(ctx context.Context, env *measure.Env, r *report.Result, s served, how manner) error {
	lane := measure.Lane{Subject: s, Files: env.Scale.Middle(), Clients: how.clients}
	if err := env.Count(ctx, lane, how.clients, 0); err != nil { // connections, first use
		return err
	}
	if err := measure.Pause(ctx, syncsAfter); err != nil {
		return err
	}
	before, err := s.Process().Written()
	if err != nil {
		return err
	}
	stop, err := peers.Trace(ctx, env, s.Process())
	if err != nil {
		return err
	}
	err = env.Count(ctx, lane, how.changes, how.period)
	err = errors.Join(err, measure.Pause(ctx, syncsAfter))
	calls, failed := stop()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	after, err := s.Process().Written()
	if err != nil {
		return err
	}
	syncLine(r, s.Name(), how.name, how.changes, calls, float64(after-before)/1024)
	return nil
}

func syncLine(r *report.Result, name, how string, changes int, calls map[string]int, kb float64) {
	each := func(v float64) string { return report.Number(v/float64(changes), "") }
	r.Line(name, how, fmt.Sprint(changes), each(float64(calls["fdatasync"])), each(float64(calls["fsync"]+calls["syncfs"]+calls["sync"])),
		each(float64(calls["sync_file_range"])), each(kb))
}

// countedGit counts for git add -A && git commit. Its bytes are those of many
// short processes, which are not summed up.
func countedGit(ctx context.Context, env *measure.Env, r *report.Result, p peers.Params) error {
	for _, m := range []peers.Maker{peers.GitAddAll, peers.GitAddAllSynced} {
		subject, err := m(p)
		if errors.Is(err, peers.ErrMissing) {
			r.Note("Left out: %s.", err)
			return nil
		} else if err != nil {
			return err
		}
		calls := make(map[string]int)
		changes := max(env.Scale.Counted/30, 3)
		if err := peers.TraceGit(ctx, env, subject, p.Files, changes, calls); err != nil {
			return err
		}
		each := func(n int) string { return report.Number(float64(n)/float64(changes), "") }
		r.Line(subject.Name(), "loop, one client", fmt.Sprint(changes), each(calls["fdatasync"]), each(calls["fsync"]), each(calls["sync_file_range"]), "–")
	}
	return nil
}
