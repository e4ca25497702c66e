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
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"umbra/tests/harness"
)

// load starts all the workers; each does its round again and again until stop is
// closed.
func (k *soak) load(t *testing.T, stop <-chan struct{}) {
	for _, worker := range []func(*rand.Rand) error{k.agent, k.agent, k.agent, k.session, k.toolset, k.mcp, k.program, k.script, k.clone,
		k.watch, k.look, k.person, k.verbs(t), k.purger(t)} {
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
					k.fail(err)
				}
			}
		})
	}
}

// ask sends a request and reads the answer into dst; a status that is not listed
// is an error. header are names and values in turn.
func (k *soak) ask(dst any, method, path string, body any, statuses []int, header ...string) error {
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
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
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

// Which statuses a call may have.
var (
	is200   = []int{200}
	is201   = []int{201}
	written = []int{200, 201}
	deleted = []int{200, 204}
	foundOr = []int{200, 404}
	keptOr  = []int{200, 404, 410} // of a task that another client deletes, or whose history goes
	cutOr   = []int{200, 409, 410} // the same, of one that is there; a revert may meet a user's edits
)

func words(r *rand.Rand, n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "%x\n", r.Int63())
	}
	return b.Bytes()
}

// rest is a pause of up to d.
func (k *soak) rest(r *rand.Rand, d time.Duration) error {
	<-time.After(time.Duration(r.Int63n(int64(d))))
	return nil
}

// agent does a task: writes, reads, moves, deletes, reverts, and completes it.
func (k *soak) agent(r *rand.Rand) error {
	var at struct {
		ID string `json:"task_id"`
	}
	if err := k.ask(&at, "POST", "/tasks", map[string]any{"goal": "soak", "workspace": k.dir}, is201); err != nil {
		return err
	}
	k.tasks.Add(1)
	task := "/tasks/" + at.ID
	own := at.ID
	var all error
	try := func(err error) { all = errors.Join(all, err) }
	for i := range 40 {
		try(k.rest(r, 150*time.Millisecond))
		name := fmt.Sprintf("%s/f%d", own, i%8)
		part := []string{"X-Subtask-Id", fmt.Sprintf("part%d", i/10)}
		switch i % 8 {
		case 2: // a key, as a client has it that may try again
			key := fmt.Sprintf("%s-%d", own, i)
			k.keys.Add(1)
			try(k.ask(nil, "PUT", task+"/content?path="+name, words(r, 500), written, append(part, "Idempotency-Key", key)...))
		case 3:
			try(k.ask(nil, "GET", task+"/changes?limit=20", nil, is200))
			try(k.ask(nil, "GET", task+"/files", nil, is200))
		case 5:
			try(k.ask(nil, "DELETE", fmt.Sprintf("%s/content?path=%s/f%d", task, own, (i-1)%8), nil, foundOr, part...))
		case 6:
			try(k.ask(nil, "GET", task+"/diff", nil, is200))
			try(k.ask(nil, "GET", task+"/content?path="+fmt.Sprintf("%s/f0", own), nil, foundOr))
		case 7:
			try(k.ask(nil, "POST", task+"/move", map[string]any{"from": fmt.Sprintf("%s/f%d", own, i%8-5), "to": fmt.Sprintf("%s/m%d", own, i)}, foundOr, part...))
		default:
			try(k.ask(nil, "PUT", task+"/content?path="+name, words(r, 200+r.Intn(3000)), written, part...))
		}
		if i == 20 {
			try(k.ask(nil, "POST", task+"/subtasks/part0/revert", map[string]any{}, cutOr))
		}
	}
	try(k.ask(nil, "PUT", task+"/scratch/notes", words(r, 100), written))
	try(k.ask(nil, "POST", task+"/revert", map[string]any{}, cutOr))
	try(k.ask(nil, "PATCH", task, map[string]any{"status": "completed"}, is200))
	if r.Intn(2) == 0 {
		try(k.ask(nil, "DELETE", task, nil, deleted))
	}
	return all
}

