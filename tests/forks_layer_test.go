package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// layerFork makes a fork of the kind layer; the test is left out where the system has
// none.
func layerFork(t *testing.T, p *project, ws string, body map[string]any) string {
	t.Helper()
	if body == nil {
		body = map[string]any{}
	}
	body["kind"] = "layer"
	a := p.post(t, ws+"/forks", body)
	if a.Status == 422 && strings.Contains(string(a.Body), "kind_unavailable") {
		need.Missing(t, "layers need overlayfs in a mount namespace")
	}
	made := a.want(t, 201).list(t, "forks")[0]
	if made["kind"] != "layer" || made["root"] != nil {
		t.Fatalf("%v", made)
	}
	return made["id"].(string)
}

// in runs a shell command in a fork, and returns its output.
func (p *project) in(t *testing.T, fork, command string) string {
	t.Helper()
	status, out, said := p.verb(t, "in", fork, "--", "sh", "-ec", command)
	if status != 0 {
		t.Fatalf("%s: %d %s%s", command, status, out, said)
	}
	return out
}

// A layer shows the parent's files as they were when it was made, takes what commands
// change, and keeps ignored files to itself.
func TestForkLayer(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/b": "two\n", "gone/x": "x\n", "old": "old\n", "turn/f": "f\n", ".gitignore": "out/\n*.log\n"})
	p.shell(t, "mkdir out; echo built > out/x; echo made > out/y; echo log > d/b.log; chmod 755 old; ln -s a link")
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	fork := layerFork(t, p, ws, nil)
	list := "ls -A . d | tr '\\n' ' '; cat a d/b old"
	before := p.in(t, fork, list)

	// The parent goes on, by the server and by its user.
	task.put(t, "a", "parent\n")
	p.shell(t, "echo user > d/b; rm old; rm -r gone; echo new > fresh; mkdir more; echo m > more/m; rm -r turn; echo file > turn; rm link; ln -s d/b link")
	if got := p.in(t, fork, list); got != before {
		t.Errorf("the fork had\n%s\nand has\n%s", before, got)
	}
	p.in(t, fork, `test "$(cat gone/x turn/f link)" = "$(printf 'x\nf\none')"; test ! -e fresh; test ! -e more; test -x old; pwd >/dev/null`)

	// What a command changes is in the fork alone, and there for the next one.
	p.in(t, fork, "echo fork > a; rm d/b; mkdir n; echo new > n/new; echo mine > out/x; rm out/y; mkdir out/deep; echo deep > out/deep/z; echo l > n/n.log; mv old young")
	p.in(t, fork, `test "$(cat a n/new out/x out/deep/z n/n.log)" = "$(printf 'fork\nnew\nmine\ndeep\nl')"; test ! -e out/y; test ! -e d/b; test -e d/b.log; test -x young; test ! -e old`)
	for name, want := range map[string]string{"a": "parent\n", "d/b": "user\n", "out/x": "built\n", "out/y": "made\n"} {
		if got := p.read(t, name); got != want {
			t.Errorf("the parent's %s has %q", name, got)
		}
	}
	p.absent(t, "n")
	log := p.log(t, fork)
	if len(log) != 4 || log[0].Source != "call" {
		t.Errorf("%+v", log)
	}
	// Requests and commands see each other's changes; ignored files of the parent's are
	// shared as they are now.
	p.post(t, "/tasks", map[string]any{"task_id": "in-fork", "workspace": fork, "goal": "try"}).want(t, 201)
	p.call(t, "PUT", "/tasks/in-fork/content?path=n/new", []byte("api\n")).want(t, 200)
	p.call(t, "DELETE", "/tasks/in-fork/content?path=a", nil).want(t, 200)
	p.shell(t, "echo later > out/w")
	p.in(t, fork, `test "$(cat n/new out/w out/x)" = "$(printf 'api\nlater\nmine')"; test ! -e a; echo again > a; rm -r d; mkdir d; echo other > d/c; rm -r n; echo file > n`)
	p.in(t, fork, `test "$(cat a d/c n)" = "$(printf 'again\nother\nfile')"; test ! -e d/b`)
	p.restart()
	p.in(t, fork, `test "$(cat a d/c n out/x out/deep/z)" = "$(printf 'again\nother\nfile\nmine\ndeep')"; rm -r out; mkdir out; echo only > out/o`)
	if got := p.in(t, fork, "ls out"); got != "o\n" {
		t.Errorf("out has %q", got)
	}
	if got := p.read(t, "out/w"); got != "later\n" {
		t.Errorf("the parent's out/w has %q", got)
	}

	// A fork of it is a layer too.
	deep := p.forks(t, "/workspaces/"+fork, map[string]any{})[0]
	id := deep["id"].(string)
	if deep["kind"] != "layer" {
		t.Fatalf("a layer's fork is %v", deep)
	}
	if got := p.in(t, id, "cat d/c"); got != "other\n" {
		t.Errorf("a layer's fork has %q", got)
	}
	p.call(t, "DELETE", "/workspaces/"+id, nil).want(t, 204)

	// It is merged and deleted as any other.
	p.call(t, "PATCH", "/tasks/in-fork", map[string]any{"status": "completed"}).want(t, 200)
	merged := p.merge(t, fork, map[string]any{"on_conflict": "skip"})
	if len(merged.Commits) == 0 || p.read(t, "d/c") != "other\n" {
		t.Errorf("%+v", merged)
	}
	task.fsck(t)
	p.call(t, "DELETE", "/workspaces/"+fork+"?force=true", nil).want(t, 204)
	if _, err := os.Lstat(filepath.Join(p.DataDir, "workspaces", fork)); err == nil {
		t.Error("its files are still there")
	}
}

