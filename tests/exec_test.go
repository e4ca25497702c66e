package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// execResult is the last line of umbra exec --json.
type execResult struct {
	ExitCode  int         `json:"exit_code"`
	CallID    string      `json:"call_id"`
	Commit    *string     `json:"commit"`
	Entries   []callEntry `json:"entries"`
	Conflicts []struct{ Path, Reason string }
	Layer     *string
}

func (r execResult) text() string { return callEnded{Entries: r.Entries}.text() }

// occupied reports whether all conflicts are of directories that keep their places: an
// ignored file in one keeps what would take its place.
func (r execResult) occupied() bool {
	for _, c := range r.Conflicts {
		if c.Reason != "occupied" {
			return false
		}
	}
	return r.ExitCode == 75 && len(r.Conflicts) > 0
}

// execCmd is umbra exec in the project, with a layer.
func (p *project) execCmd(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if runtime.GOOS != "linux" {
		need.Missing(t, "layers need Linux")
	}
	cmd := harness.Command(t, harness.Env(t), append([]string{"exec", "--server", p.URL}, args...)...)
	cmd.Dir = p.dir
	return cmd
}

// exec runs a shell command in a layer. The test is left out where the system
// gives none.
func (p *project) exec(t *testing.T, line string, flags ...string) (r execResult, stdout, stderr string) {
	t.Helper()
	cmd := p.execCmd(t, append(append([]string{"--isolate=require", "--json", "--agent=a", "--session=s"}, flags...), "--", "sh", "-c", line)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return execAnswer(t, cmd, out.String(), errOut.String())
}

func execAnswer(t *testing.T, cmd *exec.Cmd, out, errOut string) (r execResult, stdout, stderr string) {
	t.Helper()
	execSkip(t, errOut)
	lines := strings.Split(strings.TrimSpace(errOut), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatalf("%v: %s", err, errOut)
	}
	if got := cmd.ProcessState.ExitCode(); got != r.ExitCode {
		t.Errorf("exit status %d, and %d in JSON", got, r.ExitCode)
	}
	return r, out, errOut
}

// execSkip leaves a test out where the system gives no layer.
func execSkip(t *testing.T, errOut string) {
	t.Helper()
	if strings.Contains(errOut, "umbra: exec: no layer") {
		need.Missing(t, errOut)
	}
}

func TestExec(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/x": "x\n", "d/y": "y\n", ".gitignore": "out/\n*.o\n", "out/old": "old", "k.o": "k"})
	r, out, _ := p.exec(t, `echo two >> a; rm d/x; mv d/y d/z; rm -r out k.o; mkdir -p out/deep; echo m > out/deep/m; ln -s a l; echo "$UMBRA_CALL $UMBRA_TASK"; chmod 700 d; exit 3`)
	if r.ExitCode != 3 || r.Commit == nil || len(r.Conflicts) != 0 || r.Layer != nil {
		t.Fatalf("%+v", r)
	}
	if got := r.text(); got != "d/x delete exact, d/y rename exact, a modify exact, l symlink exact" && got != "d/x delete exact, d/y rename exact, a modify exact, l create exact" {
		t.Error(got)
	}
	if e := r.Entries[0]; e.CallID == nil || *e.CallID != r.CallID || e.TaskID == nil || out != r.CallID+" "+*e.TaskID+"\n" || e.Source != "call" {
		t.Errorf("%+v %q", e, out)
	}
	if p.read(t, "a") != "one\ntwo\n" || p.read(t, "d/z") != "y\n" || p.read(t, "out/deep/m") != "m\n" {
		t.Error("the changes are not applied")
	}
	for _, name := range []string{"out/old", "k.o", "d/x", "d/y"} {
		p.absent(t, name)
	}
	if info, err := os.Stat(filepath.Join(p.dir, "d")); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
	if r, _, _ := p.exec(t, "true"); r.ExitCode != 0 || r.Commit != nil || len(r.Entries) != 0 {
		t.Errorf("%+v", r)
	}
	r, out, _ = p.exec(t, "echo three >> a", "--dry-run")
	if r.ExitCode != 0 || r.Commit != nil || len(r.Entries) != 1 || !strings.Contains(out, "+three\n") || p.read(t, "a") != "one\ntwo\n" {
		t.Errorf("dry run: %+v %s", r, out)
	}
	// What no history can have is reported, whether it is made or removed.
	p.shell(t, "mkfifo old-pipe")
	r, _, errOut := p.exec(t, "mkfifo pipe; rm old-pipe; mkdir p; mkfifo p/q; echo f > p/f")
	for _, want := range []string{`not applied: "pipe" (fifo)`, `not applied: "p/q" (fifo)`, `not applied: "old-pipe" (special)`} {
		if !strings.Contains(errOut, want) {
			t.Errorf("%s: %s", want, errOut)
		}
	}
	if info, err := os.Lstat(filepath.Join(p.dir, "old-pipe")); err != nil || info.Mode()&fs.ModeNamedPipe == 0 || r.text() != "p/f create exact" {
		t.Errorf("%v %v %s", info, err, r.text())
	}
	p.absent(t, "pipe")
	p.absent(t, "p/q")
	p.shell(t, "rm old-pipe")
	if r, _, _ := p.exec(t, "true", "--task=none"); r.ExitCode != 69 {
		t.Errorf("an unknown task: %+v", r)
	}
	var undone struct{ Conflicts []any }
	first := p.log(t, p.workspace(t))
	p.post(t, "/calls/"+*first[len(first)-1].CallID+"/revert", map[string]any{}).want(t, 200).into(t, &undone)
	if p.read(t, "a") != "one\n" || p.read(t, "d/x") != "x\n" || p.read(t, "d/y") != "y\n" {
		t.Error("undoing the call does not bring back what was there")
	}
}

// workspace is the id of the only workspace.
func (p *project) workspace(t *testing.T) string {
	t.Helper()
	var list struct{ Workspaces []struct{ ID string } }
	p.call(t, "GET", "/workspaces", nil).want(t, 200).into(t, &list)
	if len(list.Workspaces) != 1 {
		t.Fatalf("%+v", list)
	}
	return list.Workspaces[0].ID
}

// TestExecBesideWriters: what others change meanwhile is merged, and what cannot
// be stays theirs.
func TestExecBesideWriters(t *testing.T) {
	p := newProject(t, map[string]string{"merged": "1\n2\n3\n4\n5\n6\n", "both": "old\n", "gone": "old\n", "mine": "old\n"})
	meet := t.TempDir()
	done := make(chan error, 1)
	ready, goOn := filepath.Join(meet, "ready"), filepath.Join(meet, "go")
	if out, err := exec.Command("mkfifo", ready, goOn).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	go func() {
		_, err := os.ReadFile(ready)
		for name, data := range map[string]string{"merged": "1\n2\n3\n4\n5\nsix\n", "both": "theirs\n", "new": "theirs\n"} {
			err = errors.Join(err, os.WriteFile(filepath.Join(p.dir, name), []byte(data), 0o644))
		}
		err = errors.Join(err, os.Remove(filepath.Join(p.dir, "gone")))
		done <- errors.Join(err, os.WriteFile(goOn, nil, 0))
	}()
	r, _, errOut := p.exec(t, fmt.Sprintf("sed -i s/1/one/ merged; echo mine > both; echo mine > gone; echo mine > new; echo mine > mine; echo > %s; cat %s", ready, goOn))
	need.NoError(t, <-done)
	if r.ExitCode != 75 || len(r.Conflicts) != 3 || r.Commit == nil {
		t.Fatalf("%+v %s", r, errOut)
	}
	if p.read(t, "merged") != "one\n2\n3\n4\n5\nsix\n" || p.read(t, "both") != "theirs\n" || p.read(t, "new") != "theirs\n" || p.read(t, "mine") != "mine\n" {
		t.Error("the merge is wrong")
	}
	p.absent(t, "gone")
	var ws struct {
		GitDir string `json:"git_dir"`
	}
	p.call(t, "GET", "/workspaces/"+p.workspace(t), nil).want(t, 200).into(t, &ws)
	ref := "refs/umbra/conflicts/" + r.CallID
	if got := harness.Git(t, ws.GitDir, "ls-tree", "-r", "--name-only", ref); strings.TrimSpace(got) != "both\ngone\nnew" {
		t.Errorf("%s has %q", ref, got)
	}
	if got := harness.Git(t, ws.GitDir, "show", ref+":both"); strings.TrimSpace(got) != "mine" {
		t.Errorf("kept: %q", got)
	}
}

// TestExecOpens: a directory in no workspace is opened as one, as for every call, and that
// is said. With a task, which is on another workspace, nothing is opened.
func TestExecOpens(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/a": "one\n"})
	count := func() int {
		t.Helper()
		var list struct{ Workspaces []any }
		p.call(t, "GET", "/workspaces", nil).want(t, 200).into(t, &list)
		return len(list.Workspaces)
	}
	if r, _, _ := p.exec(t, "true", "--task=none"); r.ExitCode != 69 || count() != 0 {
		t.Errorf("an unknown task: %+v, %d workspaces", r, count())
	}
	for _, flags := range [][]string{nil, {"--live", "--isolate=try"}} {
		q := &project{Server: p.Server, dir: filepath.Join(t.TempDir(), "p")}
		q.fill(t, map[string]string{"a": "one\n"})
		said := q.dir + " was in no workspace; " + q.dir + " is opened as one"
		if r, _, errOut := q.exec(t, "true", flags...); r.ExitCode != 0 || !strings.Contains(errOut, said) {
			t.Errorf("%s: %+v %s", flags, r, errOut)
		}
		if r, _, errOut := q.exec(t, "true", flags...); r.ExitCode != 0 || strings.Contains(errOut, "opened") {
			t.Errorf("%s again: %+v %s", flags, r, errOut)
		}
	}
	if count() != 2 {
		t.Errorf("%d workspaces", count())
	}
}

// execLine is a random sequence of shell commands on few names, some of them
// ignored.
func execLine(r *rand.Rand) string {
	names := []string{"a", "b", "d", "d/a", "d/b", "d/e/a", "out/a", "out/d/b", "x y", "m.o"}
	n := func() string { return "'" + names[r.IntN(len(names))] + "'" }
	var lines []string
	for range 1 + r.IntN(6) {
		x, y := n(), n()
		lines = append(lines, []string{
			"echo " + fmt.Sprint(r.IntN(1000)) + " > " + x,
			"echo more >> " + x,
			"mv " + x + " " + y,
			"rm -rf " + x,
			"mkdir -p d/e out/d; echo new > " + x,
			"rm -rf " + x + "; ln -s " + y + " " + x,
			"chmod 600 " + x,
			"chmod 755 " + x,
			"cp " + x + " " + y,
			"rm -rf d; mkdir -p d/e; echo again > d/e/a",
			"rm -rf out; mkdir -p out/d; echo again > out/d/b",
		}[r.IntN(11)])
	}
	return "umask 022; { " + strings.Join(lines, "; ") + "; } 2>/dev/null; true"
}

// execRounds is how many random commands a test runs: UMBRA_EXEC_COMMANDS, or soak in
// make soak, or few. With more than few the seed is another each time.
func execRounds(t *testing.T, few, soak int, seed uint64) (int, uint64) {
	t.Helper()
	rounds := few
	if os.Getenv("UMBRA_SOAK") != "" {
		rounds = soak
	}
	if text := os.Getenv("UMBRA_EXEC_COMMANDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal("UMBRA_EXEC_COMMANDS: ", err)
		}
	}
	if rounds > few {
		seed = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("UMBRA_EXEC_SEED"); text != "" { // to see a failure again
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal("UMBRA_EXEC_SEED: ", err)
		}
	}
	t.Logf("%d commands, seed %d", rounds, seed)
	return rounds, seed
}

