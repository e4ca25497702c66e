package clients

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"umbra/tests/harness"
)

var (
	kebab  = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	semver = regexp.MustCompile(`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$`)
)

// readJSON reads a file that has no fields beside those of v.
func readJSON(t *testing.T, name string, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(must(t, name))))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// exists checks a command line: the program has the verb and each flag.
func exists(t *testing.T, where, line string) {
	t.Helper()
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "umbra" {
		t.Errorf("%s: %q is no command of umbra", where, line)
		return
	}
	status, help, problem := harness.Run(t, nil, words[1], "--help")
	if status != 0 {
		t.Errorf("%s: %q: %s", where, line, problem)
		return
	}
	for _, w := range words[2:] {
		if name, _, _ := strings.Cut(w, "="); strings.HasPrefix(name, "-") && !regexp.MustCompile(`(?m)^ .*`+regexp.QuoteMeta(name)+`\b`).MatchString(help) {
			t.Errorf("%s: %q: there is no %s", where, line, name)
		}
	}
}

type pluginHook struct {
	Type    string `json:"type"`
	Command string `json:"command"`
	Timeout int    `json:"timeout"`
}

type pluginMatcher struct {
	Matcher string       `json:"matcher"`
	Hooks   []pluginHook `json:"hooks"`
}

func TestClaudeCodePlugin(t *testing.T) {
	folder := abs(t, "../../clients/claude-code")
	at := func(name string) string { return filepath.Join(folder, name) }
	type person struct {
		Name string `json:"name"`
	}
	var plugin struct {
		Name, Version, Description, License string
		Author                              person
		Keywords                            []string
	}
	readJSON(t, at(".claude-plugin/plugin.json"), &plugin)
	if !kebab.MatchString(plugin.Name) || !semver.MatchString(plugin.Version) || plugin.Description == "" {
		t.Errorf("%+v", plugin)
	}
	var market struct {
		Name     string
		Owner    person
		Metadata struct{ Description string }
		Plugins  []struct{ Name, Source, Description, Version, License, Category string }
	}
	readJSON(t, at(".claude-plugin/marketplace.json"), &market)
	if !kebab.MatchString(market.Name) || market.Owner.Name == "" || len(market.Plugins) != 1 {
		t.Fatalf("%+v", market)
	}
	if p := market.Plugins[0]; p.Name != plugin.Name || p.Version != plugin.Version || !strings.HasPrefix(p.Source, "./") {
		t.Errorf("%+v", p)
	} else if _, err := os.Stat(filepath.Join(folder, p.Source, ".claude-plugin/plugin.json")); err != nil {
		t.Error(err)
	}

	var hooks struct {
		Description string
		Hooks       map[string][]pluginMatcher
	}
	readJSON(t, at("hooks/hooks.json"), &hooks)
	for event, list := range hooks.Hooks {
		for _, m := range list {
			for _, h := range m.Hooks {
				if h.Type != "command" || h.Timeout <= 0 {
					t.Errorf("%s: %+v", event, h)
				}
				exists(t, "hooks.json", h.Command)
			}
		}
	}
	// They are those that umbra init writes.
	dir := t.TempDir()
	if status, _, problem := harness.Run(t, nil, "init", "--agent", "claude-code", "--project", "--yes", dir); status != 0 {
		t.Fatal(problem)
	}
	var written struct{ Hooks map[string][]pluginMatcher }
	if err := json.Unmarshal(must(t, filepath.Join(dir, ".claude/settings.json")), &written); err != nil || !reflect.DeepEqual(written.Hooks, hooks.Hooks) {
		t.Errorf("umbra init writes other hooks: %v\n%+v\n%+v", err, written.Hooks, hooks.Hooks)
	}
	var servers, wired struct {
		MCPServers map[string]struct {
			Command string
			Args    []string
		} `json:"mcpServers"`
	}
	readJSON(t, at(".mcp.json"), &servers)
	if err := json.Unmarshal(must(t, filepath.Join(dir, ".mcp.json")), &wired); err != nil || !reflect.DeepEqual(wired, servers) {
		t.Errorf("umbra init writes another MCP entry: %v %+v", err, wired)
	}
	for _, s := range servers.MCPServers {
		exists(t, ".mcp.json", s.Command+" "+strings.Join(s.Args, " "))
	}

	// Texts: their front matter, and every command in them.
	quoted := regexp.MustCompile("`(umbra [^`]+)`")
	for _, name := range []string{"skills/umbra/SKILL.md", "commands/undo.md", "commands/turns.md"} {
		text := string(must(t, at(name)))
		head, body, ok := strings.Cut(strings.TrimPrefix(text, "---\n"), "\n---\n")
		var front map[string]any
		if err := yaml.Unmarshal([]byte(head), &front); !ok || err != nil || front["description"] == nil || len(front["description"].(string)) > 1024 {
			t.Errorf("%s: %v %v", name, front, err)
		}
		if skill, ok := strings.CutPrefix(name, "skills/"); ok && front["name"] != filepath.Dir(skill) {
			t.Errorf("%s: its name is %v", name, front["name"])
		}
		if tools, ok := front["allowed-tools"].(string); ok {
			for _, m := range regexp.MustCompile(`Bash\((umbra [a-z]+):\*\)`).FindAllStringSubmatch(tools, -1) {
				exists(t, name, m[1])
			}
		}
		found := quoted.FindAllStringSubmatch(body, -1)
		if len(found) == 0 {
			t.Errorf("%s has no command", name)
		}
		for _, m := range found {
			exists(t, name, m[1])
		}
	}
}

