package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// github stands in for GitHub's API and its releases.
type github struct {
	*httptest.Server
	mu       sync.Mutex
	comments []map[string]any
	calls    []string
	releases map[string][]byte
}

func newGitHub(t *testing.T) *github {
	g := &github{releases: map[string][]byte{}}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if name, ok := strings.CutPrefix(r.URL.Path, "/o/umbra/releases/download/"); ok {
			if g.releases[name] == nil {
				w.WriteHeader(404)
			}
			_, _ = w.Write(g.releases[name])
			return
		}
		if r.Header.Get("Authorization") != "Bearer job-token" {
			w.WriteHeader(401)
			return
		}
		g.calls = append(g.calls, r.Method+" "+r.URL.Path)
		var in struct{ Body string }
		raw, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(raw, &in)
		switch {
		case r.Method == "GET" && r.URL.Path == "/repos/o/r/issues/7/comments":
			page := 0
			fmt.Sscan(r.URL.Query().Get("page"), &page)
			list := []map[string]any{}
			for i := 100 * (page - 1); i < min(100*page, len(g.comments)); i++ {
				list = append(list, g.comments[i])
			}
			_ = json.NewEncoder(w).Encode(list)
		case r.Method == "POST" && r.URL.Path == "/repos/o/r/issues/7/comments":
			g.comments = append(g.comments, map[string]any{"id": 1000 + len(g.comments), "body": in.Body, "user": map[string]any{"type": "Bot"}})
			w.WriteHeader(201)
			_, _ = w.Write([]byte("{}"))
		case r.Method == "PATCH" && strings.HasPrefix(r.URL.Path, "/repos/o/r/issues/comments/"):
			for _, c := range g.comments {
				if fmt.Sprint(c["id"]) == strings.TrimPrefix(r.URL.Path, "/repos/o/r/issues/comments/") {
					c["body"] = in.Body
				}
			}
			_, _ = w.Write([]byte("{}"))
		default:
			w.WriteHeader(404)
		}
	}))
	t.Cleanup(g.Close)
	return g
}

// job is a run of the action's steps.
type job struct {
	failed                 []string // steps
	outputs                map[string]string
	summary, log, argument string
}

var expression = regexp.MustCompile(`\$\{\{ *([a-z0-9.-]+) *\}\}`)