// The ignored files of a layer may be copies, or none.
func TestForkLayerIgnored(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", ".gitignore": "out/\n*.log\n"})
	p.shell(t, "mkdir -p out d; echo built > out/x; echo log > d/b.log")
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	none := layerFork(t, p, ws, map[string]any{"ignored": "none"})
	copied := layerFork(t, p, ws, map[string]any{"ignored": "copy"})
	p.shell(t, "echo changed > out/x")
	p.in(t, none, "test ! -e out; test ! -e d/b.log; test -e a; mkdir out; echo mine > out/z")
	if got := p.in(t, none, "ls out"); got != "z\n" {
		t.Errorf("out has %q", got)
	}
	if got := p.in(t, copied, "cat out/x d/b.log"); got != "built\nlog\n" {
		t.Errorf("the copy has %q", got)
	}
	p.post(t, ws+"/forks", map[string]any{"kind": "layer", "ignored": "all"}).fails(t, 400, "invalid_ignored")
	if def := p.forks(t, ws, map[string]any{})[0]; def["kind"] != "layer" {
		t.Errorf("the default is %v", def["kind"])
	}
	// A fork of a layer shows the same directory.
	p.in(t, none, "echo two > a")
	deep := layerFork(t, p, "/workspaces/"+none, nil)
	if got := p.in(t, deep, "cat a"); got != "two\n" {
		t.Errorf("the fork's fork has %q", got)
	}
	// What a layer shows of ignored files is in no directory of its own.
	dir := filepath.Join(t.TempDir(), "copy")
	p.post(t, "/workspaces/"+deep+"/forks", map[string]any{"kind": "copy", "path": dir, "ignored": "copy"}).fails(t, 400, "invalid_ignored")
	p.forks(t, "/workspaces/"+deep, map[string]any{"kind": "copy", "path": dir})
	if list, err := filepath.Glob(dir + "/*"); err != nil || len(list) != 2 { // a and .gitignore
		t.Errorf("the copy of a layer has %q, %v", list, err)
	}
}

