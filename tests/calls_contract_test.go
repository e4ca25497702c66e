package tests

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/tests/harness"
)

// TestCallsRecordCommands: the hash of a command is in history where the settings say so,
// and the command itself never is.
func TestCallsRecordCommands(t *testing.T) {
	const command = "echo two > a # quarterly-figures"
	sum := sha256.Sum256([]byte(command))
	hash := hex.EncodeToString(sum[:])
	for _, x := range []struct{ config, want string }{{"", ""}, {"calls:\n  record_commands: hash\n", hash}} {
		p := &project{Server: harness.Start(t, harness.Options{Config: x.config}), dir: t.TempDir()}
		p.fill(t, map[string]string{"a": "one\n"})
		c := p.begin(t, "s", map[string]any{"command_sha256": strings.ToUpper(hash), "goal": "g"})
		p.shell(t, command)
		e := p.end(t, c, nil)
		if runtime.GOOS == "linux" {
			cmd := p.execCmd(t, "--agent=a", "--session=s", "--", "sh", "-c", "echo three > b # quarterly-figures")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		dir := gitDirOf(t, p, c.WorkspaceID)
		p.post(t, "/workspaces/"+c.WorkspaceID+"/sync", map[string]any{}).want(t, 200)
		if got := strings.TrimSpace(harness.Git(t, dir, "log", "-1", "--format=%(trailers:key=Command-Hash,valueonly)", e.Commits[0])); got != x.want {
			t.Errorf("%q: Command-Hash is %q, want %q", x.config, got, x.want)
		}
		if all := harness.Git(t, dir, "log", "--all", "--format=%B"); strings.Contains(all, "quarterly-figures") {
			t.Errorf("%q: the command is in history: %s", x.config, all)
		}
	}
	if status, _, errOut := harness.Run(t, []string{"UMBRA_CALLS_RECORD_COMMANDS=text"}, "serve", "--listen", "127.0.0.1:0"); status != 2 || !strings.Contains(errOut, "calls.record_commands") {
		t.Errorf("a wrong setting: %d %s", status, errOut)
	}
}

// TestCallsByKey: a request with an idempotency key is done once, also over a restart.
func TestCallsByKey(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	body := map[string]any{"agent": "codex", "agent_session": "s", "cwd": p.dir}
	keyed := func(path, key string, body map[string]any) *answer {
		t.Helper()
		return p.post(t, path, body, "Idempotency-Key", key)
	}
	var c callBegun
	first := keyed("/calls", "k1", body).want(t, 201)
	first.into(t, &c)
	again := func(what string, r, was *answer) {
		t.Helper()
		if r.Status != was.Status || !bytes.Equal(r.Body, was.Body) || r.head("Idempotent-Replay") != "true" {
			t.Errorf("%s: %d %q %s", what, r.Status, r.head("Idempotent-Replay"), r.Body)
		}
	}
	again("begin", keyed("/calls", "k1", body), first)
	other := map[string]any{"agent": "codex", "agent_session": "t", "cwd": p.dir}
	if r := keyed("/calls", "k1", other); r.Status != 422 || !strings.Contains(string(r.Body), "idempotency_key_reused") {
		t.Errorf("the key of another request: %d %s", r.Status, r.Body)
	}
	touched := keyed("/calls/"+c.CallID+"/touch", "k2", map[string]any{}).want(t, 200)
	again("touch", keyed("/calls/"+c.CallID+"/touch", "k2", map[string]any{}), touched)
	p.put(t, "a", "two\n")
	ended := keyed("/calls/"+c.CallID+"/end", "k3", map[string]any{}).want(t, 200)
	again("end", keyed("/calls/"+c.CallID+"/end", "k3", map[string]any{}), ended)
	undone := keyed("/calls/"+c.CallID+"/revert", "k4", map[string]any{}).want(t, 200)
	if got := p.read(t, "a"); got != "one\n" {
		t.Errorf("after the revert: %q", got)
	}
	p.put(t, "a", "three\n")
	again("revert", keyed("/calls/"+c.CallID+"/revert", "k4", map[string]any{}), undone)
	p.crash()
	again("revert after a kill", keyed("/calls/"+c.CallID+"/revert", "k4", map[string]any{}), undone)
	again("begin after a kill", keyed("/calls", "k1", body), first)
	if got := p.read(t, "a"); got != "three\n" {
		t.Errorf("after the repeats: %q", got)
	}
}

// killUnanswered kills a server and starts it again, as if it had been killed before it kept
// any answer.
func killUnanswered(t *testing.T, s *harness.Server) {
	t.Helper()
	s.Kill()
	db, err := state.Open(filepath.Join(s.DataDir, "state.db"))
	need.NoError(t, err)
	err = db.Update(func(tx *state.Tx) error { return tx.DeleteBucket("answers") })
	need.NoError(t, errors.Join(err, db.Close(), os.Remove(filepath.Join(s.DataDir, "answers.log"))))
	s.Restart()
}

// TestCallsByKeyOverAKill: a begin whose answer was lost with the server is answered as it
// would have been when it is sent again, and begins no second call.
func TestCallsByKeyOverAKill(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	body := map[string]any{"agent": "codex", "agent_session": "s", "cwd": p.dir}
	begin := func(key string) (c callBegun, replayed bool) {
		t.Helper()
		r := p.post(t, "/calls", body, "Idempotency-Key", key).want(t, 201)
		r.into(t, &c)
		return c, r.head("Idempotent-Replay") == "true"
	}
	first, _ := begin("k1")
	killUnanswered(t, p.Server)
	again, replayed := begin("k1")
	if again.CallID != first.CallID || again.TaskID != first.TaskID || again.At != first.At || !replayed {
		t.Errorf("%+v, replayed: %v, want %+v", again, replayed, first)
	}
	if other, replayed := begin("k2"); other.CallID == first.CallID || replayed {
		t.Errorf("another key: %+v, replayed: %v", other, replayed)
	}
	var list struct{ Calls []any }
	if p.call(t, "GET", "/calls", nil).want(t, 200).into(t, &list); len(list.Calls) != 2 {
		t.Errorf("calls: %v", list.Calls)
	}
}

// TestCallsCarried: what history says of a call is in events, bundles, replays and
// exports as well.
func TestCallsCarried(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "one\n"})
	repository(t, p.dir)
	call := map[string]any{"tool": "Bash", "model": "m-1", "prompt_id": "turn-1"}
	first := p.begin(t, "s", call)
	s := p.events(t, "/workspaces/"+first.WorkspaceID+"/stream")
	p.put(t, "a", "two\n")
	p.end(t, first, nil)
	one, two := p.begin(t, "s", call), p.begin(t, "u", nil)
	p.put(t, "b", "shared\n")
	p.end(t, two, nil)
	p.end(t, one, nil)
	for _, want := range []string{fmt.Sprintf("a %s Bash window []", first.CallID), fmt.Sprintf("b - - shared [%s %s]", one.CallID, two.CallID)} {
		e, ok := s.next(t)
		for ok && e.Name != "change" {
			e, ok = s.next(t)
		}
		list, _ := e.Data["entries"].([]any)
		if len(list) != 1 {
			t.Fatalf("event: %+v", e)
		}
		entry := list[0].(map[string]any)
		text := func(name string) string {
			if v, ok := entry[name].(string); ok {
				return v
			}
			return "-"
		}
		claimants, _ := entry["claimants"].([]any)
		if got := fmt.Sprintf("%s %s %s %s %v", text("path"), text("call_id"), text("tool"), text("certainty"), claimants); got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
	p.post(t, "/workspaces/"+first.WorkspaceID+"/sync", map[string]any{}).want(t, 200)
	const trailers = "--format=%(trailers:key=Call-Id,valueonly,separator=%x2C) %(trailers:key=Tool,valueonly,separator=%x2C) %(trailers:key=Model,valueonly,separator=%x2C) " +
		"%(trailers:key=Prompt-Id,valueonly,separator=%x2C) %(trailers:key=Certainty,valueonly,separator=%x2C) %(trailers:key=Source,valueonly,separator=%x2C)"
	want := first.CallID + " Bash m-1 turn-1 window call"
	carries := func(what, dir, at string) {
		t.Helper()
		if all := harness.Git(t, dir, "log", trailers, at); !slices.Contains(strings.Split(all, "\n"), want) {
			t.Errorf("%s: %q is not among\n%s", what, want, all)
		}
	}
	dir := gitDirOf(t, p, first.WorkspaceID)
	carries("history", dir, "refs/umbra/head")

	bundle := filepath.Join(t.TempDir(), "task.bundle")
	need.NoError(t, os.WriteFile(bundle, p.call(t, "GET", "/tasks/"+first.TaskID+"/bundle", nil).want(t, 200).Body, 0o600))
	taken := t.TempDir()
	harness.Git(t, taken, "init", "-q", "--bare")
	harness.Git(t, taken, "fetch", "-q", dir, "refs/umbra/tasks/"+first.TaskID+"/base:refs/heads/base")
	harness.Git(t, taken, "fetch", "-q", bundle, "refs/*:refs/taken/*")
	carries("a bundle", taken, "--all")

	for _, squash := range []string{"none", "task"} {
		export(t, 0, first.TaskID, "--data-dir", p.DataDir, "--repo", p.dir, "--branch", "agent/"+squash, "--squash", squash)
		carries("an export, --squash "+squash, p.dir, "agent/"+squash)
	}
	if r := replay(t, 0, "--from", dir, "--task", first.TaskID, "--onto", p.dir+"@main", "--commit", "replayed"); !r.OK {
		t.Errorf("%+v", r)
	}
	carries("a replay", p.dir, "replayed")
}