// runAction runs the steps of action.yml as a runner does.
func runAction(t *testing.T, g *github, inputs map[string]string) *job {
	t.Helper()
	for _, tool := range []string{"sh", "jq", "curl", "git"} {
		need.Tool(t, tool)
	}
	var action struct {
		Inputs  map[string]struct{ Default string }
		Outputs map[string]struct{ Value string }
		Runs    struct {
			Using string
			Steps []struct {
				ID, Name, If, Shell, Run string
				Env                      map[string]string
			}
		}
	}
	folder := abs(t, "../../clients/action")
	raw, err := os.ReadFile(filepath.Join(folder, "action.yml"))
	need.NoError(t, err)
	if err := yaml.Unmarshal(raw, &action); err != nil || action.Runs.Using != "composite" {
		t.Fatal(err)
	}
	temp := t.TempDir()
	event := filepath.Join(temp, "event.json")
	need.NoError(t, os.WriteFile(event, []byte(`{"pull_request":{"number":7}}`), 0o600))
	// A program named umbra that notes its arguments, and git's by a trace.
	bin := filepath.Join(temp, "bin")
	need.NoError(t, os.MkdirAll(bin, 0o700))
	script := fmt.Sprintf("#!/bin/sh\nprintf '%%s\\n' \"umbra $*\" >>%q\nexec %q \"$@\"\n", filepath.Join(temp, "arguments"), harness.Binary(t))
	need.NoError(t, os.WriteFile(filepath.Join(bin, "umbra"), []byte(script), 0o700))
	j := &job{outputs: map[string]string{}}
	steps := map[string]map[string]string{}
	value := func(text string) string {
		return expression.ReplaceAllStringFunc(text, func(e string) string {
			words := strings.Split(expression.FindStringSubmatch(e)[1], ".")
			switch {
			case words[0] == "inputs":
				if v, ok := inputs[words[1]]; ok {
					return v
				}
				in, ok := action.Inputs[words[1]]
				if !ok {
					t.Errorf("%s is no input", e)
				}
				return in.Default
			case words[0] == "steps":
				return steps[words[1]][words[3]]
			case e == "${{ github.token }}":
				return "job-token"
			}
			t.Errorf("unknown expression %s", e)
			return ""
		})
	}
	path := bin + ":" + os.Getenv("PATH")
	for _, s := range action.Runs.Steps {
		if len(j.failed) > 0 && s.If != "always()" {
			continue
		}
		if strings.Contains(s.Run, "${{") {
			t.Errorf("step %s has an expression in its script", s.Name)
		}
		output, paths := filepath.Join(temp, "output"), filepath.Join(temp, "path")
		for _, f := range []string{output, paths} {
			need.NoError(t, os.WriteFile(f, nil, 0o600))
		}
		cmd := exec.Command(s.Shell, "-e", "-c", s.Run)
		cmd.Dir = temp
		cmd.Env = append(harness.Env(t), "PATH="+path, "RUNNER_TEMP="+temp, "GITHUB_ACTION_PATH="+folder, "GITHUB_OUTPUT="+output, "GITHUB_PATH="+paths,
			"GITHUB_STEP_SUMMARY="+filepath.Join(temp, "summary"), "GITHUB_EVENT_PATH="+event, "GITHUB_API_URL="+g.URL, "GITHUB_SERVER_URL="+g.URL,
			"GITHUB_REPOSITORY=o/r", "GITHUB_ACTION_REPOSITORY=o/umbra", "GIT_TRACE="+filepath.Join(temp, "arguments"))
		for name, text := range s.Env {
			cmd.Env = append(cmd.Env, name+"="+value(text))
		}
		out, err := cmd.CombinedOutput()
		j.log += string(out)
		if err != nil {
			j.failed = append(j.failed, s.Name)
		}
		steps[s.ID] = map[string]string{}
		for line := range strings.Lines(string(must(t, output))) {
			name, v, _ := strings.Cut(strings.TrimSpace(line), "=")
			steps[s.ID][name] = v
		}
		if more := strings.TrimSpace(string(must(t, paths))); more != "" {
			path = more + ":" + path
		}
	}
	for name, o := range action.Outputs {
		j.outputs[name] = value(o.Value)
	}
	summary, _ := os.ReadFile(filepath.Join(temp, "summary"))
	arguments, _ := os.ReadFile(filepath.Join(temp, "arguments"))
	j.summary, j.argument = string(summary), string(arguments)
	return j
}

func must(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	need.NoError(t, err)
	return raw
}

// evil is a name that is markup, a mention, a command and a workflow command.
const evil = "a<img src=x>`@everyone` | [x](http:evil) ::set-output.txt"

// agents makes a workspace on which two subtasks work, and returns the server, the
// workspace and the token of a reader.
func agents(t *testing.T) (s *harness.Server, workspace, token string) {
	s = harness.Start(t, harness.Options{})
	root := t.TempDir()
	need.NoError(t, os.WriteFile(filepath.Join(root, "base"), []byte("1\n"), 0o600))
	workspace = s.Do("POST", "/tasks", map[string]any{"task_id": "fix-1", "goal": "<b>fix</b> @team", "workspace": root}).Expect(201).Text("workspace_id")
	for _, w := range [][3]string{{"good", "one", "1\n2\n"}, {"bad", evil, "secret-content\n"}, {"good", "one", "1\n2\n3\n"}} {
		s.Do("POST", "/tasks/fix-1/batch", map[string]any{"operations": []map[string]any{{"op": "write", "path": w[1], "content": w[2]}}}, "X-Subtask-Id: "+w[0]).Expect(200)
	}
	s.Do("POST", "/workspaces/"+workspace+"/sync", nil).Expect(200)
	status, out, problem := harness.Run(t, nil, "token", "add", "ci", "--scope", "read", "--data-dir", s.DataDir)
	if status != 0 {
		t.Fatal(problem)
	}
	return s, workspace, strings.TrimSpace(out)
}

