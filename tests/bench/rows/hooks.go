package rows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

// The targets for one run of umbra hook.
const (
	hookP50 = 15 * time.Millisecond
	hookP99 = 50 * time.Millisecond
)

// hooksAtOnce is how many agents run hooks at the same time; each runs hooksEach begins
// and ends, and those in Node fewer.
const (
	hooksAtOnce   = 8
	hooksEach     = 25
	hooksEachNode = 3
)

func hookRows(s measure.Scale) []Row {
	var list []Row
	for _, files := range s.Files {
		list = append(list, Row{
			Name:  "hook/files=" + report.Count(files),
			Title: fmt.Sprintf("Hooks of an agent with %s files", report.Count(files)),
			About: "`umbra hook` before and after a shell that changes one file: from the start of the process to its end, which the agent waits for. For comparison a program that does nothing, Node doing nothing, and a hook in Node that sends the same requests. " +
				fmt.Sprintf("Then %d agents at once, with a session and a file each.", hooksAtOnce),
			Run: func(ctx context.Context, env *measure.Env, r *report.Result) error {
				return hooks(ctx, env, r, files)
			},
		})
	}
	return list
}

// hooker runs hooks over one workspace.
type hooker struct {
	env         []string
	folder      string
	umbra, node []string // node: nil if it is not installed
	nothing     []string
	nodeNothing []string
}

// event runs a hook for the n-th call of a session.
func (h *hooker) event(ctx context.Context, hook []string, session string, n int, name string) (time.Duration, error) {
	input, err := json.Marshal(map[string]any{"session_id": session, "prompt_id": "p", "cwd": h.folder, "hook_event_name": name,
		"tool_name": "Bash", "tool_input": map[string]any{"command": "x"}, "tool_use_id": fmt.Sprintf("u%d", n)})
	if err != nil {
		return 0, err
	}
	return peers.Timed(ctx, "", h.env, input, hook...)
}

// call runs the hooks around a shell that changes a file, and returns how long the
// begin and the end took.
func (h *hooker) call(ctx context.Context, hook []string, session string, n int) (begin, end time.Duration, err error) {
	if begin, err = h.event(ctx, hook, session, n, "PreToolUse"); err != nil {
		return 0, 0, err
	}
	if err = os.WriteFile(filepath.Join(h.folder, "changed-"+session), fmt.Appendln(nil, n), 0o644); err != nil {
		return 0, 0, err
	}
	end, err = h.event(ctx, hook, session, n, "PostToolUse")
	return begin, end, err
}

// atOnce runs something for several agents at the same time, each times over, and
// returns how long each took.
func atOnce(ctx context.Context, each int, do func(ctx context.Context, agent, n int) ([]time.Duration, error)) ([]time.Duration, error) {
	var mu sync.Mutex
	var all []time.Duration
	group, ctx := errgroup.WithContext(ctx)
	for agent := range hooksAtOnce {
		group.Go(func() error {
			for n := range each {
				took, err := do(ctx, agent, n)
				if err != nil {
					return err
				}
				mu.Lock()
				all = append(all, took...)
				mu.Unlock()
			}
			return nil
		})
	}
	return all, group.Wait()
}

func hooks(ctx context.Context, env *measure.Env, r *report.Result, files int) error {
	folder, err := env.Dir("project")
	if err != nil {
		return err
	}
	home, err := env.Dir("home")
	if err != nil {
		return err
	}
	env.Log("writing %d files", files)
	if err := corpus.Write(ctx, folder, files); err != nil {
		return err
	}
	s, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1})
	if err != nil {
		return err
	}
	if _, err := s.Open(ctx, folder); err != nil { // takes the baseline
		return err
	}
	h := &hooker{folder: folder, umbra: []string{env.Umbra, "hook", "claude-code", "--on-failure=block"}, nothing: []string{"true"},
		env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "UMBRA_DATA_DIR=" + s.Data}}
	switch h.node, err = s.NodeHook(env); {
	case err == nil:
		h.nodeNothing = []string{h.node[0], "-e", "0"}
	case errors.Is(err, peers.ErrMissing):
		r.Note("Node is not installed here.")
	default:
		return err
	}
	took := make(map[string][]time.Duration)
	note := func(name string, list ...time.Duration) { took[name] = append(took[name], list...) }
	count := 3 * stats.ForP99
	env.Log("%d calls", count)
	for n := range count {
		begin, end, err := h.call(ctx, h.umbra, "s", n)
		if err != nil {
			return err
		}
		note(hookBegin, begin)
		note(hookEnd, end)
		d, err := peers.Timed(ctx, "", h.env, nil, h.nothing...)
		if err != nil {
			return err
		}
		note(hookNothing, d)
		if h.node == nil || n%10 != 0 {
			continue
		}
		if begin, end, err = h.call(ctx, h.node, "n", n); err != nil {
			return err
		}
		note(hookNode, begin, end)
		if d, err = peers.Timed(ctx, "", h.env, nil, h.nodeNothing...); err != nil {
			return err
		}
		note(hookNodeNothing, d)
	}
	env.Log("%d agents at once", hooksAtOnce)
	calls := func(hook []string, name string) func(context.Context, int, int) ([]time.Duration, error) {
		return func(ctx context.Context, agent, n int) ([]time.Duration, error) {
			begin, end, err := h.call(ctx, hook, fmt.Sprintf("%s%d", name, agent), n)
			return []time.Duration{begin, end}, err
		}
	}
	if took[hookMany], err = atOnce(ctx, hooksEach, calls(h.umbra, "many")); err != nil {
		return err
	}
	if took[hookManyNothing], err = atOnce(ctx, 2*hooksEach, func(ctx context.Context, _, _ int) ([]time.Duration, error) {
		d, err := peers.Timed(ctx, "", h.env, nil, h.nothing...)
		return []time.Duration{d}, err
	}); err != nil {
		return err
	}
	if h.node != nil {
		if took[hookManyNode], err = atOnce(ctx, hooksEachNode, calls(h.node, "node")); err != nil {
			return err
		}
	}
	r.Columns = []string{"", "runs", "p50 ms", "p99 ms", "longest ms", "p50 ÷ umbra's begin"}
	own := stats.Of(took[hookBegin])
	for _, name := range []string{hookBegin, hookEnd, hookNothing, hookNodeNothing, hookNode, hookMany, hookManyNothing, hookManyNode} {
		sum := stats.Of(took[name])
		if sum.N > 0 {
			r.Line(name, fmt.Sprint(sum.N), report.Millis(sum.P50), report.Millis(sum.P99), report.Millis(sum.Max), report.Times(float64(sum.P50)/float64(own.P50)))
		}
	}
	all := stats.Of(slices.Concat(took[hookBegin], took[hookEnd]))
	r.Checks = append(r.Checks,
		report.AtMost(fmt.Sprintf("a hook with %s files: p50 ≤ 15 ms", report.Count(files)), float64(all.P50)/1e6, float64(hookP50)/1e6, "%.1f ms"),
		report.AtMost(fmt.Sprintf("a hook with %s files: p99 ≤ 50 ms", report.Count(files)), float64(all.P99)/1e6, float64(hookP99)/1e6, "%.1f ms"))
	r.Data = took
	return nil
}

// The subjects of a row of hooks.
const (
	hookBegin       = "umbra hook, begin"
	hookEnd         = "umbra hook, end"
	hookNothing     = "`true`"
	hookNodeNothing = "`node -e 0`"
	hookNode        = "a hook in Node"
	hookMany        = "umbra hook, 8 agents at once"
	hookManyNothing = "`true`, 8 at once"
	hookManyNode    = "a hook in Node, 8 agents at once"
)