// A command that runs keeps seeing the fork's files while the parent's change, and its
// own changes stay.
func TestForkLayerRunning(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "b": "one\n", "d/c": "one\n", "rm/x": "x\n", "mine": "one\n"})
	task := p.task(t)
	fork := layerFork(t, p, "/workspaces/"+task.str("workspace_id"), nil)
	sign := t.TempDir()
	script := `cat a >/dev/null; echo fork > mine; : > ` + sign + `/started
		i=0; while ! test -e ` + sign + `/go; do sleep 0.05; done
		while i=$((i+1)); test $i -lt 200; do
			now="$(cat a b d/c rm/x mine 2>&1; ls)"; test "$now" != "$1" || exit 0; sleep 0.05
		done; echo "$now"; exit 1`
	want := "one\none\none\nx\nfork\na\nb\nd\nmine\nrm"
	type end struct {
		status    int
		out, said string
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		e.status, e.out, e.said = p.verb(t, "in", fork, "--", "sh", "-c", script, "sh", want)
		ended <- e
	}()
	eventually(t, func() bool { _, err := os.Stat(filepath.Join(sign, "started")); return err == nil })
	task.put(t, "a", "parent\n")
	task.put(t, "new", "parent\n")
	task.put(t, "more/new", "parent\n")
	task.put(t, "mine", "parent\n")
	p.shell(t, "echo user > b; echo user > d/c; rm -r rm")
	p.post(t, "/workspaces/"+task.str("workspace_id")+"/sync", map[string]any{}).want(t, 200)
	need.NoError(t, os.WriteFile(filepath.Join(sign, "go"), nil, 0o644))
	if e := <-ended; e.status != 0 {
		t.Fatalf("the command sees\n%s%s", e.out, e.said)
	}
	if log := p.log(t, fork); len(log) != 1 || log[0].Path != "mine" {
		t.Errorf("%+v", log)
	}
	if p.read(t, "a") != "parent\n" || p.read(t, "b") != "user\n" || p.read(t, "mine") != "parent\n" {
		t.Error("the parent's files changed")
	}
	p.absent(t, "rm")
}

// A command in a fork makes a directory, and so does the parent while it runs: the command
// keeps its own files, and never sees the parent's for long.
func TestForkLayerSameDirectory(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/c": "one\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	fork := layerFork(t, p, ws, nil)
	sign := t.TempDir()
	script := `mkdir -p both/sub d/both; echo fork > both/mine; echo fork > both/sub/mine; echo fork > d/both/mine; : > ` + sign + `/started
		while ! test -e ` + sign + `/go; do sleep 0.05; done
		i=0; while i=$((i+1)); test $i -lt 200; do
			now="$(find both d -type f | sort; test ! -e new || echo new)"; test "$now" != "$1" || exit 0; sleep 0.05
		done; echo "$now"; exit 1`
	want := "both/mine\nboth/sub/mine\nd/both/mine\nd/c"
	ended := make(chan string, 1)
	go func() {
		status, out, said := p.verb(t, "in", fork, "--", "sh", "-c", script, "sh", want)
		if status == 0 {
			out, said = "", ""
		}
		ended <- out + said
	}()
	eventually(t, func() bool { _, err := os.Stat(filepath.Join(sign, "started")); return err == nil })
	for _, name := range []string{"both/theirs", "both/sub/theirs", "both/more/theirs", "d/both/theirs", "new"} {
		task.put(t, name, "parent\n")
	}
	need.NoError(t, os.WriteFile(filepath.Join(sign, "go"), nil, 0o644))
	if out := <-ended; out != "" {
		t.Errorf("the command sees\n%s", out)
	}
	var paths []string
	for _, e := range p.log(t, fork) {
		paths = append(paths, e.Path)
	}
	slices.Sort(paths)
	if got := strings.Join(paths, " "); got != "both/mine both/sub/mine d/both/mine" {
		t.Errorf("the fork's history has %s", got)
	}
	merged := p.merge(t, fork, nil)
	if got := p.read(t, "both/mine") + p.read(t, "both/theirs") + p.read(t, "d/both/theirs"); got != "fork\nparent\nparent\n" {
		t.Errorf("%+v: %q", merged, got)
	}
}

