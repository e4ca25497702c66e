package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"umbra/tests/harness"
)

// How long the mixed load goes on: an hour in make soak, a moment in make test.
const (
	soakLong  = time.Hour
	soakShort = 18 * time.Second
)

// TestSoak keeps up a load of all dialects. What the server holds (descriptors,
// goroutines, memory) and what it takes on disk after umbra gc must be no more in
// the last third than in the first.
func TestSoak(t *testing.T) {
	// Superseded packs stay open for a grace of minutes: within a moment their
	// number only grows.
	length, packs := soakShort, int64(400)
	if how := os.Getenv("UMBRA_SOAK"); how != "" {
		length, packs = soakLong, 24
		if d, err := time.ParseDuration(how); err == nil { // as long as one likes
			length = d
		}
	}
	k := newSoak(t)
	stop := make(chan struct{})
	for _, worker := range []func(*rand.Rand) error{k.agent, k.agent, k.agent, k.session, k.toolset, k.program, k.script, k.clone, k.watch, k.person} {
		k.run(stop, worker)
	}
	// The first sixth warms up: pools, caches, the sandboxes' processes.
	k.wait(t, length/6)
	var thirds [3]held
	for i := range thirds {
		thirds[i] = k.observe(t, length*5/18)
	}
	close(stop)
	k.workers.Wait()
	if n := k.failed.Load(); n > 0 {
		t.Errorf("%d calls failed, the first: %v", n, k.first.Load())
	}
	first, last := thirds[0], thirds[2]
	t.Logf("%d calls; %+v; %+v; %+v", k.calls.Load(), thirds[0], thirds[1], thirds[2])
	if k.calls.Load() < 200 {
		t.Errorf("only %d calls were made", k.calls.Load())
	}
	flat := func(what string, first, last, slack int64) {
		t.Helper()
		if last > first+first/4+slack {
			t.Errorf("%s grow: %d in the first third, %d in the last", what, first, last)
		}
	}
	flat("descriptors", first.descriptors, last.descriptors, packs)
	flat("goroutines", first.goroutines, last.goroutines, 24)
	flat("resident bytes", first.resident, last.resident, 48<<20)
	flat("bytes on disk", first.disk, last.disk, 4<<20)
}

// held is the least of what the server held at several looks: peaks are the
// load's, what never goes is a leak.
type held struct{ descriptors, goroutines, resident, disk int64 }

// soak is the server and what the workers share.
type soak struct {
	*project
	id      string // the workspace's
	gitDir  string
	workers sync.WaitGroup
	gate    sync.RWMutex // held by who wants the workers to stand still
	calls   atomic.Int64
	failed  atomic.Int64
	first   atomic.Value
	seeds   atomic.Int64
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	config := "retention: {bytes: 2MiB, interval: 5s}\nworkspaces: {watch_idle: 1m}\n"
	p := &project{Server: harness.Start(t, harness.Options{Config: config, Args: []string{"--output-dir", filepath.Join(t.TempDir(), "out"), "--workspace-dir", filepath.Join(t.TempDir(), "code")}}), dir: t.TempDir()}
	p.fill(t, map[string]string{"README.md": "soak\n", ".gitignore": "*.log\n"})
	task := p.task(t)
	p.call(t, "PATCH", task.url(""), map[string]any{"status": "completed"}).want(t, 200)
	return &soak{project: p, id: task.str("workspace_id"), gitDir: task.gitDir()}
}

// run calls a worker again and again.
func (k *soak) run(stop <-chan struct{}, worker func(*rand.Rand) error) {
	r := rand.New(rand.NewSource(k.seeds.Add(1)))
	k.workers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			k.gate.RLock()
			err := worker(r)
			k.gate.RUnlock()
			if err != nil {
				k.failed.Add(1)
				k.first.CompareAndSwap(nil, err.Error())
			}
		}
	})
}