// session edits through the file system API.
func (k *soak) session(r *rand.Rand) error {
	var at struct {
		ID string `json:"sessionId"`
	}
	if err := k.ask(&at, "POST", "/api/sessions", map[string]any{"workspaceRoot": k.dir}, is201); err != nil {
		return err
	}
	k.tasks.Add(1)
	s := "/api/sessions/" + at.ID
	var all error
	for i := range 20 {
		all = errors.Join(all, k.rest(r, 100*time.Millisecond),
			k.ask(nil, "POST", s+"/fs/write", map[string]any{"path": fmt.Sprintf("session/f%d", i%5), "content": string(words(r, 500))}, written),
			k.ask(nil, "GET", s+"/fs/list?path=.", nil, is200))
	}
	return errors.Join(all, k.ask(nil, "DELETE", s, nil, deleted))
}

// toolset uses tools on a virtual store.
func (k *soak) toolset(r *rand.Rand) error {
	id, err := k.openTools()
	if err != nil {
		return err
	}
	var all error
	for i := range 10 {
		all = errors.Join(all, k.rest(r, 100*time.Millisecond), k.ask(nil, "POST", "/toolsets/"+id+"/call", map[string]any{"name": "write_file",
			"arguments": map[string]any{"path": fmt.Sprintf("/mem/f%d", i%4), "content": string(words(r, 300))}}, is200))
	}
	return errors.Join(all, k.ask(nil, "DELETE", "/toolsets/"+id, nil, deleted))
}

func (k *soak) openTools() (string, error) {
	var at struct {
		ID string `json:"id"`
	}
	k.tasks.Add(1)
	err := k.ask(&at, "POST", "/toolsets", mountsBody(virtual("/mem", "READ_WRITE", "soak")), is201)
	return at.ID, err
}

// mcp uses the same tools as a client of the Model Context Protocol, of one
// revision or the other.
func (k *soak) mcp(r *rand.Rand) (err error) {
	id, err := k.openTools()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.ask(nil, "DELETE", "/toolsets/"+id, nil, deleted)) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	revision := newest
	if r.Intn(2) == 0 {
		revision = before
	}
	transport := &sdk.StreamableClientTransport{Endpoint: k.URL + "/mcp/" + id, HTTPClient: k.Client, MaxRetries: -1}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "soak", Version: "1"}, nil).Connect(ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return fmt.Errorf("mcp: %w", err)
	}
	defer c.Close()
	if _, err := c.ListTools(ctx, nil); err != nil {
		return fmt.Errorf("mcp: %w", err)
	}
	for i := range 10 {
		path := fmt.Sprintf("/mem/m%d", i%3)
		calls := []*sdk.CallToolParams{
			{Name: "write_file", Arguments: map[string]any{"path": path, "content": string(words(r, 200))}},
			{Name: "read_file", Arguments: map[string]any{"path": path}},
		}
		for _, call := range calls {
			res, err := c.CallTool(ctx, call)
			if err == nil && res.IsError {
				err = fmt.Errorf("%v", res.Content[0])
			}
			if err != nil {
				return fmt.Errorf("mcp: %s: %w", call.Name, err)
			}
			k.calls.Add(1)
		}
		_ = k.rest(r, 200*time.Millisecond)
	}
	return nil
}

// program saves a program, lints and runs it.
func (k *soak) program(r *rand.Rand) error {
	id := fmt.Sprintf("soak%d", r.Intn(5))
	code := fmt.Sprintf("const n: number = %d\nconsole.log(n)\nexport default n\n", r.Intn(1000))
	return errors.Join(k.ask(nil, "PUT", "/workspace", map[string]any{"codeId": id, "code": code}, is200),
		k.ask(nil, "POST", "/execute", map[string]any{"codeId": id}, is200), k.rest(r, 800*time.Millisecond))
}