// A fork whose task works, or in which a command runs or left changes, is not deleted,
// and loses nothing by the attempt.
func TestForkLayerDelete(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", ".gitignore": "out/\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	fork := layerFork(t, p, ws, nil)
	p.in(t, fork, "mkdir -p out/closed; echo mine > out/closed/x; chmod 0 out/closed")
	p.post(t, "/tasks", map[string]any{"task_id": "busy", "workspace": fork, "goal": "try"}).want(t, 201)
	p.call(t, "DELETE", "/workspaces/"+fork+"?force=true", nil).fails(t, 409, "workspace_busy")
	if got := p.in(t, fork, "chmod 755 out/closed; cat out/closed/x; chmod 0 out/closed"); got != "mine\n" {
		t.Errorf("out has %q", got)
	}
	p.call(t, "PATCH", "/tasks/busy", map[string]any{"status": "completed"}).want(t, 200)
	sign := filepath.Join(t.TempDir(), "started")
	cmd := harness.Command(t, []string{"UMBRA_DATA_DIR=" + p.DataDir}, "in", fork, "--", "sh", "-c", "echo two > a; : > "+sign+"; exec sleep 100")
	need.NoError(t, cmd.Start())
	eventually(t, func() bool { _, err := os.Stat(sign); return err == nil })
	p.call(t, "DELETE", "/workspaces/"+fork+"?force=true", nil).fails(t, 409, "layer_in_use")
	p.restart() // the command goes on
	if status, _, said := p.verb(t, "in", fork, "--", "true"); status != 69 || !strings.Contains(said, "layer") {
		t.Errorf("a second command: %d %s", status, said)
	}
	if err := cmd.Process.Kill(); err != nil { // and so the command; nobody applies the layer
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, func() bool {
		for range max(1, harness.Nodes()) { // each lists it
			list := p.call(t, "GET", "/layers", nil).want(t, 200).list(t, "layers")
			if len(list) != 1 {
				t.Fatalf("the layers are %v", list)
			}
			if list[0]["running"] == true {
				return false
			}
		}
		return true
	})
	for _, k := range p.call(t, "GET", "/tasks?workspace="+fork+"&status=executing", nil).want(t, 200).list(t, "tasks") {
		p.call(t, "PATCH", "/tasks/"+k["task_id"].(string), map[string]any{"status": "failed"}).want(t, 200)
	}
	p.call(t, "DELETE", "/workspaces/"+fork, nil).fails(t, 409, "unmerged")
	p.call(t, "DELETE", "/workspaces/"+fork+"?force=true", nil).want(t, 204)
	if list := p.call(t, "GET", "/layers", nil).want(t, 200).list(t, "layers"); len(list) != 0 {
		t.Errorf("%v", list)
	}
}