// ask sends a request and reads the answer into dst; a status that is not listed
// is an error.
func (k *soak) ask(dst any, method, path string, body any, statuses ...int) error {
	var src io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case []byte:
		src, kind = bytes.NewReader(b), "application/octet-stream"
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return err
		}
		src = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, k.URL+path, src)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", kind)
	}
	res, err := k.Client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	k.calls.Add(1)
	for _, s := range statuses {
		if res.StatusCode == s {
			if dst == nil {
				return nil
			}
			return json.Unmarshal(raw, dst)
		}
	}
	return fmt.Errorf("%s %s: %d %.300s", method, path, res.StatusCode, raw)
}

func words(r *rand.Rand, n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "%x\n", r.Int63())
	}
	return b.Bytes()
}

// agent does a task: writes, reads, moves, deletes, reverts, and completes it.
func (k *soak) agent(r *rand.Rand) error {
	var at struct {
		ID string `json:"task_id"`
	}
	if err := k.ask(&at, "POST", "/tasks", map[string]any{"goal": "soak", "workspace": k.dir}, 201); err != nil {
		return err
	}
	task := "/tasks/" + at.ID
	own := at.ID
	var all error
	try := func(err error) { all = errors.Join(all, err) }
	for i := range 40 {
		try(k.rest(r, 40*time.Millisecond))
		name := fmt.Sprintf("%s/f%d", own, i%8)
		switch i % 8 {
		case 3:
			try(k.ask(nil, "GET", task+"/changes?limit=20", nil, 200))
		case 5:
			try(k.ask(nil, "DELETE", fmt.Sprintf("%s/content?path=%s/f%d", task, own, (i-1)%8), nil, 200, 404))
		case 6:
			try(k.ask(nil, "GET", task+"/diff", nil, 200))
		case 7:
			try(k.ask(nil, "POST", task+"/move", map[string]any{"from": fmt.Sprintf("%s/f%d", own, i%8-5), "to": fmt.Sprintf("%s/m%d", own, i)}, 200, 404))
		default:
			try(k.ask(nil, "PUT", task+"/content?path="+name, words(r, 200+r.Intn(3000)), 200, 201))
		}
	}
	try(k.ask(nil, "PUT", task+"/scratch/notes", words(r, 100), 200, 201))
	try(k.ask(nil, "POST", task+"/revert", map[string]any{}, 200, 409)) // a person's edits may be its own too
	try(k.ask(nil, "PATCH", task, map[string]any{"status": "completed"}, 200))
	try(k.ask(nil, "DELETE", task, nil, 200, 204))
	return all
}

// session edits through the file system API.
func (k *soak) session(r *rand.Rand) error {
	var at struct {
		ID string `json:"sessionId"`
	}
	if err := k.ask(&at, "POST", "/api/sessions", map[string]any{"workspaceRoot": k.dir}, 201); err != nil {
		return err
	}
	s := "/api/sessions/" + at.ID
	var all error
	for i := range 20 {
		all = errors.Join(all, k.ask(nil, "POST", s+"/fs/write", map[string]any{"path": fmt.Sprintf("session/f%d", i%5), "content": string(words(r, 500))}, 200, 201),
			k.ask(nil, "GET", s+"/fs/list?path=.", nil, 200))
	}
	return errors.Join(all, k.ask(nil, "DELETE", s, nil, 200, 204))
}

// toolset uses tools on a virtual store.
func (k *soak) toolset(r *rand.Rand) error {
	var at struct {
		ID string `json:"id"`
	}
	mounts := mountsBody(virtual("/mem", "READ_WRITE", "soak"))
	if err := k.ask(&at, "POST", "/toolsets", mounts, 201); err != nil {
		return err
	}
	var all error
	for i := range 10 {
		all = errors.Join(all, k.ask(nil, "POST", "/toolsets/"+at.ID+"/call", map[string]any{"name": "write_file",
			"arguments": map[string]any{"path": fmt.Sprintf("/mem/f%d", i%4), "content": string(words(r, 300))}}, 200))
	}
	return errors.Join(all, k.ask(nil, "DELETE", "/toolsets/"+at.ID, nil, 200, 204))
}

