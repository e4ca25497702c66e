package clients

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// exampleOutput is what each example prints: alice's work is undone, bob's and
// the person's stays.
const exampleOutput = `Before:
  title: by alice
  body: by a person
  footer: by bob
  files: alice.txt bob.txt page.txt
After ALICE was undone:
  title: draft
  body: by a person
  footer: by bob
  files: bob.txt page.txt
`

// manifest is the part of a package.json that is compared.
type manifest struct {
	Dependencies    map[string]string `json:"dependencies"`
	DevDependencies map[string]string `json:"devDependencies"`
}

func readManifest(t *testing.T, name string) (m manifest) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		t.Fatal(name, err)
	}
	return m
}

// TestExamples runs each program of examples/. Their packages are those of
// clients/typescript, which have the same versions.
func TestExamples(t *testing.T) {
	client := built(t)
	node := modern(t)
	source := abs(t, "../../examples")
	wanted, have := readManifest(t, filepath.Join(source, "package.json")), readManifest(t, filepath.Join(client, "package.json"))
	at := t.TempDir()
	modules := filepath.Join(at, "node_modules")
	need.NoError(t, os.Mkdir(modules, 0o755))
	for name, version := range wanted.Dependencies {
		if name != "umbra-client" && have.DevDependencies[name] != version {
			t.Errorf("examples/package.json has %s %s, clients/typescript %q", name, version, have.DevDependencies[name])
		}
	}
	packages, err := os.ReadDir(filepath.Join(client, "node_modules"))
	need.NoError(t, err)
	for _, p := range packages {
		if !strings.HasPrefix(p.Name(), ".") {
			link(t, filepath.Join(client, "node_modules", p.Name()), filepath.Join(modules, p.Name()))
		}
	}
	link(t, client, filepath.Join(modules, "umbra-client"))
	files, err := filepath.Glob(filepath.Join(source, "*.mjs"))
	need.NoError(t, err)
	need.NoError(t, os.CopyFS(at, os.DirFS(source)))
	s := harness.Start(t, harness.Options{})
	example := func(name, program string, env []string, args ...string) {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Dir = at
			cmd.Env = append(os.Environ(), append(env, "UMBRA_SERVER="+s.URL)...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got := strings.Split(string(out), "\n")
			for i, line := range strings.Split(strings.TrimSuffix(exampleOutput, "\n"), "\n") {
				before, after, both := strings.Cut(line, "ALICE")
				if i >= len(got) || !both && got[i] != line || both && !(strings.HasPrefix(got[i], before+"alice") && strings.HasSuffix(got[i], after)) {
					t.Fatalf("line %d is not %q:\n%s", i+1, line, out)
				}
			}
		})
	}
	for _, f := range files {
		switch name := filepath.Base(f); name {
		case "scene.mjs", "models.mjs", "ai-models.mjs":
		default:
			example(name, node, nil, name, t.TempDir())
		}
	}
	python := need.Tool(t, "python3")
	example("python_agents.py", python, []string{"PYTHONPATH=" + abs(t, "../../clients/python"), "PYTHONDONTWRITEBYTECODE=1"}, "python_agents.py", t.TempDir())
}

func link(t *testing.T, to, at string) {
	t.Helper()
	need.NoError(t, os.Symlink(to, at))
}
