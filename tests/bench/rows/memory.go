package rows

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
)

const (
	// idleFiles is how many files an idle workspace has.
	idleFiles = 50
	// idleMayHold (MB) and fileMayHold (bytes) are the targets.
	idleMayHold = 40
	fileMayHold = 250
	// warmEdits are made before a workspace counts as hot.
	warmEdits = 500
)

func memoryRows(s measure.Scale) []Row {
	return []Row{
		{
			Name:  "memory/idle",
			Title: fmt.Sprintf("Memory of the server with %d idle workspaces", s.Idle),
			About: fmt.Sprintf("Each has %d files and one task, and was opened and written to once. Resident: VmRSS of /proc/PID/status, program text included.", idleFiles),
			Run:   idleMemory,
		},
		{
			Name:  "memory/hot",
			Title: fmt.Sprintf("Memory for each file of a hot workspace of %s files", report.Count(s.Largest())),
			About: fmt.Sprintf("Opened, scanned whole and written to %d times. Live heap: what the write service holds after a collection, in process. "+
				"Resident: what the server's anonymous memory grew by, after it was started again on the workspace; the collector lets that be about twice the live heap, and more after a scan.", warmEdits),
			Run: hotMemory,
		},
	}
}

func idleMemory(ctx context.Context, env *measure.Env, r *report.Result) error {
	s, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1})
	if err != nil {
		return err
	}
	empty, err := settled(ctx, env, s)
	if err != nil {
		return err
	}
	if err := openIdle(ctx, env, s); err != nil {
		return err
	}
	open, err := settled(ctx, env, s)
	if err != nil {
		return err
	}
	if err := s.Stop(); err != nil {
		return err
	}
	again, err := peers.StartServer(ctx, env, s.Data, 1)
	if err != nil {
		return err
	}
	away, err := settled(ctx, env, again)
	if err != nil {
		return err
	}
	r.Columns = []string{"", "resident MB", "of it anonymous MB"}
	line := func(name string, m peers.Memory) {
		r.Line(name, report.Number(float64(m.Resident)/1e6, ""), report.Number(float64(m.Anonymous)/1e6, ""))
	}
	line("no workspace yet", empty)
	line("just used, still open", open)
	line("unloaded (the server restarted)", away)
	r.Checks = append(r.Checks,
		report.AtMost(fmt.Sprintf("%d idle workspaces, still open: ≤ 40 MB", env.Scale.Idle), float64(open.Resident)/1e6, idleMayHold, "%.1f MB"),
		report.AtMost(fmt.Sprintf("%d idle workspaces, unloaded: ≤ 40 MB", env.Scale.Idle), float64(away.Resident)/1e6, idleMayHold, "%.1f MB"))
	r.Data = map[string]peers.Memory{"empty": empty, "open": open, "away": away}
	return nil
}

// openIdle opens the idle workspaces, each with a task that has changed a file.
func openIdle(ctx context.Context, env *measure.Env, s *peers.Server) error {
	env.Log("opening %d workspaces", env.Scale.Idle)
	for range env.Scale.Idle {
		folder, err := env.Dir("idle")
		if err != nil {
			return err
		}
		if err := corpus.Write(ctx, folder, idleFiles); err != nil {
			return err
		}
		t, err := s.Open(ctx, folder)
		if err != nil {
			return err
		}
		if err := s.Changes(t).Change(ctx, 0, corpus.NewSequence(idleFiles, 0, 1, 4).Next()); err != nil {
			return err
		}
	}
	return nil
}

// settled gives what a server holds when it had time to give memory back.
func settled(ctx context.Context, env *measure.Env, s *peers.Server) (peers.Memory, error) {
	if err := measure.Pause(ctx, env.Scale.Settle); err != nil {
		return peers.Memory{}, err
	}
	return s.Memory()
}

func hotMemory(ctx context.Context, env *measure.Env, r *report.Result) error {
	files := env.Scale.Largest()
	folder, err := env.Dir("hot")
	if err != nil {
		return err
	}
	env.Log("writing %d files", files)
	if err := corpus.Write(ctx, folder, files); err != nil {
		return err
	}
	heap, err := hotHeap(ctx, env, folder, files)
	if err != nil {
		return err
	}
	resident, err := hotServer(ctx, env, folder, files)
	if err != nil {
		return err
	}
	r.Columns = []string{"", "bytes a file", "MB in all"}
	line := func(name string, bytes int64) {
		r.Line(name, report.Number(float64(bytes)/float64(files), ""), report.Number(float64(bytes)/1e6, ""))
	}
	line("live heap, write service in process", heap)
	line("resident, server", resident)
	r.Checks = append(r.Checks,
		report.AtMost("live heap ≤ 250 B a file", float64(heap)/float64(files), fileMayHold, "%.0f B"),
		report.AtMost("resident ≤ 250 B a file", float64(resident)/float64(files), fileMayHold, "%.0f B"))
	r.Data = map[string]int64{"heap": heap, "resident": resident}
	return nil
}

// hotHeap gives what the write service holds in this process.
func hotHeap(ctx context.Context, env *measure.Env, folder string, files int) (int64, error) {
	before := liveHeap()
	m, err := peers.NewManager(peers.Params{Ctx: ctx, Env: env})
	if err != nil {
		return 0, err
	}
	w, _, err := m.Open(ctx, folder, workspaces.OpenOptions{Force: true})
	if err != nil {
		return 0, err
	}
	defer w.Release()
	if _, err := w.Sync(ctx, workspace.SyncOptions{}); err != nil {
		return 0, err
	}
	sequence := corpus.NewSequence(files, 0, 1, 5)
	for range min(warmEdits, files) {
		// The files change behind its back and are found: whatever it keeps of
		// a file, it keeps of these.
		c := sequence.Next()
		if err := os.WriteFile(filepath.Join(folder, c.Path), c.Data, 0o644); err != nil {
			return 0, err
		}
	}
	if _, err := w.Sync(ctx, workspace.SyncOptions{}); err != nil {
		return 0, err
	}
	after := liveHeap()
	runtime.KeepAlive(w)
	return after - before, nil
}

func liveHeap() int64 {
	debug.FreeOSMemory() // collects; twice, for what finalizers held
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// hotServer gives by how much the server's anonymous memory grows.
func hotServer(ctx context.Context, env *measure.Env, folder string, files int) (int64, error) {
	first, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1})
	if err != nil {
		return 0, err
	}
	t, err := first.Open(ctx, folder)
	if err != nil {
		return 0, err
	}
	if err := first.Stop(); err != nil {
		return 0, err
	}
	s, err := peers.StartServer(ctx, env, first.Data, 1)
	if err != nil {
		return 0, err
	}
	before, err := settled(ctx, env, s)
	if err != nil {
		return 0, err
	}
	if err := s.Sync(ctx, t.Workspace); err != nil {
		return 0, err
	}
	if err := env.Count(ctx, measure.Lane{Subject: s.Changes(t), Files: files}, warmEdits, 0); err != nil {
		return 0, err
	}
	after, err := settled(ctx, env, s)
	return after.Anonymous - before.Anonymous, err
}
