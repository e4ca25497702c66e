package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// project is a server with one folder, and what the tests of the tasks and
// workspaces dialects do with them.
type project struct {
	*harness.Server
	dir string
}

// newProject starts a server and makes a folder with the given files.
func newProject(t *testing.T, files map[string]string) *project {
	t.Helper()
	p := &project{Server: harness.Start(t, harness.Options{}), dir: t.TempDir()}
	p.fill(t, files)
	return p
}

func (p *project) fill(t *testing.T, files map[string]string) {
	t.Helper()
	for name, data := range files {
		full := filepath.Join(p.dir, name)
		need.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		need.NoError(t, os.WriteFile(full, []byte(data), 0o644))
	}
}

func (p *project) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, name))
	need.NoError(t, err)
	return string(data)
}

func (p *project) absent(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(p.dir, name)); !os.IsNotExist(err) {
		t.Errorf("%s is there (%v)", name, err)
	}
}

// taskOf is a task made over HTTP.
type taskOf struct {
	p  *project
	ID string
	At map[string]any // the answer of POST /tasks
}

// task starts a task on the project's folder; more are further members of the
// request.
func (p *project) task(t *testing.T, more ...any) *taskOf {
	t.Helper()
	body := map[string]any{"goal": "test", "workspace": p.dir}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	r := p.post(t, "/tasks", body).want(t, 201)
	return &taskOf{p: p, ID: r.str(t, "task_id"), At: r.obj(t)}
}

func (k *taskOf) url(rest string) string { return "/tasks/" + k.ID + rest }

func (k *taskOf) file(path string) string {
	return k.url("/content?path=" + url.QueryEscape(path))
}

func (k *taskOf) put(t *testing.T, path, data string, header ...string) *answer {
	t.Helper()
	return k.p.call(t, "PUT", k.file(path), []byte(data), header...)
}

func (k *taskOf) str(name string) string {
	s, _ := k.At[name].(string)
	return s
}

func (k *taskOf) gitDir() string { return k.str("git_dir") }

// sync makes stock git see everything.
func (k *taskOf) sync(t *testing.T) *answer {
	t.Helper()
	return k.p.call(t, "POST", "/workspaces/"+k.str("workspace_id")+"/sync", nil).want(t, 200)
}

// git runs stock git on the workspace's repository, after a sync.
func (k *taskOf) git(t *testing.T, args ...string) string {
	t.Helper()
	k.sync(t)
	return harness.Git(t, k.gitDir(), args...)
}

// fsck is clean, and has nothing to say. After a kill that needs --no-dangling: it takes
// along which records newer ones superseded.
func (k *taskOf) fsck(t *testing.T, args ...string) {
	t.Helper()
	k.sync(t)
	if out := harness.Git(t, k.gitDir(), append([]string{"fsck", "--strict", "--full", "--no-progress"}, args...)...); strings.TrimSpace(out) != "" {
		t.Errorf("git fsck says: %s", out)
	}
}

func (k *taskOf) changes(t *testing.T, query string) []map[string]any {
	t.Helper()
	return k.p.call(t, "GET", k.url("/changes"+query), nil).want(t, 200).list(t, "entries")
}

// call sends a request. A []byte body goes raw, anything else as JSON; header
// is names and values in turn.
func (p *project) call(t *testing.T, method, path string, body any, header ...string) *answer {
	t.Helper()
	var lines []string
	for i := 0; i+1 < len(header); i += 2 {
		lines = append(lines, header[i]+": "+header[i+1])
	}
	res := p.Do(method, path, body, lines...)
	return &answer{Status: res.Status, Header: res.Header, Body: res.Body, what: method + " " + path}
}

// crash kills the server and starts it again.
func (p *project) crash() {
	p.Kill()
	p.Restart()
}

// restart stops the server as a person does, and starts it again.
func (p *project) restart() {
	p.Stop()
	p.Restart()
}

func (p *project) post(t *testing.T, path string, body any, header ...string) *answer {
	t.Helper()
	return p.call(t, "POST", path, body, header...)
}

// answer is what came back.
type answer struct {
	Status int
	Header map[string][]string
	Body   []byte
	what   string
}

func (a *answer) head(name string) string {
	if v := a.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func (a *answer) want(t *testing.T, status int) *answer {
	t.Helper()
	if a.Status != status {
		t.Fatalf("%s: status %d, want %d: %.600s", a.what, a.Status, status, a.Body)
	}
	return a
}

// fails holds an error of the tasks' shape with a status and a code.
func (a *answer) fails(t *testing.T, status int, code string) map[string]any {
	t.Helper()
	if a.Status != status {
		t.Errorf("%s: status %d, want %d %s: %.600s", a.what, a.Status, status, code, a.Body)
		return nil
	}
	o := a.obj(t)
	if o["error"] != code {
		t.Errorf("%s: error %v, want %s", a.what, o["error"], code)
	}
	if d, _ := o["detail"].(string); d == "" {
		t.Errorf("%s: no detail", a.what)
	}
	return o
}

func (a *answer) obj(t *testing.T) map[string]any {
	t.Helper()
	var o map[string]any
	dec := json.NewDecoder(bytes.NewReader(a.Body))
	dec.UseNumber()
	if err := dec.Decode(&o); err != nil {
		t.Fatalf("%s: %v: %.300s", a.what, err, a.Body)
	}
	return o
}

func (a *answer) str(t *testing.T, name string) string {
	t.Helper()
	s, ok := a.obj(t)[name].(string)
	if !ok {
		t.Fatalf("%s: %s is no text: %.600s", a.what, name, a.Body)
	}
	return s
}

func (a *answer) list(t *testing.T, name string) []map[string]any {
	t.Helper()
	raw, ok := a.obj(t)[name].([]any)
	if !ok {
		t.Fatalf("%s: %s is no list: %.600s", a.what, name, a.Body)
	}
	out := make([]map[string]any, len(raw))
	for i, e := range raw {
		out[i], _ = e.(map[string]any)
	}
	return out
}

// has holds members of a JSON object, compared by their texts.
func has(t *testing.T, o map[string]any, want map[string]any) {
	t.Helper()
	for k, v := range want {
		got, there := o[k]
		if !there || fmt.Sprint(got) != fmt.Sprint(v) {
			t.Errorf("%s is %v, want %v", k, got, v)
		}
	}
}

// describe gives an entry's operation and paths, for comparing.
func describe(e map[string]any) string {
	s := fmt.Sprintf("%v %v", e["operation"], e["path"])
	if e["new_path"] != nil {
		s += fmt.Sprintf(" -> %v", e["new_path"])
	}
	return s
}

func briefs(list []map[string]any) []string {
	out := []string{}
	for _, e := range list {
		out = append(out, describe(e))
	}
	return out
}

func testJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
