package rows

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

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

func hookRows(s measure.Scale) []Row {
	var list []Row
	for _, files := range s.Files {
		list = append(list, Row{
			Name:  "hook/files=" + report.Count(files),
			Title: fmt.Sprintf("Hooks of an agent with %s files", report.Count(files)),
			About: "`umbra hook` before and after a shell that changes one file: from the start of the process to its end, which the agent waits for. For comparison a program that does nothing, and Node doing nothing, in which many hooks are written.",
			Run: func(ctx context.Context, env *measure.Env, r *report.Result) error {
				return hooks(ctx, env, r, files)
			},
		})
	}
	return list
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
	run := func(input, name string, args ...string) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "UMBRA_DATA_DIR=" + s.Data}
		cmd.Stdin = strings.NewReader(input)
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return time.Since(begin), err
	}
	event := func(n int, name string) (time.Duration, error) {
		input, err := json.Marshal(map[string]any{"session_id": "s", "prompt_id": "p", "cwd": folder, "hook_event_name": name,
			"tool_name": "Bash", "tool_input": map[string]any{"command": "x"}, "tool_use_id": fmt.Sprintf("u%d", n)})
		if err != nil {
			return 0, err
		}
		return run(string(input), env.Umbra, "hook", "claude-code", "--on-failure=block")
	}
	node, _ := exec.LookPath("node")
	count := 3 * stats.ForP99
	env.Log("%d calls", count)
	var begins, ends, nothing, nodes []time.Duration
	for n := range count {
		took, err := event(n, "PreToolUse")
		if err != nil {
			return err
		}
		begins = append(begins, took)
		if err := os.WriteFile(filepath.Join(folder, "changed"), fmt.Appendln(nil, n), 0o644); err != nil {
			return err
		}
		if took, err = event(n, "PostToolUse"); err != nil {
			return err
		}
		ends = append(ends, took)
		if took, err = run("", "true"); err != nil {
			return err
		}
		nothing = append(nothing, took)
		if node == "" || n%10 != 0 {
			continue
		}
		if took, err = run("", node, "-e", "0"); err != nil {
			return err
		}
		nodes = append(nodes, took)
	}
	r.Columns = []string{"", "runs", "p50 ms", "p99 ms", "longest ms"}
	for _, l := range []struct {
		name string
		took []time.Duration
	}{{"umbra hook, begin", begins}, {"umbra hook, end", ends}, {"true", nothing}, {"node -e 0", nodes}} {
		sum := stats.Of(l.took)
		if sum.N > 0 {
			r.Line(l.name, fmt.Sprint(sum.N), report.Millis(sum.P50), report.Millis(sum.P99), report.Millis(sum.Max))
		}
	}
	all := stats.Of(append(append([]time.Duration{}, begins...), ends...))
	r.Checks = append(r.Checks,
		report.AtMost(fmt.Sprintf("a hook with %s files: p50 ≤ 15 ms", report.Count(files)), float64(all.P50)/1e6, float64(hookP50)/1e6, "%.1f ms"),
		report.AtMost(fmt.Sprintf("a hook with %s files: p99 ≤ 50 ms", report.Count(files)), float64(all.P99)/1e6, float64(hookP99)/1e6, "%.1f ms"))
	r.Data = map[string][]time.Duration{"begin": begins, "end": ends, "true": nothing, "node": nodes}
	return nil
}