// withoutLayers runs umbra exec where the kernel makes no namespaces, and returns its
// status and standard error.
func withoutLayers(t *testing.T, p *project, flags ...string) (status int, errOut string) {
	t.Helper()
	inner := harness.Command(t, harness.Env(t), append(append([]string{"exec", "--server", p.URL, "--agent=a", "--session=s"}, flags...), "--", "sh", "-c", "echo by-exec > made")...)
	args := append([]string{"--user", "--map-root-user", "sh", "-c", `echo 0 > /proc/sys/user/max_user_namespaces && echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"`, "sh"}, inner.Args...)
	cmd := exec.Command("unshare", args...)
	cmd.Env, cmd.Dir = inner.Env, p.dir
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Run(); err != nil {
		if _, exited := errors.AsType[*exec.ExitError](err); !exited {
			t.Fatal(err)
		}
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// TestExecWithoutLayers: where the system gives no layer the command runs live and says
// so, but not with --isolate=require, nor as a dry run.
func TestExecWithoutLayers(t *testing.T) {
	need.Tool(t, "unshare")
	p := newProject(t, map[string]string{"a": "one\n"})
	if r, _, _ := p.exec(t, "true"); r.ExitCode != 0 { // a layer is not refused for another reason
		t.Fatalf("%+v", r)
	}
	for _, flags := range [][]string{{"--isolate=require"}, {"--dry-run"}} {
		if status, errOut := withoutLayers(t, p, flags...); status != 69 || errOut == "" {
			t.Errorf("%v: status %d: %s", flags, status, errOut)
		}
		p.absent(t, "made")
	}
	if status, errOut := withoutLayers(t, p, "--isolate=require", "--json"); status != 69 || !strings.Contains(errOut, `"exit_code":69`) {
		t.Errorf("--json: status %d: %s", status, errOut)
	}
	for _, flags := range [][]string{{"--isolate=try"}, nil} {
		status, errOut := withoutLayers(t, p, flags...)
		if status != 0 || !strings.Contains(errOut, "runs without a layer") || p.read(t, "made") != "by-exec\n" {
			t.Errorf("%v: status %d: %s", flags, status, errOut)
		}
		log := p.log(t, p.workspace(t))
		if e := log[0]; e.text() != "made create window" || e.Source != "call" || e.CallID == nil {
			t.Errorf("%v: %+v", flags, e)
		}
		need.NoError(t, os.Remove(filepath.Join(p.dir, "made")))
		p.post(t, "/workspaces/"+p.workspace(t)+"/sync", map[string]any{}).want(t, 200)
	}
	var layers struct{ Layers []any }
	p.call(t, "GET", "/layers", nil).want(t, 200).into(t, &layers)
	if len(layers.Layers) > 0 {
		t.Errorf("left: %v", layers.Layers)
	}
}

// TestUndoOutsideAWorkspace: no agent has worked in a directory that no workspace
// contains, so there is nothing to undo, which is no failure.
func TestUndoOutsideAWorkspace(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"undo"}, "nothing to undo: this directory is in no workspace"}, {[]string{"undo", "--yes"}, "nothing to undo: this directory is in no workspace"},
		{[]string{"redo"}, "nothing to redo: this directory is in no workspace"}, {[]string{"turns"}, "no turns: this directory is in no workspace"},
		{[]string{"turns", "--json"}, "[]"}, {[]string{"undo", "--json"}, `{"dry_run":false,"steps":[]}`},
	} {
		if status, out, errOut := p.verb(t, x.args...); status != 0 || strings.TrimSpace(out) != x.want || errOut != "" {
			t.Errorf("%q: status %d: %s%s", x.args, status, out, errOut)
		}
	}
	if status, _, errOut := p.verb(t, "undo", "--workspace", "none"); status != 1 || errOut == "" {
		t.Errorf("an unknown workspace: status %d: %s", status, errOut)
	}
	var list struct{ Workspaces []any }
	if p.call(t, "GET", "/workspaces", nil).want(t, 200).into(t, &list); len(list.Workspaces) > 0 {
		t.Errorf("opened: %v", list.Workspaces)
	}
}