// TestExecModel runs random commands by umbra exec and in a plain copy, while a
// person and a client of the API write files of their own.
func TestExecModel(t *testing.T) {
	p := newProject(t, map[string]string{"a": "a\n", "d/a": "da\n", "out/a": "oa\n", ".gitignore": "out/\n*.o\n"})
	plain := t.TempDir()
	if out, err := exec.Command("cp", "-a", p.dir+"/.", plain).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	rounds, seed := execRounds(t, 30, 10_000, 2)
	k := p.task(t)
	stop, person, client := make(chan struct{}), make(chan string, 1), make(chan string, 1)
	writer := func(done chan<- string, write func(text string) error) {
		text := ""
		for n := 0; ; n++ {
			select {
			case <-stop:
				done <- text
				return
			case <-time.After(5 * time.Millisecond):
			}
			if err := write(fmt.Sprint(n)); err != nil {
				t.Error(err)
			}
			text = fmt.Sprint(n)
		}
	}
	need.NoError(t, os.Mkdir(filepath.Join(p.dir, "w"), 0o755))
	defer func() { // of a test that failed
		select {
		case <-stop:
		default:
			close(stop)
			<-person
			<-client
		}
	}()
	go writer(person, func(text string) error { return os.WriteFile(filepath.Join(p.dir, "w", "person"), []byte(text), 0o644) })
	go writer(client, func(text string) error {
		if res := p.Do("PUT", k.url("/content?path=w/client"), []byte(text)); res.Status != 200 && res.Status != 201 {
			return fmt.Errorf("PUT: %d %s", res.Status, res.Body)
		}
		return nil
	})
	r, conflicts := rand.New(rand.NewPCG(19, seed)), 0
	for i := range rounds {
		line := execLine(r)
		before := need.Tree(t, p.dir, "w")
		res, _, errOut := p.exec(t, line)
		if res.ExitCode == 75 && len(res.Conflicts) > 0 {
			need.NoError(t, os.RemoveAll(plain))
			if out, err := exec.Command("sh", "-c", "mkdir '"+plain+"' && tar -c -C '"+p.dir+"' --exclude=./w . | tar -xC '"+plain+"'").CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
			if res.occupied() {
				conflicts++
				continue
			}
		}
		if res.ExitCode != 0 {
			t.Fatalf("seed %d round %d: %s: %+v %s\nin\n%s", seed, i, line, res, errOut, before)
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir = plain
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		if got, want := need.Tree(t, p.dir, "w"), need.Tree(t, plain); got != want {
			t.Fatalf("seed %d round %d: %s\nin\n%s\ngot\n%s\nwant\n%s", seed, i, line, before, got, want)
		}
	}
	close(stop)
	t.Logf("%d conflicts", conflicts)
	for name, last := range map[string]string{"w/person": <-person, "w/client": <-client} {
		if got := p.read(t, name); got != last || last == "" {
			t.Errorf("%s has %q, its writer wrote %q last", name, got, last)
		}
	}
	ws := p.workspace(t)
	p.post(t, "/workspaces/"+ws+"/sync", map[string]any{}).want(t, 200)
	for _, e := range p.log(t, ws) {
		if own := strings.HasPrefix(e.Path, "w/"); own == (e.Source == "call") && e.Source != "baseline" {
			t.Errorf("%s is of source %s", e.Path, e.Source)
		}
	}
	var synced struct{ Changed int }
	p.post(t, "/workspaces/"+ws+"/sync", map[string]any{}).want(t, 200).into(t, &synced)
	if synced.Changed != 0 {
		t.Errorf("%d changes were not recorded", synced.Changed)
	}
}

// TestExecKilled kills the server while it applies a layer: all of it is there
// then, or nothing and the layer.
func TestExecKilled(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", ".gitignore": "out/\n", "out/old": "old"})
	line := "echo two > a; rm -rf out; mkdir -p out/d; for i in $(seq 200); do echo $i > f$i; echo $i > out/d/$i; done"
	for round := range 4 {
		meet := filepath.Join(t.TempDir(), "ready")
		if out, err := exec.Command("mkfifo", meet).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		cmd := p.execCmd(t, "--isolate=require", "--json", "--agent=a", "--session=s", "--", "sh", "-c", line+"; echo > "+meet)
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		need.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		met := make(chan error, 1)
		go func() {
			_, err := os.ReadFile(meet)
			met <- err
		}()
		select {
		case err := <-met:
			need.NoError(t, err)
		case <-ended:
			execAnswer(t, cmd, out.String(), errOut.String())
			t.Fatal(errOut.String())
		}
		<-time.After(time.Duration(round*round*8) * time.Millisecond)
		p.Kill()
		<-ended
		p.Restart()
		var left struct{ Layers []struct{ Layer string } }
		p.call(t, "GET", "/layers", nil).want(t, 200).into(t, &left)
		if said := "the command's changes are not applied"; len(left.Layers) == 0 && strings.Contains(errOut.String(), said) {
			t.Errorf("round %d: the layer is applied, and umbra exec said: %s", round, errOut.String())
		}
		for _, l := range left.Layers {
			if got := p.read(t, "a") + p.read(t, "out/old"); got != "one\nold" {
				t.Fatalf("round %d: the layer is left, and there is %q", round, got)
			}
			p.absent(t, "f1")
			p.post(t, "/layers/"+l.Layer+"/apply", map[string]any{}).want(t, 200)
		}
		if got := p.read(t, "a") + p.read(t, "f1") + p.read(t, "f200") + p.read(t, "out/d/200"); got != "two\n1\n200\n200\n" {
			t.Fatalf("round %d: %q", round, got)
		}
		p.absent(t, "out/old")
		p.call(t, "GET", "/layers", nil).want(t, 200).into(t, &left)
		if len(left.Layers) != 0 {
			t.Fatalf("round %d: %+v", round, left)
		}
		p.shell(t, "rm -rf f* out; echo one > a; mkdir out; printf old > out/old")
	}
}
