package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// Four attempts at once, of which the judge likes the second most; one merge brings
// it, and all forks go.
func TestRace(t *testing.T) {
	p := newProject(t, map[string]string{"sum": "0\n", "notes": "x\n"})
	p.task(t)
	script := `case {n} in 1) echo 1 > sum;; 2) echo 4 > sum; echo more >> notes;; 3) echo bad > sum; exit 3;; 4) sleep 100;; esac; echo done $UMBRA_FORK`
	status, out, said := p.verb(t, "race", "4", "--json", "--timeout", "12s", "--judge", `grep -q '^[1-9]' sum && cat sum`, "--merge", "best", "--", "sh", "-c", script)
	if status != 0 {
		t.Fatalf("%d %s %s", status, out, said)
	}
	var result struct {
		Forks []struct {
			N, Files        int
			Root            string
			Exit_Code       int
			Timed_Out       bool
			Passed          bool
			Score           *float64
			Judge_Exit_Code *int
		}
		Best, Merged *int
		Kept         bool
	}
	need.NoError(t, json.Unmarshal([]byte(out), &result))
	f := result.Forks
	if len(f) != 4 || result.Best == nil || *result.Best != 2 || result.Merged == nil || *result.Merged != 2 || result.Kept {
		t.Fatalf("%s", out)
	}
	if !f[0].Passed || *f[0].Score != 1 || f[1].Files != 2 || *f[1].Score != 4 || f[2].Exit_Code != 3 || f[2].Passed || !f[3].Timed_Out || f[3].Passed {
		t.Errorf("%s", out)
	}
	if !strings.Contains(said, "[2] done 2\n") {
		t.Errorf("said %q", said)
	}
	if p.read(t, "sum") != "4\n" || p.read(t, "notes") != "x\nmore\n" {
		t.Errorf("the best was not merged: %q", p.read(t, "sum"))
	}
	for _, a := range f {
		if _, err := os.Stat(a.Root); err == nil {
			t.Errorf("%s is still there", a.Root)
		}
	}
	if status, out, _ := p.verb(t, "forks"); status != 0 || !strings.Contains(out, "no forks") {
		t.Errorf("%d %s", status, out)
	}
	if status, _, _ := p.verb(t, "race", "2", "--", "false"); status != 1 {
		t.Errorf("a race that nobody won ends with %d", status)
	}
	// The forks stay, each with its judgment.
	ws := p.call(t, "GET", "/workspaces", nil).want(t, 200).list(t, "workspaces")
	judged := 0
	for _, w := range ws {
		if j, ok := w["judged"].(map[string]any); ok {
			if judged++; j["passed"] != false || fmt.Sprint(j["exit_code"]) != "1" || j["score"] != nil || j["at"] == "" {
				t.Errorf("%v", j)
			}
		}
	}
	if judged != 2 {
		t.Errorf("%d forks are judged", judged)
	}
	if status, _, _ := p.verb(t, "race", "none", "--", "true"); status != 2 {
		t.Errorf("wrong use ends with %d", status)
	}
}

// The single steps: a fork, a command in it, and a merge with a conflict.
func TestForkVerbs(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "b": "one\n"})
	p.task(t)
	dir := filepath.Join(t.TempDir(), "attempt")
	status, out, said := p.verb(t, "fork", dir, "--json")
	if status != 0 {
		t.Fatalf("%d %s %s", status, out, said)
	}
	var made struct{ Forks []struct{ ID string } }
	need.NoError(t, json.Unmarshal([]byte(out), &made))
	id := made.Forks[0].ID
	if status, out, said := p.verb(t, "in", id, "--", "sh", "-c", "echo fork > a; echo fork > b; pwd; exit 7"); status != 7 || strings.TrimSpace(out) != dir {
		t.Fatalf("%d %q %s", status, out, said)
	}
	p.put(t, "a", "parent\n")
	if status, out, _ := p.verb(t, "merge", id); status != 1 || !strings.Contains(out, "conflict  a (content)") || p.read(t, "b") != "one\n" {
		t.Fatalf("%d %s", status, out)
	}
	if status, out, said := p.verb(t, "merge", "attempt", "--on-conflict", "skip"); status != 0 || p.read(t, "b") != "fork\n" || p.read(t, "a") != "parent\n" {
		t.Fatalf("%d %s %s", status, out, said)
	}
	if status, out, _ := p.verb(t, "forks"); status != 0 || !strings.Contains(out, dir) {
		t.Errorf("%d %s", status, out)
	}
}