// TestServerJSON holds the MCP registry's file to the rules of its schema
// (2025-12-11) and of the registry for container images.
func TestServerJSON(t *testing.T) {
	type variable struct {
		Description, Format string
		IsRequired          bool
	}
	type argument struct {
		Type, Name, Value string
		IsRequired        bool
		Variables         map[string]variable
	}
	var s struct {
		Schema                            string `json:"$schema"`
		Name, Title, Description, Version string
		Packages                          []struct {
			RegistryType, Identifier, RuntimeHint string
			Transport                             struct{ Type string }
			RuntimeArguments, PackageArguments    []argument
		}
	}
	readJSON(t, "../../deploy/server.json", &s)
	if !regexp.MustCompile(`^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$`).MatchString(s.Name) || len(s.Name) > 200 {
		t.Errorf("the name is %q", s.Name)
	}
	if n := len(s.Description); n == 0 || n > 100 {
		t.Errorf("the description has %d characters, 100 at most", n)
	}
	if !semver.MatchString(s.Version) || !strings.HasSuffix(s.Schema, "/2025-12-11/server.schema.json") || len(s.Packages) != 1 {
		t.Errorf("%+v", s)
	}
	for _, p := range s.Packages {
		// The version is the image's tag, and no field.
		if p.RegistryType != "oci" || !strings.HasSuffix(p.Identifier, ":v"+s.Version) || p.Transport.Type != "stdio" || p.RuntimeHint == "" {
			t.Errorf("%+v", p)
		}
		line := []string{"umbra"}
		for _, a := range slices.Concat(p.RuntimeArguments, p.PackageArguments) {
			switch {
			case a.Type == "named" && !strings.HasPrefix(a.Name, "-"), a.Type == "positional" && a.Value == "", a.Type != "named" && a.Type != "positional":
				t.Errorf("%+v", a)
			}
			for _, m := range regexp.MustCompile(`\{([^}]+)\}`).FindAllStringSubmatch(a.Value, -1) {
				if v, ok := a.Variables[m[1]]; !ok || !slices.Contains([]string{"", "string", "number", "boolean", "filepath"}, v.Format) {
					t.Errorf("%+v has no variable %s", a, m[1])
				}
			}
		}
		for _, a := range p.PackageArguments {
			line = append(line, strings.TrimSpace(a.Name+" "+a.Value))
		}
		exists(t, "deploy/server.json", strings.Join(line, " "))
	}
	// The image proves whose it is by a label.
	if !strings.Contains(string(must(t, "../../deploy/dist/image.go")), `"io.modelcontextprotocol.server.name": "`+s.Name+`"`) {
		t.Error("the image's label names another server")
	}
}
