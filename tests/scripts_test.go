package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestScriptsSave(t *testing.T) {
	s := startScripter(t, harness.Options{})
	s.value(t, `return {type(file), type(sdk)}`, `["table","nil"]`)
	if _, err := os.Lstat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the output directory is there before the first save (%v)", err)
	}

	out := s.value(t, `print("rows", 2) return file.save("data/results.csv", "a,\0\xff\n")`, `"`+filepath.Join(s.dir, "data/results.csv")+`"`)
	if s.content(t, "data/results.csv") != "a,\x00\xff\n" || len(out.Files) != 1 || out.Files[0].Name != "data/results.csv" || out.Files[0].Bytes != 5 ||
		out.Files[0].Path != filepath.Join(s.dir, "data/results.csv") || out.Files[0].Commit == nil || !slices.Equal(out.Logs, []string{"rows\t2"}) {
		t.Errorf("%+v", out)
	}
	if task := s.taskOf(t, out.Task); task["status"] != "completed" || task["changes"] != 1.0 || task["workspace"] != s.dir {
		t.Errorf("the task is %v", task)
	}

	// Twice the same bytes: the commit of the save that changed it stays; the
	// same again in another run: none.
	out = s.value(t, `file.save("./x//y", "1") file.save("x/y", "1") file.save("x/y", "22") file.save("x/y", "22")`, `null`)
	if len(out.Files) != 1 || out.Files[0].Name != "x/y" || out.Files[0].Bytes != 2 || out.Files[0].Commit == nil {
		t.Errorf("%+v", out.Files)
	}
	if task := s.taskOf(t, out.Task); task["changes"] != 2.0 {
		t.Errorf("%v changes", task["changes"])
	}
	out = s.value(t, `file.save("x/y", "22")`, `null`)
	if len(out.Files) != 1 || out.Files[0].Commit != nil || out.Task == nil {
		t.Errorf("%+v", out)
	}

	// What was written before a failure is told.
	out = s.exec(t, 422, "file.save('before', 'x')\nlocal y = nil\nreturn y.z")
	if out.Error.Type != "runtime_error" || out.Error.Line != 3 || len(out.Files) != 1 || s.content(t, "before") != "x" {
		t.Errorf("%+v", out)
	}
	if task := s.taskOf(t, out.Task); task["status"] != "failed" {
		t.Errorf("the task is %v", task["status"])
	}
	if out = s.exec(t, 422, `pcall(file.save, "", "") error("x")`); out.Task != nil || len(out.Files) != 0 {
		t.Errorf("%+v", out)
	}
	dir := ""
	var list struct{ Workspaces []obj }
	s.Do("GET", "/workspaces", nil).Expect(200).JSON(&list)
	for _, w := range list.Workspaces {
		if w["root"] == s.dir {
			dir, _ = w["git_dir"].(string)
			s.Do("POST", "/workspaces/"+w["id"].(string)+"/sync", nil).Expect(200)
		}
	}
	harness.Git(t, dir, "fsck", "--strict", "--full")
}

func TestScriptsNames(t *testing.T) {
	s := startScripter(t, harness.Options{Config: "output:\n  max_bytes: 100\n"})
	out := s.value(t, `
		local r = {}
		for _, n in {"", "a\0b", "/etc/x", "..", "../x", "a/../b", "a/..", ".git/x", "x/.GIT/y", "dir/", ".", string.rep("n", 256)} do
			local ok, e = pcall(file.save, n, "x")
			r[#r + 1] = if ok then n else e
		end
		r[#r + 1] = select(2, pcall(file.save, "x", 5))
		r[#r + 1] = select(2, pcall(file.save, 5, "x"))
		r[#r + 1] = select(2, pcall(file.save, "big", string.rep("x", 101)))
		return #r`, `15`)
	if len(out.Files) != 0 || out.Task != nil {
		t.Errorf("%+v", out)
	}
	for script, want := range map[string]string{
		`file.save("", "x")`:                     "filename cannot be empty",
		`file.save("a\0b", "x")`:                 "filename cannot contain null bytes",
		`file.save("/etc/x", "x")`:               "filename must be relative, got absolute path",
		`file.save("a/../b", "x")`:               "filename cannot contain '..' path traversal",
		`file.save("x")`:                         "content must be a string",
		`file.save("b", string.rep("x", 101))`:   "output size limit exceeded (100 bytes)",
		`pcall(file.save, "x", 5) file.save({})`: "filename must be a string",
	} {
		if out := s.exec(t, 422, script); out.Error.Type != "runtime_error" || out.Error.Message != want {
			t.Errorf("%s: %q", script, out.Error.Message)
		}
	}
	// The budget: what would pass it writes nothing, what failed is not counted,
	// the same bytes again are.
	s.value(t, `
		assert(not pcall(file.save, "../x", string.rep("x", 90)))
		file.save("a..b", string.rep("x", 60))
		assert(not pcall(file.save, "more", string.rep("x", 41)))
		file.save("...", string.rep("x", 40))
		assert(not pcall(file.save, "...", "x"))
		file.save("empty", "")
		return 1`, `1`)
	if _, err := os.Lstat(filepath.Join(s.dir, "more")); err == nil {
		t.Error("a save beyond the budget left a file")
	}
	out = s.value(t, `return #file.save("f\xff%\n", "x")`, fmt.Sprint(len(s.dir)+5))
	if len(out.Files) != 1 || out.Files[0].Name != "f%FF%25\n" || out.Files[0].Encoding != "percent" || s.content(t, "f\xff%\n") != "x" {
		t.Errorf("%+v", out.Files)
	}
}