// script saves a file from Luau.
func (k *soak) script(r *rand.Rand) error {
	return errors.Join(k.ask(nil, "POST", "/scripts/execute", map[string]any{"script": fmt.Sprintf("file.save('s%d.txt', '%d') return 1", r.Intn(5), r.Int63())}, is200),
		k.rest(r, 800*time.Millisecond))
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
	return k.rest(r, 2*time.Second)
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

// look reads what a person looks at: lists, logs, tasks of all ages.
func (k *soak) look(r *rand.Rand) error {
	var page struct {
		Tasks []struct {
			ID string `json:"task_id"`
		} `json:"tasks"`
		Next *string `json:"next"`
	}
	all := k.ask(&page, "GET", "/tasks?limit=20", nil, is200)
	for next := page.Next; next != nil && r.Intn(3) > 0; next = page.Next {
		page.Next = nil
		all = errors.Join(all, k.ask(&page, "GET", "/tasks?limit=20&after="+url.QueryEscape(*next), nil, is200))
	}
	if n := len(page.Tasks); n > 0 {
		task := "/tasks/" + page.Tasks[r.Intn(n)].ID
		all = errors.Join(all, k.ask(nil, "GET", task, nil, keptOr), k.ask(nil, "GET", task+"/files", nil, keptOr),
			k.ask(nil, "GET", task+"/changes?limit=5", nil, keptOr))
	}
	ws := "/workspaces/" + k.id
	return errors.Join(all, k.ask(nil, "GET", "/workspaces", nil, is200), k.ask(nil, "GET", ws+"/log?limit=50", nil, cutOr), k.ask(nil, "GET", ws+"/coverage", nil, is200),
		k.ask(nil, "POST", ws+"/sync", map[string]any{}, is200), k.rest(r, 2*time.Second))
}

// person edits the folder behind the server's back: files, and a folder that
// comes and goes as a whole.
func (k *soak) person(r *rand.Rand) error {
	if r.Intn(10) == 0 {
		return errors.Join(k.checkout(r), k.rest(r, 300*time.Millisecond))
	}
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

func (k *soak) checkout(r *rand.Rand) error {
	dir := filepath.Join(k.dir, "checkout")
	if _, err := os.Stat(dir); err == nil {
		return os.RemoveAll(dir)
	}
	for i := range 20 {
		sub := filepath.Join(dir, fmt.Sprintf("d%d", i%4))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), words(r, 300), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// verb runs the program beside the server.
func (k *soak) verb(t *testing.T, args ...string) error {
	cmd := harness.Command(t, nil, append(args, "--data-dir", k.DataDir)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("umbra %v: %w\n%.600s", args, err, out)
	}
	k.calls.Add(1)
	return nil
}

// seldom makes a worker's round one that is done every so often: who wants the
// workers to stand still does not wait for it.
func (k *soak) seldom(every time.Duration, round func(*rand.Rand) error) func(*rand.Rand) error {
	next := time.Now()
	return func(r *rand.Rand) error {
		if time.Now().Before(next) {
			return k.rest(r, 200*time.Millisecond)
		}
		err := round(r)
		next = time.Now().Add(every/2 + time.Duration(r.Int63n(int64(every))))
		return err
	}
}

// verbs are those of upkeep that an owner runs: backup and garbage collection.
func (k *soak) verbs(t *testing.T) func(r *rand.Rand) error {
	return k.seldom(10*time.Second, func(r *rand.Rand) error {
		return errors.Join(k.verb(t, "backup", k.backup), k.verb(t, "gc"), k.verb(t, "du", "--by", "task"))
	})
}

// purger keeps a small workspace in which a secret comes and is taken out again.
func (k *soak) purger(t *testing.T) func(r *rand.Rand) error {
	dir := t.TempDir()
	return k.seldom(10*time.Second, func(r *rand.Rand) error {
		var at struct {
			ID string `json:"task_id"`
			WS string `json:"workspace_id"`
		}
		if err := k.ask(&at, "POST", "/tasks", map[string]any{"goal": "soak", "workspace": dir}, is201); err != nil {
			return err
		}
		k.tasks.Add(1)
		file := "/tasks/" + at.ID + "/content?path="
		var all error
		for i := range 6 {
			all = errors.Join(all, k.ask(nil, "PUT", file+fmt.Sprintf("f%d", i%3), words(r, 300), written))
		}
		all = errors.Join(all, k.ask(nil, "PUT", file+"key", words(r, 100), written), k.ask(nil, "DELETE", file+"key", nil, is200))
		if all != nil {
			return all
		}
		return errors.Join(k.verb(t, "purge", at.WS, "key"), k.ask(nil, "GET", "/tasks/"+at.ID+"/diff", nil, is200),
			k.ask(nil, "POST", "/tasks/"+at.ID+"/revert", map[string]any{}, is200),
			k.ask(nil, "PATCH", "/tasks/"+at.ID, map[string]any{"status": "completed"}, is200))
	})
}