// TestUndoOfGitsOwn: what an agent's git or rm destroyed comes back, without a commit
// of it.
func TestUndoOfGitsOwn(t *testing.T) {
	for _, command := range []string{"git checkout .", "git reset -q --hard", "git clean -fdq", "git stash -q -u", "rm -rf src notes new", "git checkout -q HEAD~1", "git restore src/a"} {
		p := newProject(t, map[string]string{"src/a": "one\n", "src/b": "b\n"})
		repository(t, p.dir)
		p.shell(t, "echo c > src/c; git add -A; git -c user.name=x -c user.email=x@invalid commit -qm second")
		p.shell(t, "echo unsaved >> src/a; echo 'not added' > notes; mkdir new; echo deep > new/deep")
		tree := func() string { // without .git, which is git's
			lines := slices.Collect(strings.Lines(need.Tree(t, p.dir)))
			return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, ".git") }), "")
		}
		before := tree()
		c := p.begin(t, "s", map[string]any{"tool": "Bash"})
		p.shell(t, "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@invalid GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@invalid; "+strings.Replace(command, "git checkout -q HEAD~1", "git stash -q -u; git checkout -q HEAD~1", 1))
		p.end(t, c, nil)
		if tree() == before {
			t.Fatalf("%s changes nothing", command)
		}
		if status, out, errOut := p.verb(t, "undo", "--yes"); status != 0 {
			t.Errorf("%s: status %d: %s%s", command, status, out, errOut)
		}
		if got := tree(); got != before {
			t.Errorf("%s: after the undo\n%s\nwant\n%s", command, got, before)
		}
		p.Stop()
	}
}