// TestForkClosesDirectories: an ordinary user's commands take rights from directories of a
// fork and give them back, on a server that has no more rights. What the fork has is as in a
// plain copy in which the same is done, and its merge brings that to the parent. The bits of
// what is recorded are history's.
func TestForkClosesDirectories(t *testing.T) {
	const files = "find . -type f ! -name '*.o' ! -path './out/*' | sort | xargs grep -H ''"
	for _, lines := range [][]string{
		{"echo n > d/n; echo o > d/n.o; chmod 000 d", "chmod 700 d; echo m >> d/n; echo m >> d/n.o; chmod 500 d"},
		{"mkdir -p out/e; echo y > out/e/y; chmod 000 out/e; chmod 000 out", "echo x > a", "chmod 700 out; chmod 700 out/e; echo z >> out/e/y"},
		{"mkdir -p n/m; echo y > n/m/y; echo o > n/m/y.o; chmod 000 n/m; chmod 000 n", "chmod 700 n n/m; rm n/m/y; chmod 000 n/m"},
		{"chmod 600 d", "chmod 755 d; rm d/a; echo b >> d/m.o; chmod 600 d", "chmod 700 d; rm -rf d", "echo x > a"},
		{"chmod 000 out", "chmod 700 out; rm -rf out; mkdir out; echo x > out/x; chmod 500 out", "chmod 700 out; rm out/x"},
	} {
		t.Run(lines[len(lines)-1], func(t *testing.T) {
			u := newOrdinary(t, map[string]string{"a": "a\n", "d/a": "da\n", "d/m.o": "o\n", "out/a": "oa\n", ".gitignore": "out/\n*.o\n"})
			ws := "/workspaces/" + u.task(t).str("workspace_id")
			fork := layerFork(t, u.project, ws, nil)
			both := func(line string) (got, want string) {
				t.Helper()
				cmd, out, errOut := u.command(u.dir, u.program, "in", "--server", u.URL, fork, "--", "sh", "-ec", line)
				if err := cmd.Run(); err != nil {
					t.Fatalf("%s: %v %s%s", line, err, out, errOut)
				}
				plain, there, said := u.command(u.plain, "sh", "-ec", line)
				if err := plain.Run(); err != nil {
					t.Fatalf("%s: %v %s%s", line, err, there, said)
				}
				return out.String(), there.String()
			}
			for _, line := range lines {
				both(line)
				if got, want := both("find . -path './out*' -printf '%p %m %l\\n' 2>/dev/null | sort"); got != want {
					t.Fatalf("after %q\n%s\nwant\n%s", line, got, want)
				}
			}
			all := "chmod -R u+rwX .; find . -type f | sort | xargs grep -H ''"
			if got, want := both(all); got != want {
				t.Fatalf("there is\n%s\nwant\n%s", got, want)
			}
			u.post(t, "/workspaces/"+fork+"/merge", map[string]any{}).want(t, 200)
			_, want := both(files)
			here, out, errOut := u.command(u.dir, "sh", "-ec", files)
			if err := here.Run(); err != nil || out.String() != want {
				t.Errorf("%v: after the merge the parent has\n%s%s\nwant\n%s", err, out, errOut, want)
			}
		})
	}
}

