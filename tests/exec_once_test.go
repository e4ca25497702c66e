package tests

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/tests/harness"
)

// TestExecOnceOverAKill: a command that a killed server had begun is not run again when
// its request is sent again, on a directory and on a virtual workspace. The answer names
// its call and the layer that it left. A virtual workspace's directory is removed.
func TestExecOnceOverAKill(t *testing.T) {
	temp := t.TempDir()
	p := &project{Server: harness.Start(t, harness.Options{Config: "exec:\n  enabled: true\n", Env: []string{"TMPDIR=" + temp}}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "1\n"})
	k := p.task(t)
	p.post(t, "/tasks", map[string]any{"task_id": "v", "goal": "try", "kind": "virtual", "workspace": ""}).want(t, 201)
	isolated := k.run(t, map[string]any{"command": "true"}).Isolated
	for _, on := range []*taskOf{k, {p: p, ID: "v"}} {
		runs, begun := filepath.Join(t.TempDir(), "runs"), filepath.Join(t.TempDir(), "begun")
		body := map[string]any{"command": "echo run >> " + runs + "; echo 2 > a; : > " + begun + "; sleep 1000"}
		res := p.execEvents(t, t.Context(), on, "once-"+on.ID, body)
		eventually(t, func() bool { _, err := os.Stat(begun); return err == nil })
		p.Kill()
		res.Body.Close()
		p.Restart()
		var last struct {
			CallID string `json:"call_id"`
			Layer  *string
			Detail string
		}
		for range 2 {
			a := p.post(t, on.url("/exec"), body, "Idempotency-Key", "once-"+on.ID)
			a.fails(t, http.StatusConflict, "command_interrupted")
			if a.into(t, &last); a.head("Idempotent-Replay") != "true" || last.CallID == "" || (last.Layer != nil) != (isolated && on == k) {
				t.Errorf("%s: %q %s", on.ID, a.head("Idempotent-Replay"), a.Body)
			}
		}
		var call struct{ Status string }
		eventually(t, func() bool {
			p.call(t, "GET", "/calls/"+last.CallID, nil).want(t, 200).into(t, &call)
			return call.Status != "open"
		})
		if call.Status != "lost" {
			t.Errorf("%s: the call is %s", on.ID, call.Status)
		}
		other := map[string]any{"command": "echo other >> " + runs}
		p.post(t, on.url("/exec"), other, "Idempotency-Key", "once-"+on.ID).fails(t, 422, "idempotency_key_reused")
		if raw, err := os.ReadFile(runs); err != nil || string(raw) != "run\n" {
			t.Errorf("%s: %q %v", on.ID, raw, err)
		}
		p.post(t, on.url("/exec"), other, "Idempotency-Key", "again-"+on.ID).want(t, 200)
		if raw, err := os.ReadFile(runs); err != nil || string(raw) != "run\nother\n" {
			t.Errorf("%s, with another key: %q %v", on.ID, raw, err)
		}
		eventually(t, func() bool {
			left, err := filepath.Glob(filepath.Join(temp, "umbra-exec-*"))
			return err == nil && len(left) == 0
		})
		if isolated && on == k {
			eventually(t, func() bool {
				return p.post(t, "/layers/"+*last.Layer+"/apply", map[string]any{}).Status == 200
			})
			if got := p.read(t, "a"); got != "2\n" {
				t.Errorf("the layer that was left: %q", got)
			}
		}
	}
}

// TestExecIsolatedVirtual: a command on a virtual workspace has a directory of its own,
// which is what isolation requires.
func TestExecIsolatedVirtual(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "exec:\n  enabled: true\n"}), dir: t.TempDir()}
	p.post(t, "/tasks", map[string]any{"task_id": "v", "goal": "try", "kind": "virtual", "workspace": ""}).want(t, 201)
	v := &taskOf{p: p, ID: "v"}
	a := v.run(t, map[string]any{"command": "echo 1 > a", "isolate": "require"})
	if a.ExitCode == nil || *a.ExitCode != 0 || !a.Isolated || len(a.Entries) != 1 {
		t.Errorf("%+v", a)
	}
	if a := v.run(t, map[string]any{"command": "cat a", "isolate": "try"}); a.Stdout != "1\n" || !a.Isolated {
		t.Errorf("%+v", a)
	}
	// umbra exec runs its command in a directory of this machine, of which there is none.
	for _, flags := range [][]string{nil, {"--isolate=require"}, {"--live"}, {"--dry-run"}} {
		cmd := p.execCmd(t, append(append([]string{"--task=v"}, flags...), "--", "sh", "-c", "echo 2 > ran")...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 69 || !strings.Contains(string(out), "task v is virtual") || !strings.Contains(string(out), "POST /tasks/v/exec") {
			t.Errorf("%v: %d %v: %s", flags, code, err, out)
		}
		p.absent(t, "ran")
	}
}