// TestCallOthers: a begin says what others changed since the session's last call, newest
// first, a path once, twenty at most.
func TestCallOthers(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n2\n3\n4\n5\n6\n"})
	p.put(t, "early", "x\n")
	first := p.begin(t, "s", nil)
	if first.Others == nil || len(first.Others) != 0 {
		t.Errorf("at the first call: %+v", first.Others)
	}
	p.put(t, "own", "x\n")
	p.end(t, first, nil)
	sync := func() {
		t.Helper()
		p.post(t, "/workspaces/"+first.WorkspaceID+"/sync", map[string]any{}).want(t, 200)
	}
	for i := range 25 {
		p.put(t, fmt.Sprintf("f%02d", i), "x\n")
		sync()
	}
	other := p.begin(t, "other", nil)
	p.put(t, "a", "1\ntwo\n3\n4\nfive\n6\n")
	p.put(t, "f00", "again\n")
	p.end(t, other, nil)
	var c struct {
		callBegun
		More int `json:"others_more"`
	}
	p.post(t, "/calls", map[string]any{"agent": "codex", "agent_session": "s", "cwd": p.dir}).want(t, 201).into(t, &c)
	var got []string
	for _, o := range c.Others {
		line := o.Path + " " + o.Operation + " " + o.Source
		if o.Lines != nil {
			line += " " + *o.Lines
		}
		got = append(got, line)
	}
	if len(got) != 20 || c.More != 6 {
		t.Fatalf("%d others and %d more: %q", len(got), c.More, got)
	}
	slices.Sort(got[:2]) // of one commit
	if want := []string{"a modify call 2-2,5-5", "f00 modify call 1-1", "f24 create external 1-1", "f23 create external 1-1"}; !slices.Equal(got[:4], want) {
		t.Errorf("%q, want %q", got[:4], want)
	}
}

// TestSecondServer: a server that opens the directory of another one that runs says so,
// and only then.
func TestSecondServer(t *testing.T) {
	if runtime.GOOS != "linux" {
		need.Missing(t, "marks of directories need Linux")
	}
	first := newProject(t, map[string]string{"a": "one\n"})
	second := &project{Server: harness.Start(t, harness.Options{}), dir: first.dir}
	warned := func(p *project) bool {
		t.Helper()
		var w struct{ Warnings []string }
		p.call(t, "GET", "/workspaces/"+p.workspace(t), nil).want(t, 200).into(t, &w)
		return slices.ContainsFunc(w.Warnings, func(s string) bool { return strings.Contains(s, "another server") })
	}
	names := func() string {
		t.Helper()
		list, err := os.ReadDir(first.dir)
		need.NoError(t, err)
		return fmt.Sprint(list)
	}
	before := names()
	first.task(t)
	if warned(first) {
		t.Error("the first is warned")
	}
	first.crash()
	if warned(first) {
		t.Error("the first is warned of itself")
	}
	second.task(t)
	if !warned(second) {
		t.Error("the second is not warned")
	}
	if now := names(); now != before {
		t.Errorf("the directory has %s, and had %s", now, before)
	}
	first.Kill()
	second.restart()
	if warned(second) {
		t.Error("the second is warned of one that was killed")
	}
	first.Restart()
}
