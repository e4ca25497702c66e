package tests

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// execBeside runs a command in a layer, and meanwhile, when its first part is done,
// another in the workspace.
func (p *project) execBeside(t *testing.T, first, beside, last string) (r execResult, stdout, stderr string) {
	t.Helper()
	meet := t.TempDir()
	ready, goOn := filepath.Join(meet, "ready"), filepath.Join(meet, "go")
	if out, err := exec.Command("mkfifo", ready, goOn).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	cmd := p.execCmd(t, "--isolate=require", "--json", "--agent=a", "--session=s", "--", "sh", "-ec", first+"\n: > "+ready+"; : < "+goOn+"\n"+last)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	need.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	met := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(ready)
		met <- err
	}()
	select {
	case err := <-met:
		need.NoError(t, err)
		p.shell(t, beside)
		need.NoError(t, os.WriteFile(goOn, nil, 0))
		<-ended
	case <-ended:
	}
	return execAnswer(t, cmd, out.String(), errOut.String())
}

// TestExecKeepsIgnoredFilesOfOthers: what no history has and others changed while the
// command ran stays, and is reported; the rest is moved over.
func TestExecKeepsIgnoredFilesOfOthers(t *testing.T) {
	p := newProject(t, map[string]string{".gitignore": "out/\n.env\n*.o\n", ".env": "A=1\n", "a.o": "old", "b.o": "old", "out/old": "old", "out/d/old": "old"})
	r, _, errOut := p.execBeside(t, "echo A=layer > .env; echo layer > a.o; rm b.o; rm -rf out; mkdir out; echo layer > out/new",
		"echo A=person > .env; echo person > b.o; echo person > out/d/person", "true")
	if r.ExitCode != 0 || r.Commit != nil {
		t.Fatalf("%+v", r)
	}
	for name, want := range map[string]string{".env": "A=person\n", "a.o": "layer\n", "b.o": "person\n", "out/new": "layer\n", "out/d/person": "person\n"} {
		if got := p.read(t, name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	p.absent(t, "out/old")
	p.absent(t, "out/d/old")
	for _, name := range []string{".env", "b.o", "out/d/person"} {
		if !strings.Contains(errOut, `not applied: "`+name+`" (changed_here)`) {
			t.Errorf("%s is not reported: %s", name, errOut)
		}
	}
}

// TestExecCommits: a commit with the project's own git in a layer. One that others
// made meanwhile stays; an index that others only refreshed does not.
func TestExecCommits(t *testing.T) {
	const git = "git -c user.name=x -c user.email=x@localhost -c gc.auto=0 "
	start := func(t *testing.T) *project {
		p := newProject(t, map[string]string{"a": "one\n", "b": "one\n"})
		p.shell(t, "git init -q -b main && git add . && "+git+"commit -qm start && git branch other")
		return p
	}
	state := func(p *project) string {
		out, err := exec.Command("git", "-C", p.dir, "status", "--porcelain").CombinedOutput()
		log, err2 := exec.Command("git", "-C", p.dir, "log", "--format=%s", "main").CombinedOutput()
		fsck, err3 := exec.Command("git", "-C", p.dir, "fsck", "--strict", "--no-dangling").CombinedOutput()
		if err := errors.Join(err, err2, err3); err != nil {
			t.Error(err, string(fsck))
		}
		return strings.Join(strings.Fields(string(log)), " ") + "|" + string(out)
	}
	t.Run("alone", func(t *testing.T) {
		p := start(t)
		r, _, errOut := p.exec(t, "echo two > a; "+git+"commit -qam layer")
		if got := state(p); got != "layer start|" || r.ExitCode != 0 {
			t.Errorf("%q %s", got, errOut)
		}
	})
	t.Run("an index that was refreshed", func(t *testing.T) {
		p := start(t)
		_, _, errOut := p.execBeside(t, "echo two > a; "+git+"commit -qam layer", "touch b; git status --porcelain > /dev/null; git update-index --refresh > /dev/null", "true")
		if got := state(p); got != "layer start|" {
			t.Errorf("%q %s", got, errOut)
		}
	})
	t.Run("both commit", func(t *testing.T) {
		p := start(t)
		_, _, errOut := p.execBeside(t, "echo two > a; "+git+"commit -qam layer; git tag of-the-layer", "echo two > b; "+git+"commit -qam person", "true")
		if got := state(p); got != "person start| M a\n" || p.read(t, "a") != "two\n" || p.read(t, "b") != "two\n" {
			t.Errorf("%q %s", got, errOut)
		}
		if !strings.Contains(errOut, `not applied: ".git/refs/heads/main" (changed_here)`) || !strings.Contains(errOut, `not applied: ".git/index" (changed_here)`) {
			t.Errorf("not reported: %s", errOut)
		}
		if got := strings.TrimSpace(harness.Git(t, filepath.Join(p.dir, ".git"), "log", "-1", "--format=%s", "of-the-layer")); got != "layer" {
			t.Errorf("the layer's commit is %q", got)
		}
	})
	t.Run("a person stages", func(t *testing.T) {
		p := start(t)
		p.execBeside(t, "git status --porcelain > /dev/null; echo layer > n; git add n", "echo two > b; git add b", "true")
		if got := state(p); got != "start|M  b\n?? n\n" {
			t.Errorf("%q", got)
		}
	})
}

// TestExecAppliedLater: a layer whose command was killed, or whose call is over, is
// listed, and applied or dropped later; its commit is its call's.
func TestExecAppliedLater(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "b": "one\n"})
	kill := func() string {
		cmd := p.execCmd(t, "--isolate=require", "--agent=a", "--session=s", "--", "sh", "-c", "echo two > a; rm b; echo; exec sleep 600")
		out, err := cmd.StdoutPipe()
		need.NoError(t, err)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		need.NoError(t, cmd.Start())
		_, _ = out.Read(make([]byte, 1))
		need.NoError(t, cmd.Process.Kill())
		err = cmd.Wait()
		execSkip(t, errOut.String())
		var list struct {
			Layers []struct {
				Layer   string
				Running bool
			}
		}
		eventually(t, func() bool {
			p.call(t, "GET", "/layers", nil).want(t, 200).into(t, &list)
			return len(list.Layers) == 1 && !list.Layers[0].Running
		})
		if p.read(t, "a") != "one\n" || p.read(t, "b") != "one\n" {
			t.Fatal("a part of the layer is applied", err)
		}
		return list.Layers[0].Layer
	}
	verb := func(want int, args ...string) (string, string) {
		t.Helper()
		status, out, errOut := harness.Run(t, nil, append([]string{"exec", "--server", p.URL}, args...)...)
		if status != want {
			t.Errorf("%q: status %d: %s%s", args, status, out, errOut)
		}
		return out, errOut
	}
	id := kill()
	if out, _ := verb(0, "--layers"); !strings.HasPrefix(out, id+"\tleft\t") {
		t.Errorf("--layers: %s", out)
	}
	if out, _ := verb(0, "--layers", "--json"); !strings.Contains(out, `"layer":"`+id+`"`) || !strings.HasPrefix(out, `{"layers":[`) {
		t.Errorf("--layers --json: %s", out)
	}
	if out, _ := verb(0, "--drop", id, "--json"); strings.TrimSpace(out) != `{"layer":"`+id+`","dropped":true}` {
		t.Errorf("--drop --json: %q", out)
	}
	verb(1, "--drop", id)
	if out, _ := verb(0, "--layers"); out != "" {
		t.Errorf("--layers: %s", out)
	}
	id = kill()
	p.post(t, "/calls/"+id+"/end", map[string]any{"status": "failed"}).want(t, 200) // its time has passed
	_, errOut := verb(0, "--apply", id, "--json")
	if !strings.Contains(errOut, `"exit_code":0,"call_id":"`+id+`","commit":"`) || p.read(t, "a") != "two\n" {
		t.Errorf("--apply --json: %s", errOut)
	}
	p.absent(t, "b")
	verb(1, "--apply", id)
	verb(1, "--apply", "../../etc")
	var call struct{ Commits []string }
	p.call(t, "GET", "/calls/"+id, nil).want(t, 200).into(t, &call)
	if len(call.Commits) != 1 {
		t.Errorf("the call has the commits %v", call.Commits)
	}
	p.post(t, "/calls/"+id+"/revert", map[string]any{}).want(t, 200)
	if p.read(t, "a") != "one\n" || p.read(t, "b") != "one\n" {
		t.Error("the call cannot be undone")
	}
	// A completed task takes no changes: its layer stays.
	id = kill()
	var c struct {
		TaskID string `json:"task_id"`
	}
	p.call(t, "GET", "/calls/"+id, nil).want(t, 200).into(t, &c)
	p.call(t, "PATCH", "/tasks/"+c.TaskID, map[string]any{"status": "completed"}).want(t, 200)
	p.post(t, "/layers/"+id+"/apply", map[string]any{}).fails(t, 409, "task_ended")
	if out, _ := verb(0, "--layers"); !strings.HasPrefix(out, id+"\tleft\t") || p.read(t, "a") != "one\n" {
		t.Errorf("--layers: %s", out)
	}
	verb(0, "--drop", id)
}