// A workspace is deleted with force although layers without a path show its directory:
// commands go on to see in them what they saw, also where the directory goes with it.
func TestForkLayerParentDeleted(t *testing.T) {
	const list = `find . -name .git -prune -o -print | LC_ALL=C sort; cat a d/x own n/new; cat out/big out/mine 2>&1 || true`
	for _, copied := range []bool{false, true} {
		p := newProject(t, map[string]string{"a": "one\n", "d/x": "x\n", "gone": "gone\n", "own": "one\n", "tree/x": "x\n", ".gitignore": "out/\nlost/\n*.log\n"})
		p.shell(t, "git init -q; mkdir out lost; echo big > out/big; echo y > out/y; echo lost > lost/x; echo log > tree/x.log; echo noted > noted; echo noted >> .git/info/exclude; chmod 750 out")
		task := p.task(t)
		of, below := task.str("workspace_id"), p.dir
		if copied {
			below = filepath.Join(t.TempDir(), "copy")
			of = p.forks(t, "/workspaces/"+of, map[string]any{"kind": "copy", "path": below})[0]["id"].(string)
		}
		ws := "/workspaces/" + of
		ids := []string{layerFork(t, p, ws, nil), layerFork(t, p, ws, map[string]any{"ignored": "none"}), layerFork(t, p, ws, nil)}
		p.in(t, ids[0], "echo mine > own; rm gone; mkdir n; echo new > n/new; echo mine > out/mine; rm -r out/y lost tree")
		p.in(t, ids[1], "echo mine > own; rm gone; mkdir -p n out; echo new > n/new; echo mine > out/mine")
		ids = append(ids, layerFork(t, p, "/workspaces/"+ids[0], nil)) // ids[2] was never used
		// A fork between goes first.
		between := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
		ids = append(ids, layerFork(t, p, "/workspaces/"+between, nil))
		p.call(t, "DELETE", "/workspaces/"+between+"?force=true", nil).want(t, 204)
		sh(t, below, "echo later > d/x; echo later > later; rm a")
		var want []string
		var logs []int
		for _, id := range ids {
			script := list
			if id == ids[2] || id == ids[4] {
				script = strings.ReplaceAll(list, " n/new", "")
			}
			want, logs = append(want, p.in(t, id, script)), append(logs, len(p.log(t, id)))
		}
		if !copied {
			p.call(t, "PATCH", "/tasks/"+task.ID, map[string]any{"status": "completed"}).want(t, 200)
		}
		if !copied { // a copy has changes of its own
			p.call(t, "DELETE", ws, nil).fails(t, 409, "has_forks")
		}
		p.call(t, "DELETE", ws+"?force=true", nil).want(t, 204)
		p.call(t, "GET", ws, nil).want(t, 404)
		check := func(why string) {
			t.Helper()
			for i, id := range ids {
				script := list
				if i == 2 || i == 4 {
					script = strings.ReplaceAll(list, " n/new", "")
				}
				if got := p.in(t, id, script); got != want[i] {
					t.Errorf("copied %v, %s: the fork %d showed\n%s\nand shows\n%s", copied, why, i, want[i], got)
				}
				if got := len(p.log(t, id)); got != logs[i] {
					t.Errorf("copied %v, %s: the fork %d has %d new commits", copied, why, i, got-logs[i])
				}
			}
		}
		check("deleted")
		if !copied { // what becomes of the directory is none of the forks'
			sh(t, below, "rm -r d out; echo new > new; mkdir out; echo new > out/big; echo back > a")
			check("changed")
		}
		p.restart()
		check("restarted")
		// They go on as any other.
		if got := p.in(t, ids[0], `pwd; echo more > d/x; rm -r n; echo again > lost; echo again > noted; mkdir -p out/deep; echo deep > out/deep/z`); copied == (got == below+"\n") {
			t.Errorf("copied %v: the command runs in %s", copied, got)
		}
		if got := p.in(t, ids[0], "cat d/x lost noted out/deep/z out/big; ls"); got != "more\nagain\nagain\ndeep\nbig\na\nd\nlost\nnoted\nout\nown\n" {
			t.Errorf("the fork shows %q", got)
		}
		deep := layerFork(t, p, "/workspaces/"+ids[2], nil)
		p.in(t, deep, "test $(cat out/big) = big; test $(cat a) = one")
		for _, id := range append(ids, deep) {
			p.call(t, "DELETE", "/workspaces/"+id+"?force=true", nil).want(t, 204)
		}
		if left := sh(t, p.DataDir, "ls below"); left != "" {
			t.Errorf("left is %s", left)
		}
		p.Stop()
	}
}

// After a start of the machine the files of history that a layer had are written again: a
// power failure may have left them empty, since nothing waits for them to be on disk.
func TestForkLayerAfterPowerFailure(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/x": "x\n", "gone": "gone\n"})
	task := p.task(t)
	id := layerFork(t, p, "/workspaces/"+task.str("workspace_id"), nil)
	p.in(t, id, "echo mine > d/x; rm gone")
	task.put(t, "a", "later\n")
	const list = "cat a d/x; test ! -e gone"
	if got := p.in(t, id, list); got != "one\nmine\n" {
		t.Fatalf("the fork shows %q", got)
	}
	p.Stop()
	top := p.Find("workspaces", id, "layer")
	sh(t, top, `for f in files/a files/d/x; do test -s $f; : > $f; done; sed -i 's/"boot":"[^"]*"/"boot":"another"/' placed.json`)
	p.Restart()
	log := len(p.log(t, id))
	if got := p.in(t, id, list+"; echo more >> d/x"); got != "one\nmine\n" {
		t.Errorf("the fork shows %q", got)
	}
	if got := p.in(t, id, "cat d/x"); got != "mine\nmore\n" || len(p.log(t, id)) != log+1 {
		t.Errorf("the fork has %q", got)
	}
}

func sh(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}