// A git project that no agent has worked in yet becomes a workspace when it is forked; any other
// directory does not.
func TestForkOfAProject(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/b": "b\n"})
	if status, _, said := p.verb(t, "fork"); status != 1 || !strings.Contains(said, "in no workspace") {
		t.Errorf("%d %s", status, said)
	}
	harness.Git(t, p.dir, "init", "-q")
	whole := p.dir
	p.dir = filepath.Join(whole, "d")
	status, out, said := p.verb(t, "race", "2", "--judge", "grep -q 2 n", "--merge", "best", "--", "sh", "-c", "echo $UMBRA_FORK > n")
	if p.dir = whole; status != 0 || !strings.Contains(said, whole+" is a workspace now") || p.read(t, "n") != "2\n" {
		t.Errorf("%d %s%s", status, out, said)
	}
	// A fork is named by its name or its directory, too.
	dir := filepath.Join(t.TempDir(), "attempt")
	for _, args := range [][]string{{"fork", dir, "--kind", "copy", "--name", "try"}, {"in", "try", "--", "sh", "-c", "echo in > a"}, {"in", dir, "--", "sh", "-c", "cat a"},
		{"merge", dir, "--dry-run"}, {"merge", "try"}} {
		if status, out, said := p.verb(t, args...); status != 0 || strings.Contains(said, "now") {
			t.Errorf("%q: %d %s%s", args, status, out, said)
		}
	}
	if got := p.read(t, "a"); got != "in\n" {
		t.Errorf("a has %q", got)
	}
	p.verb(t, "fork", "--kind", "virtual", "--name", "try")
	for name, want := range map[string]string{"try": "several forks", "other": "not found"} {
		if status, _, said := p.verb(t, "merge", name); status == 0 || !strings.Contains(said, want) {
			t.Errorf("%s: %d %s", name, status, said)
		}
	}
	// Another project's forks are not named here.
	p.verb(t, "fork", "--kind", "virtual", "--name", "lone")
	whole, p.dir = p.dir, t.TempDir()
	p.post(t, "/tasks", map[string]any{"workspace": p.dir, "goal": "another project"}).want(t, 201)
	if status, _, said := p.verb(t, "merge", "lone"); status == 0 || !strings.Contains(said, "fork lone not found") {
		t.Errorf("%d %s", status, said)
	}
	if status, _, said := p.verb(t, "in", dir, "--", "true"); status != 0 {
		t.Errorf("%d %s", status, said)
	}
	if p.dir = whole; p.read(t, "a") != "in\n" {
		t.Error("something was merged")
	}
	if status, _, said := p.verb(t, "merge", "lone", "--dry-run"); status != 0 {
		t.Errorf("%d %s", status, said)
	}
}

// Ctrl-C ends all commands of a race and keeps nothing, but with --keep.
func TestRaceInterrupted(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	p.task(t)
	for _, keep := range []bool{false, true} {
		signs := t.TempDir()
		args := []string{"race", "2"}
		if keep {
			args = append(args, "--keep")
		}
		cmd := harness.Command(t, []string{"UMBRA_DATA_DIR=" + p.DataDir}, append(args, "--", "sh", "-c", "echo fork > a; : > "+signs+"/$UMBRA_FORK; exec sleep 1000")...)
		cmd.Dir = p.dir
		need.NoError(t, cmd.Start())
		eventually(t, func() bool { list, err := os.ReadDir(signs); return err == nil && len(list) == 2 })
		need.NoError(t, cmd.Process.Signal(os.Interrupt))
		if err := cmd.Wait(); err == nil {
			t.Error("a race that was interrupted ends well")
		}
		status, out, _ := p.verb(t, "forks")
		if kept := strings.Count(out, "race-"); status != 0 || keep && kept == 0 || !keep && kept > 0 {
			t.Errorf("keep %v: %d %s", keep, status, out)
		}
		if p.read(t, "a") != "one\n" {
			t.Error("something was merged")
		}
	}
}