// TestExecShapes: shapes of a layer that others have applied wrongly.
func TestExecShapes(t *testing.T) {
	p := newProject(t, map[string]string{".gitignore": "*.img\n", "d/a": "a\n", "d/b": "b\n", "d/e/c": "c\n", "o/old": "old\n", "o/same": "same\n",
		"target": "target\n", "over": "over\n", "linked": "linked\n", "mode": "mode\n", "run": "#!/bin/sh\n", "open": "open\n", "dir-to-file/x": "x\n", "file-to-dir": "f\n"})
	p.shell(t, "ln -s target link; ln -s target link2; ln linked linked2; mkdir -p empty/in; ln -s d to-d")
	before := need.Tree(t, p.dir)
	r, _, errOut := p.exec(t, `mv d moved                                    # a directory that was there: EXDEV, so mv copies
rm -rf o; mkdir o; echo same > o/same                    # opaque
mv over link                                             # a file over a link
echo through >> link2                                    # a write through a link
ln linked hard; echo more >> hard                        # a new name of a file
echo one-name >> linked2                                 # a file that had two names
chmod 600 mode; chmod +x run; : >> open                  # copied up: its mode, its bits, nothing
rm -r dir-to-file; echo now > dir-to-file
rm file-to-dir; mkdir file-to-dir; echo x > file-to-dir/x
rm to-d; mkdir to-d; echo y > to-d/y                     # a directory for a link
truncate -s 64M sparse.img; rm -r empty`)
	if r.ExitCode != 0 || len(r.Conflicts) != 0 {
		t.Fatalf("%+v %s", r, errOut)
	}
	for name, want := range map[string]string{"moved/a": "a\n", "moved/b": "b\n", "moved/e/c": "c\n", "o/same": "same\n", "link": "over\n", "target": "target\nthrough\n",
		"hard": "linked\nmore\n", "linked": "linked\nmore\n", "linked2": "linked\none-name\n", "dir-to-file": "now\n", "file-to-dir/x": "x\n", "to-d/y": "y\n", "open": "open\n"} {
		if got := p.read(t, name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"d", "o/old", "over", "empty"} {
		p.absent(t, name)
	}
	for name, want := range map[string]os.FileMode{"link": 0o644, "mode": 0o600, "run": 0o755, "to-d": os.ModeDir | 0o755} {
		if info, err := os.Lstat(filepath.Join(p.dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(filepath.Join(p.dir, "sparse.img"), &st); err != nil || st.Size != 64<<20 || st.Blocks > 2048 {
		t.Errorf("the sparse file has %d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
	for _, e := range r.Entries {
		if e.Path == "open" || e.Path == "o/same" || e.Path == "mode" {
			t.Errorf("%s is unchanged, and recorded", e.text())
		}
	}
	if !strings.Contains(r.text(), "d/a rename exact") || !strings.Contains(r.text(), "d/e/c rename exact") {
		t.Errorf("the moved directory's files: %s", r.text())
	}
	// All but what no history has comes back.
	p.post(t, "/calls/"+r.CallID+"/revert", map[string]any{}).want(t, 200)
	p.shell(t, "rm sparse.img; mkdir -p empty/in; chmod 644 mode")
	if now := need.Tree(t, p.dir); now != before {
		t.Errorf("undone:\n%s\nbefore\n%s", now, before)
	}
}

// TestExecBesideLinks: a directory that others replaced by a link meanwhile is not
// followed, neither out of the workspace nor within it, and the apply ends.
func TestExecBesideLinks(t *testing.T) {
	for _, where := range []string{"outside", "inside"} {
		t.Run(where, func(t *testing.T) {
			p := newProject(t, map[string]string{".gitignore": "*.o\nout\n", "d/f": "f\n", "d/gone.o": "old\n", "d/k.o": "old\n", "d/m.o": "old\n", "out/x": "old\n",
				"e/gone.o": "e\n", "e/k.o": "e\n", "e/m.o": "e\n", "e/x": "e\n", "e/f": "e\n"})
			target := "e"
			if where == "outside" {
				target = t.TempDir()
				for _, name := range []string{"gone.o", "k.o", "m.o", "x", "f"} {
					need.NoError(t, os.WriteFile(filepath.Join(target, name), []byte("e\n"), 0o644))
				}
			}
			at := func(name string) string {
				if where == "inside" {
					return p.read(t, "e/"+name)
				}
				raw, _ := os.ReadFile(filepath.Join(target, name))
				return string(raw)
			}
			r, _, errOut := p.execBeside(t, "echo layer > d/f; rm d/gone.o; echo layer > d/k.o; chmod 600 d/m.o; echo layer > d/n.o; echo layer > out/x; rm -rf d/q; mkdir d/q.o; echo layer > d/q.o/x",
				"mv d was; mv out out-was; ln -s "+target+" d; ln -s "+target+" out", "true")
			if r.Layer != nil || r.ExitCode != 75 {
				t.Errorf("%+v %s", r, errOut)
			}
			for _, name := range []string{"gone.o", "k.o", "m.o", "x", "f"} {
				if got := at(name); got != "e\n" {
					t.Errorf("%s/%s has %q", target, name, got)
				}
			}
			for _, name := range []string{"d/n.o", "d/q.o"} {
				p.absent(t, name)
			}
			for _, name := range []string{"d/k.o", "d/n.o", "out"} {
				if !strings.Contains(errOut, `not applied: "`+name+`" (`) {
					t.Errorf("%s is not reported: %s", name, errOut)
				}
			}
			var left struct{ Layers []any }
			p.call(t, "GET", "/layers", nil).want(t, 200).into(t, &left)
			if len(left.Layers) != 0 {
				t.Errorf("%v", left)
			}
		})
	}
}