func TestScriptsStayInside(t *testing.T) {
	s := startScripter(t, harness.Options{})
	outside := t.TempDir()
	s.value(t, `file.save("in/x", "1")`, `null`)
	links := map[string]string{"out": outside, "up": "..", "abs": filepath.Join(outside, "file"), "dangling": "../nothing", "inside": "in"}
	for name, target := range links {
		need.NoError(t, os.Symlink(target, filepath.Join(s.dir, name)))
	}
	need.NoError(t, syscall.Mkfifo(filepath.Join(s.dir, "fifo"), 0o666))
	for _, name := range []string{"out/x", "up/x", "abs", "dangling", "fifo", "in", "in/x/y"} {
		if out := s.exec(t, 422, fmt.Sprintf("file.save(%q, 'x')", name)); out.Error.Type != "runtime_error" || !strings.HasPrefix(out.Error.Message, "cannot save the file: ") ||
			strings.Contains(out.Error.Message, outside) {
			t.Errorf("%s: %+v", name, out.Error)
		}
	}
	s.value(t, `file.save("inside/y", "2")`, `null`)
	if s.content(t, "in/y") != "2" {
		t.Error("a link that stays inside is not followed")
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 0 {
		t.Errorf("outside: %v, %v", list, err)
	}

	// A folder that turns into a link and back while scripts save through it.
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		race, aside := filepath.Join(s.dir, "race"), filepath.Join(s.dir, "aside")
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Mkdir(race, 0o777)
			_ = os.Rename(race, aside)
			_ = os.Symlink(outside, race)
			_ = os.Remove(race)
			_ = os.Rename(aside, race)
		}
	}()
	for range 3 {
		s.exec(t, 200, `for i = 1, 20 do pcall(file.save, "race/f" .. i, "x") end`)
	}
	close(stop)
	<-done
	if list, err := os.ReadDir(outside); err != nil || len(list) != 0 {
		t.Errorf("outside after the race: %v, %v", list, err)
	}
}

func TestScriptsOfATask(t *testing.T) {
	s := startScripter(t, harness.Options{})
	dir := t.TempDir()
	var parent obj
	s.Do("POST", "/tasks", obj{"goal": "analyze", "workspace": dir}).Expect(201).JSON(&parent)
	id := parent["task_id"].(string)
	out := s.value(t, `return 1`, `1`, "X-Task-Id: "+id)
	if out.Task == nil || *out.Task != id {
		t.Errorf("nothing saved: %v", out.Task)
	}
	first := s.value(t, `file.save("a", "1")`, `null`, "X-Task-Id: "+id, "X-Subtask-Id: step", "X-Actor: agent")
	child := s.taskOf(t, first.Task)
	metadata, _ := child["metadata"].(obj)
	if *first.Task == id || child["workspace"] != s.dir || metadata["parent_task"] != id || child["status"] != "executing" {
		t.Errorf("the child is %v", child)
	}
	second := s.value(t, `file.save("b", "1")`, `null`, "X-Task-Id: "+id)
	if *second.Task != *first.Task {
		t.Errorf("a second child %s", *second.Task)
	}
	// A task on the output directory itself.
	own := s.value(t, `file.save("c", "1")`, `null`, "X-Task-Id: "+*first.Task)
	if *own.Task != *first.Task {
		t.Errorf("%s", *own.Task)
	}
	s.Do("PATCH", "/tasks/"+id, obj{"status": "completed"}).Expect(200)
	if child := s.taskOf(t, first.Task); child["status"] != "completed" {
		t.Errorf("the child does not end with its parent: %v", child["status"])
	}
	s.Do("POST", "/scripts/execute", obj{"script": "return 1"}, "X-Task-Id: "+id).ExpectError(409, "task_ended")
	s.Do("POST", "/scripts/execute", obj{"script": "return 1"}, "X-Task-Id: nope").ExpectError(404, "task_not_found")
	s.Do("POST", "/scripts/execute", obj{"script": "return 1"}, "X-Task-Id: a..b").Expect(400)

	// The same request twice is one execution.
	script := `file.save("once", tostring(math.random())) return 1`
	a := s.Do("POST", "/scripts/execute", obj{"script": script}, "Idempotency-Key: k1").Expect(200)
	b := s.Do("POST", "/scripts/execute", obj{"script": script}, "Idempotency-Key: k1").Expect(200)
	if !bytes.Equal(a.Body, b.Body) || b.Header.Get("Idempotent-Replay") != "true" {
		t.Errorf("%s\n%s", a.Body, b.Body)
	}
	s.Do("POST", "/scripts/execute", obj{"script": "return 2"}, "Idempotency-Key: k1").ExpectError(422, "idempotency_key_reused")
}