// A race of which the server refuses something keeps what the attempts made. A judge is as long as
// its author wants it.
func TestRaceFails(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	if status, _, said := p.verb(t, "race", "2", "--", "sh", "-c", `if [ {n} = 1 ]; then rm -r "$PWD"; else echo work > a; fi`); status != 1 || !strings.Contains(said, "the forks stay") {
		t.Errorf("%d %s", status, said)
	}
	kept := 0
	for _, f := range p.call(t, "GET", ws+"/forks", nil).want(t, 200).list(t, "forks") {
		if data, err := os.ReadFile(filepath.Join(f["root"].(string), "a")); err == nil && string(data) == "work\n" {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("%d forks have the work of the second attempt", kept)
	}
	if status, _, said := p.verb(t, "race", "1", "--judge", "true # "+strings.Repeat("ü", 5000), "--merge", "best", "--", "sh", "-c", "echo long > a"); status != 0 || p.read(t, "a") != "long\n" {
		t.Errorf("%d %s", status, said)
	}
}

// Two forks are merged by subtask; the one real conflict names whose lines they are.
func TestForkVerbsBySubtask(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "b": "one\n", "c": "one\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	var ids []string
	for _, who := range []string{"ann", "bob"} {
		id := p.forks(t, ws, map[string]any{"kind": "virtual", "name": who})[0]["id"].(string)
		p.post(t, "/tasks", map[string]any{"task_id": "of-" + who, "workspace": id, "goal": "try"}).want(t, 201)
		for path, subtask := range map[string]string{"a": "shared", map[string]string{"ann": "b", "bob": "c"}[who]: "own"} {
			p.call(t, "PUT", "/tasks/of-"+who+"/content?path="+path, []byte(who+"\n"), "X-Actor", who, "X-Subtask-Id", subtask).want(t, 200)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if status, out, said := p.verb(t, "merge", id, "--subtask", "own"); status != 0 {
			t.Fatalf("%d %s%s", status, out, said)
		}
	}
	if p.read(t, "a") != "one\n" || p.read(t, "b") != "ann\n" || p.read(t, "c") != "bob\n" {
		t.Fatalf("%q %q %q", p.read(t, "a"), p.read(t, "b"), p.read(t, "c"))
	}
	if status, out, said := p.verb(t, "merge", ids[0]); status != 0 || p.read(t, "a") != "ann\n" {
		t.Fatalf("%d %s%s", status, out, said)
	}
	status, out, _ := p.verb(t, "merge", ids[1])
	if status != 1 || !strings.Contains(out, "conflict  a (content)") || !strings.Contains(out, "here: ann, task merge-"+ids[0]+"-2, subtask shared") || !strings.Contains(out, "there: bob, task of-bob, subtask shared") {
		t.Errorf("%d %s", status, out)
	}
	if p.read(t, "a") != "ann\n" {
		t.Error("a conflict changed the file")
	}
}

// Four scripted agents fix a program, each in its own way; only one makes the tests pass.
func TestRaceOfAgents(t *testing.T) {
	need.Tool(t, "make")
	p := newProject(t, map[string]string{
		"Makefile": "test:\n\t@sh test.sh\n",
		"test.sh":  "set -e\n. ./add.sh\ntest $(add 2 3) = 5\ntest $(add -1 1) = 0\necho ok\n",
		"add.sh":   "add() { echo $(($1 - $2)); }\n",
		"agent.sh": `set -e
case $1 in
1) echo 'add() { echo 5; }' > add.sh;;                          # just what the first case wants
2) sed -i 's/- /+ +/; s/$2/{2/' add.sh;;                         # breaks it
3) sed -i 's/- /+ /' add.sh; echo 'Adds, not subtracts.' > NOTES;; # the fix
4) printf 'test:\n\t@false\n' > Makefile; rm add.sh; exit 1;;     # gives up
esac
`,
	})
	task := p.task(t)
	if out, err := exec.Command("make", "-C", p.dir, "test").CombinedOutput(); err == nil {
		t.Fatalf("the tests pass before: %s", out)
	}
	status, out, said := p.verb(t, "race", "4", "--json", "--judge", "make test", "--merge", "best", "--keep", "--", "sh", "agent.sh", "{n}")
	if status != 0 {
		t.Fatalf("%d %s %s", status, out, said)
	}
	var result struct {
		Forks []struct {
			N      int
			Fork   string
			Passed bool
		}
		Best, Merged *int
	}
	need.NoError(t, json.Unmarshal([]byte(out), &result))
	if len(result.Forks) != 4 || result.Best == nil || *result.Best != 3 || result.Merged == nil || *result.Merged != 3 {
		t.Fatalf("%s", out)
	}
	for _, f := range result.Forks {
		j, _ := p.call(t, "GET", "/workspaces/"+f.Fork, nil).want(t, 200).obj(t)["judged"].(map[string]any)
		if f.Passed != (f.N == 3) || j["passed"] != f.Passed || j["command"] != "make test" {
			t.Errorf("%+v, recorded as %v", f, j)
		}
	}
	if out, err := exec.Command("make", "-C", p.dir, "test").CombinedOutput(); err != nil || p.read(t, "NOTES") != "Adds, not subtracts.\n" {
		t.Errorf("the winner was not merged: %v %s", err, out)
	}
	// What the losers did stays in their forks; one revert takes the merge back.
	log := p.log(t, task.str("workspace_id"))
	p.post(t, "/tasks/"+*log[0].TaskID+"/revert", map[string]any{}).want(t, 200)
	p.absent(t, "NOTES")
}
