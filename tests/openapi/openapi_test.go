// Package openapi holds the server's OpenAPI document to what others make of it:
// a linter finds nothing, and clients that are generated from it, in TypeScript
// and in Go, compile and work against the program.
package openapi

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// document gives the document as the server sends it.
func document(t *testing.T, s *harness.Server) []byte {
	t.Helper()
	res, err := s.Client.Get(s.URL + "/openapi.json")
	need.NoError(t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", res.Status, err)
	}
	return raw
}

// folder is a new one with the document and copies of files of ours.
func folder(t *testing.T, s *harness.Server, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "openapi.json"), document(t, s))
	for _, name := range files {
		raw, err := os.ReadFile(name)
		need.NoError(t, err)
		write(t, filepath.Join(dir, filepath.Base(name)), raw)
	}
	return dir
}

func write(t *testing.T, name string, raw []byte) {
	t.Helper()
	need.NoError(t, os.WriteFile(name, raw, 0o644))
}

// run runs a program that must end well, and gives its output.
func run(t *testing.T, dir string, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "NO_COLOR=1", "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s\n%s", filepath.Base(name), strings.Join(args, " "), err, &out, &errOut)
	}
	return out.Bytes()
}

// npm gives a program that npm has installed here.
func npm(t *testing.T, name string) string {
	t.Helper()
	need.Tool(t, "node")
	path, err := filepath.Abs(filepath.Join("node_modules", ".bin", name))
	need.NoError(t, err)
	if _, err := os.Stat(path); err != nil {
		need.Missing(t, name+" is not installed (tests/tools/setup)")
	}
	return path
}

// TestLint holds the document to the linter's strict set.
func TestLint(t *testing.T) {
	redocly := npm(t, "redocly")
	s := harness.Start(t, harness.Options{})
	dir := folder(t, s, "redocly.yaml", ".redocly.lint-ignore.yaml")
	run(t, dir, redocly, "lint", "--max-problems=1000", "openapi.json")
}

// TestOperations holds what a linter does not know: names that are good names of
// functions, and an answer for everything that may go wrong.
func TestOperations(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	var doc struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]json.RawMessage
	}
	need.NoError(t, json.Unmarshal(document(t, s), &doc))
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Errorf("the document is OpenAPI %s", doc.OpenAPI)
	}
	name := regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)
	seen := map[string]string{}
	for path, item := range doc.Paths {
		for method, raw := range item {
			if method == "parameters" {
				continue
			}
			var op struct {
				OperationID string `json:"operationId"`
				Summary     string
				Tags        []string
				Responses   map[string]json.RawMessage
			}
			need.NoError(t, json.Unmarshal(raw, &op))
			at := strings.ToUpper(method) + " " + path
			if other := seen[strings.ToLower(op.OperationID)]; other != "" {
				t.Errorf("%s has the operationId of %s", at, other)
			}
			seen[strings.ToLower(op.OperationID)] = at
			if !name.MatchString(op.OperationID) {
				t.Errorf("%s: operationId %q", at, op.OperationID)
			}
			if op.Summary == "" || strings.HasSuffix(op.Summary, ".") || len(op.Tags) != 1 {
				t.Errorf("%s: summary %q, tags %q", at, op.Summary, op.Tags)
			}
			if op.Responses["default"] == nil {
				t.Errorf("%s has no default answer", at)
			}
		}
	}
	if len(seen) < 80 {
		t.Errorf("there are %d operations", len(seen))
	}
}

// seen is what a client tells of a task's life.
type seen struct {
	Commit  string
	Refused struct {
		Status int
		Code   string
	}
	Operations []string
	Files      []string
	Additions  int
	Patch      string
	Text       string
	Planned    []string
	Undone     int
	Missing    string
	Status     string
	Session    string
}

// check holds what a client has seen against what there was to see.
func check(t *testing.T, out []byte) {
	t.Helper()
	var got seen
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(got.Commit) {
		t.Errorf("commit %q", got.Commit)
	}
	if !strings.HasPrefix(got.Patch, "diff --git a/docs/b.txt b/docs/b.txt\n") || !strings.Contains(got.Patch, "+one\n") {
		t.Errorf("patch %q", got.Patch)
	}
	want := seen{Commit: got.Commit, Patch: got.Patch, Operations: []string{"create"}, Files: []string{"created docs/b.txt", "created src/app.ts"},
		Additions: 1, Text: "one\n", Planned: []string{"deleted src/app.ts"}, Undone: 1, Missing: "task_not_found", Status: "completed", Session: "string"}
	want.Refused.Status, want.Refused.Code = http.StatusPreconditionFailed, "precondition_failed"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the client saw\n%+v\nand not\n%+v", got, want)
	}
}

// TestTypeScriptClient makes a client with openapi-typescript, compiles it and
// lets it work. A property with a default is not one that a request must have:
// the generator is told so.
func TestTypeScriptClient(t *testing.T) {
	generate, tsc, node := npm(t, "openapi-typescript"), npm(t, "tsc"), need.Tool(t, "node")
	s := harness.Start(t, harness.Options{})
	dir := folder(t, s, "testdata/typescript/client.ts", "testdata/typescript/tsconfig.json")
	modules, err := filepath.Abs("node_modules")
	need.NoError(t, err)
	need.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	write(t, filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`))
	run(t, dir, generate, "openapi.json", "--default-non-nullable=false", "-o", "api.ts")
	run(t, dir, tsc, "-p", ".")
	check(t, run(t, dir, node, "out/client.js", s.URL, t.TempDir()))
}

// TestGoClient makes a client with oapi-codegen, which reads OpenAPI 3.1,
// compiles it and lets it work.
func TestGoClient(t *testing.T) {
	goTool := need.Tool(t, "go")
	s := harness.Start(t, harness.Options{})
	dir := folder(t, s, "testdata/go/go.mod", "testdata/go/go.sum", "testdata/go/main.go")
	need.NoError(t, os.Mkdir(filepath.Join(dir, "api"), 0o755))
	download := exec.Command(goTool, "mod", "download")
	download.Dir, download.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := download.CombinedOutput(); err != nil {
		need.Missing(t, "oapi-codegen cannot be had: "+string(out))
	}
	run(t, dir, goTool, "tool", "oapi-codegen", "-generate", "types,client", "-package", "api", "-o", "api/api.go", "openapi.json")
	run(t, dir, goTool, "build", "-o", "client", ".")
	check(t, run(t, dir, filepath.Join(dir, "client"), s.URL, t.TempDir()))
}

// TestReferences holds that no component is left over, and that
// every reference leads somewhere.
func TestReferences(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	var doc map[string]any
	need.NoError(t, json.Unmarshal(document(t, s), &doc))
	used := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				used[ref] = true
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(doc)
	var unused []string
	for kind, names := range doc["components"].(map[string]any) {
		if kind == "securitySchemes" {
			continue
		}
		for name := range names.(map[string]any) {
			ref := "#/components/" + kind + "/" + name
			if !used[ref] {
				unused = append(unused, ref)
			}
			delete(used, ref)
		}
	}
	for ref := range used {
		t.Errorf("%s leads nowhere", ref)
	}
	slices.Sort(unused)
	if len(unused) > 0 {
		t.Errorf("nothing refers to %q", unused)
	}
}
