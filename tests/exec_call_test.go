package tests

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/tests/harness"
)

// part runs a command as a part of a call, as the hooks of `umbra init --isolate`
// have agents do, and returns its status.
func (p *project) part(t *testing.T, call, line string) (status int, out, errOut string) {
	t.Helper()
	cmd := p.execCmd(t, "--call="+call, "--", "sh", "-c", line)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	_ = cmd.Run()
	execSkip(t, e.String())
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// TestExecOfACall: a command in the layer of a call that a hook began.
func TestExecOfACall(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "b": "one\n"})
	c := p.begin(t, "s", map[string]any{"tool": "Bash", "prompt_id": "turn"})
	status, out, errOut := p.part(t, c.CallID, "echo two > a; echo person > "+filepath.Join(p.dir, "..", filepath.Base(p.dir))+"/../outside; echo $UMBRA_CALL; exit 3")
	if status != 3 || out != c.CallID+"\n" {
		t.Fatalf("status %d: %s%s", status, out, errOut)
	}
	_ = os.Remove(filepath.Join(filepath.Dir(p.dir), "outside"))
	e := p.end(t, c, map[string]any{"status": "ok"})
	if got := e.text(); got != "a modify exact" || e.Entries[0].SubtaskID == nil || *e.Entries[0].SubtaskID != "turn" || *e.Entries[0].Tool != "Bash" {
		t.Errorf("%s", got)
	}
	if len(e.Overwrote) != 1 || e.Overwrote[0].Path != "a" {
		t.Errorf("overwrote: %+v", e.Overwrote)
	}

	// While it is open with a layer it is a candidate for nothing; without one, again.
	c = p.begin(t, "s", nil)
	p.post(t, "/layers", map[string]any{"call_id": c.CallID, "begun": true}).want(t, 201)
	p.post(t, "/layers", map[string]any{"call_id": c.CallID, "begun": true}).fails(t, 409, "call_exists")
	p.shell(t, "echo person > b")
	p.call(t, "DELETE", "/layers/"+c.CallID, nil).want(t, 204)
	p.shell(t, "echo shell > n")
	if got := p.end(t, c, nil).text(); got != "n create window" {
		t.Errorf("after the layer was dropped: %s", got)
	}
	for _, x := range p.log(t, c.WorkspaceID) {
		if x.Path == "b" && x.Source != "external" {
			t.Errorf("%+v", x)
		}
	}

	p.post(t, "/layers", map[string]any{"call_id": c.CallID, "begun": true}).fails(t, 409, "call_ended")
	p.post(t, "/layers", map[string]any{"call_id": "none", "begun": true}).fails(t, 404, "call_not_found")
	p.post(t, "/layers", map[string]any{"begun": true}).fails(t, 400, "invalid_field")
	p.post(t, "/layers", map[string]any{"call_id": c.CallID, "begun": true, "cwd": p.dir}).fails(t, 400, "invalid_field")
	p.post(t, "/tasks", map[string]any{"task_id": "v", "goal": "v", "kind": "virtual", "workspace": ""}).want(t, 201)
	var task struct {
		Workspace string `json:"workspace_id"`
	}
	p.call(t, "GET", "/tasks/v", nil).want(t, 200).into(t, &task)
	var v callBegun
	p.post(t, "/calls", map[string]any{"workspace_id": task.Workspace, "task_id": "v"}).want(t, 201).into(t, &v)
	p.post(t, "/layers", map[string]any{"call_id": v.CallID, "begun": true}).fails(t, 409, "no_layer")

	// It never holds an agent up: where there is no call or no server it runs plainly.
	if status, out, errOut := p.part(t, "none", "echo ran > plain; exit 4"); status != 4 || !strings.Contains(errOut, "without a layer") {
		t.Errorf("an unknown call: %d %s%s", status, out, errOut)
	}
	p.Kill()
	if status, _, errOut := p.part(t, c.CallID, "echo ran >> plain; exit 5"); status != 5 || !strings.Contains(errOut, "without a layer") {
		t.Errorf("no server: %d %s", status, errOut)
	}
	if got := p.read(t, "plain"); got != "ran\nran\n" {
		t.Errorf("%q", got)
	}
	for _, flag := range []string{"--dry-run", "--live", "--task=x", "--isolate=require"} {
		if status, _, _ := harness.Run(t, nil, "exec", "--call=c", flag, "--", "true"); status != 2 {
			t.Errorf("%s: status %d", flag, status)
		}
	}
}