func TestAction(t *testing.T) {
	g := newGitHub(t)
	s, workspace, token := agents(t)
	// A person's comment that quotes the marker, and a page of others.
	for range 120 {
		g.comments = append(g.comments, map[string]any{"id": 1 + len(g.comments), "body": "<!-- umbra-replay task=fix-1 -->", "user": map[string]any{"type": "User"}})
	}
	inputs := map[string]string{"task": "fix-1", "from": s.URL + "/git/" + workspace + ".git", "token": token}
	j := runAction(t, g, inputs)
	if len(j.failed) > 0 || j.outputs["proved"] != "true" || j.outputs["steps"] != "3" || j.outputs["broken-step"] != "" {
		t.Fatalf("%v %v\n%s", j.failed, j.outputs, j.log)
	}
	if raw, err := os.ReadFile(j.outputs["report"]); err != nil || !json.Valid(raw) {
		t.Errorf("the report: %v", err)
	}
	if len(g.comments) != 121 {
		t.Fatalf("%d comments", len(g.comments))
	}
	comment := g.comments[120]["body"].(string)
	for _, want := range []string{"<!-- umbra-replay task=fix-1 -->", "<code>good</code> | 1 | +3 −0 |", "<code>bad</code> | 1 | +1 −0", "`umbra revert --task` <code>fix-1</code> `--subtask` <code>bad</code>",
		"&#60;b&#62;fix", "&#64;everyone"} {
		if !strings.Contains(comment, want) {
			t.Errorf("the comment has no %q:\n%s", want, comment)
		}
	}
	for _, bad := range []string{"<img", "<b>", "@everyone", "@team", "](", "secret-content"} {
		if strings.Contains(comment, bad) || strings.Contains(j.summary, bad) {
			t.Errorf("%q is in\n%s", bad, comment)
		}
	}
	if !strings.Contains(comment, strings.TrimSpace(j.summary)) {
		t.Errorf("the summary is another:\n%s", j.summary)
	}
	if strings.Contains(j.log, token) || strings.Contains(j.argument, token) || strings.Contains(j.log, "job-token") {
		t.Errorf("a token is in the log or an argument:\n%s\n%s", j.log, j.argument)
	}
	if !strings.Contains(j.argument, "umbra verify "+workspace) || !strings.Contains(j.log, "git fsck checks") {
		t.Errorf("nothing was verified:\n%s\n%s", j.argument, j.log)
	}
	status, out, problem := harness.Run(t, nil, "token", "add", "writer", "--scope", "write", "--data-dir", s.DataDir)
	if status != 0 {
		t.Fatal(problem)
	}
	writer := map[string]string{"task": "fix-1", "from": inputs["from"], "token": strings.TrimSpace(out), "comment": "false"}
	if j := runAction(t, g, writer); len(j.failed) > 0 || strings.Contains(j.log, "git fsck checks") || !strings.Contains(j.log, "ok   "+workspace) {
		t.Errorf("%v\n%s", j.failed, j.log)
	}

	// A step breaks: the same comment says so.
	inputs["exec"] = "test ! -e 'a<img src=x>'*"
	j = runAction(t, g, inputs)
	if len(j.failed) != 1 || j.outputs["broken-step"] != "2" || len(g.comments) != 121 {
		t.Fatalf("%v %v, %d comments\n%s", j.failed, j.outputs, len(g.comments), j.log)
	}
	if comment = g.comments[120]["body"].(string); !strings.Contains(comment, "Step 2 of 3 broke") {
		t.Errorf("the comment:\n%s", comment)
	}
	// The command does not get the token, nor a say in the job's later steps.
	inputs["exec"] = `test -z "$UMBRA_TOKEN$GITHUB_PATH$GITHUB_ENV$GITHUB_OUTPUT$GITHUB_STEP_SUMMARY"`
	inputs["comment"] = "false"
	calls := len(g.calls)
	if j = runAction(t, g, inputs); len(j.failed) > 0 || len(g.calls) != calls {
		t.Errorf("%v\n%s", j.failed, j.log)
	}
	// A wrong token: nothing is proved.
	inputs["token"], inputs["comment"] = "wrong", "true"
	j = runAction(t, g, inputs)
	if len(j.failed) != 1 || j.outputs["proved"] != "false" || !strings.Contains(g.comments[120]["body"].(string), "could not be fetched") {
		t.Errorf("%v %v\n%v", j.failed, j.outputs, g.comments[120]["body"])
	}
}