func TestScriptsRefuse(t *testing.T) {
	s := startScripter(t, harness.Options{})
	for _, body := range []any{obj{}, obj{"script": 5}, obj{"script": "x", "timeout_ms": 0}, obj{"script": "x", "timeout_ms": 300001},
		obj{"script": "x", "timeout_ms": "5"}, obj{"script": "x", "language": "lua"}, obj{"script": nil}} {
		r := s.Do("POST", "/scripts/execute", body).Expect(400)
		if code, _ := r.Field("error").(string); code == "" {
			t.Errorf("%v: %s", body, r.Body)
		}
	}
	for script, kind := range map[string]string{
		"x = ":                     "parse_error",
		"error('x')":               "runtime_error",
		"while true do end":        "timeout",
		"return string.rep(1,1e9)": "memory_limit",
		"local s = string.rep('x', 1e6) while true do print(s) end": "output_limit",
	} {
		var out scripted
		s.Do("POST", "/scripts/execute", obj{"script": script, "timeout_ms": 2000, "language": "luau"}).Expect(422).JSON(&out)
		if out.Error.Type != kind || out.Error.Message == "" || out.Task != nil {
			t.Errorf("%s: %+v", script, out.Error)
		}
	}
}

func TestScriptsWithoutFiles(t *testing.T) {
	for name, opts := range map[string]harness.Options{
		"hosted":   {Args: []string{"--hosted"}},
		"disabled": {Config: "output:\n  enabled: false\n"},
	} {
		s := startScripter(t, opts)
		s.value(t, `return file == nil`, `true`)
		if out := s.exec(t, 422, `file.save("x", "y")`); out.Error.Type != "runtime_error" || len(out.Files) != 0 {
			t.Errorf("%s: %+v", name, out)
		}
		if _, err := os.Lstat(s.dir); err == nil {
			t.Errorf("%s: the output directory was made", name)
		}
	}
}

// TestScriptsQueue sends more than run and wait: 200 wait, some are refused,
// and all that were taken come to their end.
func TestScriptsQueue(t *testing.T) {
	s := startScripter(t, harness.Options{Config: "scripts:\n  parallel: 2\n"})
	s.value(t, `return 1`, `1`)
	type answer struct {
		status int
		retry  string
		err    error
	}
	const n = 260
	answers := make(chan answer, n)
	send := func(script string) {
		raw, _ := json.Marshal(obj{"script": script, "timeout_ms": 3000})
		res, err := s.Client.Post(s.URL+"/scripts/execute", "application/json", bytes.NewReader(raw))
		if err != nil {
			answers <- answer{err: err}
			return
		}
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		answers <- answer{res.StatusCode, res.Header.Get("Retry-After"), err}
	}
	for range 2 {
		go send(`while true do end`)
	}
	// They run before any other is sent: one that came late would be refused itself.
	eventually(t, func() bool { return scrape(t, s.Server)[`umbra_sandbox_running{engine="luau"}`] == 2 })
	began := time.Now()
	for range n - 2 {
		go send(`local n = 0 for i = 1, 1000 do n += i end return n`)
	}
	count := map[int]int{}
	for range n {
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		if a.status == http.StatusServiceUnavailable && a.retry == "" {
			t.Error("503 without Retry-After")
		}
		count[a.status]++
	}
	if count[200] < 200 || count[200]+count[422]+count[503] != n || count[422] != 2 && time.Since(began) < 3*time.Second {
		t.Errorf("%v", count)
	}
}

// TestScriptsStop holds that a server that is told to stop does not wait for a
// script for ever, and that what it saved stays.
func TestScriptsStop(t *testing.T) {
	s := startScripter(t, harness.Options{})
	s.value(t, `return 1`, `1`)
	status := make(chan int, 1)
	go func() {
		raw, _ := json.Marshal(obj{"script": `file.save("kept", "x") while true do end`})
		res, err := s.Client.Post(s.URL+"/scripts/execute", "application/json", bytes.NewReader(raw))
		if err != nil {
			status <- 0
			return
		}
		res.Body.Close()
		status <- res.StatusCode
	}()
	for began := time.Now(); ; {
		s.Do("GET", "/healthz", nil).Expect(200)
		if _, err := os.Lstat(filepath.Join(s.dir, "kept")); err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("the script saves nothing")
		}
	}
	s.Stop()
	if got := <-status; got != 503 {
		t.Errorf("the script's answer is %d", got)
	}
	if s.content(t, "kept") != "x" {
		t.Error("what was saved is gone")
	}
}