// program saves a program, lints and runs it.
func (k *soak) program(r *rand.Rand) error {
	id := fmt.Sprintf("soak%d", r.Intn(5))
	code := fmt.Sprintf("const n: number = %d\nconsole.log(n)\nexport default n\n", r.Intn(1000))
	return errors.Join(k.ask(nil, "PUT", "/workspace", map[string]any{"codeId": id, "code": code}, 200),
		k.ask(nil, "POST", "/execute", map[string]any{"codeId": id}, 200), k.rest(r, 200*time.Millisecond))
}

// script saves a file from Luau.
func (k *soak) script(r *rand.Rand) error {
	return errors.Join(k.ask(nil, "POST", "/scripts/execute", map[string]any{"script": fmt.Sprintf("file.save('s%d.txt', '%d') return 1", r.Intn(5), r.Int63())}, 200),
		k.rest(r, 200*time.Millisecond))
}

// clone fetches the history over HTTP, as far as it goes back.
func (k *soak) clone(r *rand.Rand) error {
	dir, err := os.MkdirTemp("", "umbra-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("git", "clone", "--quiet", "--depth", "20", k.URL+"/git/"+k.id+".git", dir)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("clone: %w: %s", err, out)
	}
	k.calls.Add(1)
	return k.rest(r, 500*time.Millisecond)
}

// watch follows the workspace's events for a while.
func (k *soak) watch(r *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(500+r.Intn(1000))*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", k.URL+"/workspaces/"+k.id+"/stream", nil)
	if err != nil {
		return err
	}
	res, err := k.Client.Do(req)
	if ctx.Err() != nil {
		return nil // on a busy machine it is over before it began
	}
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != 200 {
		return fmt.Errorf("stream: %d", res.StatusCode)
	}
	_, err = io.Copy(io.Discard, res.Body)
	if ctx.Err() != nil {
		err = nil
	}
	k.calls.Add(1)
	return err
}

// person edits the folder behind the server's back.
func (k *soak) person(r *rand.Rand) error {
	name := filepath.Join(k.dir, fmt.Sprintf("person%d", r.Intn(10)))
	if r.Intn(4) == 0 {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	} else if err := os.WriteFile(name, words(r, 400), 0o644); err != nil {
		return err
	}
	return k.rest(r, 300*time.Millisecond)
}

// rest is a pause of up to d.
func (k *soak) rest(r *rand.Rand, d time.Duration) error {
	<-time.After(time.Duration(r.Int63n(int64(d))))
	return nil
}

func (k *soak) wait(t *testing.T, d time.Duration) {
	t.Helper()
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		if k.failed.Load() > 0 {
			t.Fatalf("a call failed: %v", k.first.Load())
		}
		<-time.After(min(100*time.Millisecond, time.Until(end)))
	}
}

// observe looks at the server for a while, then has the room freed.
func (k *soak) observe(t *testing.T, d time.Duration) (least held) {
	t.Helper()
	const looks = 10
	for i := range looks {
		k.wait(t, d/looks)
		h := k.look(t)
		if i == 0 {
			least = h
		}
		least.descriptors = min(least.descriptors, h.descriptors)
		least.goroutines = min(least.goroutines, h.goroutines)
		least.resident = min(least.resident, h.resident)
	}
	// No task is under way then, whose base would hold history.
	k.gate.Lock()
	defer k.gate.Unlock()
	if out, err := harness.Command(t, nil, "gc", "--now", "--data-dir", k.DataDir).CombinedOutput(); err != nil {
		t.Fatalf("gc: %v\n%s", err, out)
	}
	least.disk = diskOf(t, k.DataDir)
	return least
}

var (
	goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)
	resident   = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB`)
)

func (k *soak) look(t *testing.T) (h held) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d", k.PID())
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		t.Fatal(err)
	}
	res, err := k.Client.Get(k.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	metrics, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	number := func(re *regexp.Regexp, text []byte) int64 {
		m := re.FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s is nowhere in %.300s", re, text)
		}
		n, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return held{descriptors: int64(len(fds)), goroutines: number(goroutines, metrics), resident: number(resident, status) << 10}
}

// diskOf adds up the sizes of files below a folder, each inode once; the kept
// answers and the tasks' records, which are meant to stay, are left out.
func diskOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), "state.db") {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