func TestActionBundle(t *testing.T) {
	g := newGitHub(t)
	s, workspace, token := agents(t)
	bundle := filepath.Join(t.TempDir(), "fix.bundle")
	res := s.Do("GET", "/tasks/fix-1/bundle", nil, "Authorization: Bearer "+token).Expect(200)
	need.NoError(t, os.WriteFile(bundle, res.Body, 0o600))
	repo := filepath.Join(s.DataDir, "workspaces", workspace, "repo.git")
	for _, from := range []string{bundle, repo} {
		if j := runAction(t, g, map[string]string{"task": "fix-1", "from": from, "comment": "false"}); len(j.failed) > 0 || j.outputs["proved"] != "true" {
			t.Errorf("%s: %v %v\n%s", from, j.failed, j.outputs, j.log)
		}
	}
	for _, bad := range []map[string]string{{"task": "../x", "from": bundle}, {"task": "fix-1", "from": "--upload-pack=touch /tmp/x"}, {"task": "fix-1", "from": "ext::sh -c true"}, {"task": "nothing", "from": bundle}} {
		bad["comment"] = "false"
		if j := runAction(t, g, bad); len(j.failed) != 1 || j.outputs["proved"] != "false" {
			t.Errorf("%v: %v %v\n%s", bad, j.failed, j.outputs, j.log)
		}
	}
}

// TestActionInstalls installs a release, and none whose checksum is another's.
func TestActionInstalls(t *testing.T) {
	g := newGitHub(t)
	s, workspace, token := agents(t)
	inputs := map[string]string{"task": "fix-1", "from": s.URL + "/git/" + workspace + ".git", "token": token, "comment": "false", "umbra-version": "v9"}
	out, err := exec.Command("sh", "-c", `echo "$(uname -s | tr LD ld) $(uname -m | sed 's/x86_64/amd64/;s/aarch64/arm64/')"`).Output()
	need.NoError(t, err)
	name := "umbra-v9-" + strings.ReplaceAll(strings.TrimSpace(string(out)), " ", "-")
	dir := t.TempDir()
	bin := filepath.Join(dir, name, "bin")
	need.NoError(t, os.MkdirAll(bin, 0o755))
	need.NoError(t, os.WriteFile(filepath.Join(bin, "umbra"), fmt.Appendf(nil, "#!/bin/sh\necho from the release >&2\nexec %q \"$@\"\n", harness.Binary(t)), 0o755))
	run(t, dir, nil, "sh", "-c", "tar -czf "+name+".tar.gz "+name+" && sha256sum "+name+".tar.gz >SHA256SUMS")
	for _, f := range []string{name + ".tar.gz", "SHA256SUMS"} {
		g.releases["v9/"+f] = must(t, filepath.Join(dir, f))
	}
	if j := runAction(t, g, inputs); len(j.failed) > 0 || !strings.Contains(j.log, "from the release") {
		t.Errorf("%v\n%s", j.failed, j.log)
	}
	g.releases["v9/SHA256SUMS"] = []byte(strings.Repeat("0", 64) + "  " + name + ".tar.gz\n")
	if j := runAction(t, g, inputs); len(j.failed) == 0 || strings.Contains(j.log, "from the release") {
		t.Errorf("%v\n%s", j.failed, j.log)
	}
}
