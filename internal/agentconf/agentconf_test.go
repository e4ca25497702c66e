package agentconf

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tailscale/hujson"

	"umbra/internal/need"
)

func newEnv(t *testing.T) (*Env, *Store) {
	t.Helper()
	home := t.TempDir()
	e := &Env{Home: home, Project: filepath.Join(home, "project"), ConfigHome: filepath.Join(home, ".config"), CodexHome: filepath.Join(home, ".codex"),
		Program: "umbra", LookPath: func(string) (string, error) { return "", errors.New("not found") }}
	need.NoError(t, os.MkdirAll(e.Project, 0o755))
	return e, &Store{Path: filepath.Join(home, "data", "agents.json")}
}

// tree lists files with their content, and directories.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil || strings.Contains(path, "/data") {
			return err
		}
		switch {
		case info.IsDir():
			out[path] = "directory"
		case info.Mode()&os.ModeSymlink != 0:
			out[path], err = os.Readlink(path)
		default:
			var raw []byte
			raw, err = os.ReadFile(path)
			out[path] = info.Mode().String() + string(raw)
		}
		return err
	})
	need.NoError(t, err)
	return out
}

func wire(t *testing.T, e *Env, s *Store, remove bool) []Change {
	t.Helper()
	var all []Change
	for _, name := range Names() {
		list, err := e.Plan(s, name, remove)
		need.NoError(t, err)
		need.NoError(t, e.Apply(s, list, remove))
		all = append(all, list...)
	}
	return all
}

func same(a, b map[string]string) string {
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return k + ":\n" + v + "\nnow:\n" + w
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			return k + " is new"
		}
	}
	return ""
}

const settings = `{
	// my settings
	"model": "opus", // the big one
	"hooks": {
		/* mine */
		"PreToolUse": [
			{"matcher": "Bash", "hooks": [{"type": "command", "command": "my-hook"}]}, // first
		],
	},
	"url": "a//b", "z": [1,2,  3],
}
`

func put(t *testing.T, path, text string) {
	t.Helper()
	need.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	need.NoError(t, os.WriteFile(path, []byte(text), 0o640))
}

func TestWireAndRemove(t *testing.T) {
	for _, inProject := range []bool{false, true} {
		for _, prepare := range []func(e *Env){
			func(*Env) {},
			func(e *Env) {
				put(t, filepath.Join(e.base(".claude"), "settings.json"), settings)
				put(t, filepath.Join(e.base(".gemini"), "settings.json"), "{}")
				put(t, filepath.Join(e.base(".qwen"), "settings.json"), "")
				put(t, filepath.Join(e.base(".cursor"), "hooks.json"), "\ufeff{\r\n  \"version\": 1,\r\n  \"hooks\": {\"stop\": []}\r\n}\r\n")
				put(t, filepath.Join(e.base(".cursor"), "mcp.json"), `{"mcpServers":{"a":{"command":"a"}}}`)
				put(t, filepath.Join(e.base(".codex"), "config.toml"), "# mine\nmodel = \"x\"   # note\n\n[mcp_servers.a]\ncommand = \"a\"\n[tui]\nx = 1")
				put(t, filepath.Join(e.ConfigHome, "opencode", "opencode.json"), " \n")
				put(t, filepath.Join(e.ConfigHome, "opencode", "opencode.jsonc"), "{ // c\n}\n")
				// A link to a file elsewhere.
				put(t, filepath.Join(e.Home, "dotfiles", "claude.json"), `{"x": 1}`)
				need.NoError(t, os.Symlink("dotfiles/claude.json", filepath.Join(e.Home, ".claude.json")))
			},
		} {
			e, s := newEnv(t)
			e.InProject = inProject
			prepare(e)
			before := tree(t, e.Home)
			for _, c := range wire(t, e, s, false) {
				if c.Action != "created" && c.Action != "changed" {
					t.Errorf("%+v", c)
				}
			}
			for _, name := range Names() {
				if !e.Wired(name) || !e.Found(name) {
					t.Errorf("%s: wired %v, found %v", name, e.Wired(name), e.Found(name))
				}
			}
			wired := tree(t, e.Home)
			for path, text := range wired {
				if strings.HasPrefix(text, "-") && strings.HasSuffix(path, ".json") || strings.HasSuffix(path, ".jsonc") {
					text = strings.TrimPrefix(text[len("-rw-r--r--"):], "\ufeff")
					if _, err := hujson.Parse([]byte(text)); err != nil && strings.TrimSpace(text) != "" {
						t.Errorf("%s: %v\n%s", path, err, text)
					}
				}
			}
			for _, c := range wire(t, e, s, false) {
				if c.Action != "unchanged" {
					t.Errorf("twice: %s %s %s\n%s", c.Path, c.Action, c.Reason, c.Before)
				}
			}
			if diff := same(wired, tree(t, e.Home)); diff != "" {
				t.Errorf("twice is not once: %s", diff)
			}
			// Other flags replace what is there, and nothing is lost.
			e.HookFlags = []string{"--on-failure=block"}
			wire(t, e, s, false)
			wire(t, e, s, true)
			if diff := same(before, tree(t, e.Home)); diff != "" {
				t.Errorf("project %v: not as it was: %s", inProject, diff)
			}
			for _, c := range wire(t, e, s, true) {
				if c.Action != "unchanged" {
					t.Errorf("removed twice: %s %s", c.Path, c.Action)
				}
			}
		}
	}
}

func TestMergedText(t *testing.T) {
	e, s := newEnv(t)
	path := filepath.Join(e.Home, ".claude", "settings.json")
	put(t, path, settings)
	list, err := e.Plan(s, "claude-code", false)
	need.NoError(t, err)
	got := string(list[0].After)
	// Each line of before is there, in order.
	rest := got
	for line := range strings.Lines(settings) {
		_, after, ok := strings.Cut(rest, strings.TrimSuffix(line, "\n"))
		if !ok {
			t.Fatalf("the line %q was changed:\n%s", line, got)
		}
		rest = after
	}
	if !strings.Contains(got, "\t\t\t{\n\t\t\t\t\"matcher\": \"Write|Edit|MultiEdit|NotebookEdit|Bash\",") {
		t.Errorf("not indented as the file is:\n%s", got)
	}
	v, err := hujson.Standardize([]byte(got))
	need.NoError(t, err)
	var all struct {
		Hooks map[string][]group
	}
	if err := json.Unmarshal(v, &all); err != nil || len(all.Hooks["PreToolUse"]) != 2 || all.Hooks["Stop"][0].Hooks[0].Command != "umbra hook claude-code" {
		t.Errorf("%v %+v", err, all)
	}
}

// TestRemoveAfterOthers: what others added since stays, and ours is taken out.
func TestRemoveAfterOthers(t *testing.T) {
	e, s := newEnv(t)
	claude, codex := filepath.Join(e.Home, ".claude", "settings.json"), filepath.Join(e.Home, ".codex", "config.toml")
	put(t, claude, `{"a": 1}`)
	put(t, codex, "a = 1\n")
	wire(t, e, s, false)
	for path, edit := range map[string][2]string{claude: {`{"a": 1`, `{"a": 2`}, codex: {"a = 1", "a = 2"}} {
		raw, err := os.ReadFile(path)
		need.NoError(t, err)
		put(t, path, strings.Replace(string(raw), edit[0], edit[1], 1))
	}
	again := e.Program
	e.Program = "/opt/umbra"
	wire(t, e, s, false) // over what others changed
	e.Program = again
	wire(t, e, s, true)
	for path, want := range map[string]string{claude: `{"a": 2}`, codex: "a = 2\n"} {
		raw, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(raw)) != strings.TrimSpace(want) {
			t.Errorf("%s: %q %v, want %q", path, raw, err, want)
		}
	}
	// Without a record, too.
	wire(t, e, s, false)
	need.NoError(t, os.Remove(s.Path))
	wire(t, e, s, true)
	for _, name := range Names() {
		if e.Wired(name) {
			t.Errorf("%s is still wired", name)
		}
	}
}

func TestFilesThatAreLeft(t *testing.T) {
	e, s := newEnv(t)
	bad := map[string]string{
		filepath.Join(e.Home, ".claude", "settings.json"):                   `{"a": `,
		filepath.Join(e.Home, ".claude.json"):                               `[]`,
		filepath.Join(e.Home, ".codex", "hooks.json"):                       `{"hooks": {"PreToolUse": {}}}`,
		filepath.Join(e.Home, ".codex", "config.toml"):                      "a = \n",
		filepath.Join(e.Home, ".gemini", "settings.json"):                   `{"hooks": []}`,
		filepath.Join(e.Home, ".config", "opencode", "plugins", "umbra.js"): "// mine\n",
		filepath.Join(e.Home, ".config", "opencode", "opencode.json"):       "{\"mcp\": {\"umbra\": {\"type\": \"remote\"}}}",
		filepath.Join(e.Home, ".qwen", "settings.json", "is a directory"):   "",
		filepath.Join(e.Home, ".cursor", "mcp.json"):                        "\xff{}",
	}
	for path, text := range bad {
		put(t, path, text)
	}
	var left []string
	for _, c := range wire(t, e, s, false) {
		if c.Action == "left" {
			left = append(left, strings.TrimPrefix(c.Path, e.Home))
			if c.Reason == "" || !c.Failed {
				t.Errorf("%+v", c)
			}
		}
	}
	slices.Sort(left)
	want := "/.claude.json /.claude/settings.json /.codex/config.toml /.codex/hooks.json /.config/opencode/plugins/umbra.js /.cursor/mcp.json /.gemini/settings.json /.qwen/settings.json"
	if strings.Join(left, " ") != want {
		t.Errorf("left %q", left)
	}
	for path, text := range bad {
		if raw, err := os.ReadFile(path); err != nil || string(raw) != text {
			t.Errorf("%s: %q, %v", path, raw, err)
		}
	}
}

// FuzzMerge: an edit keeps a valid file valid and all of its other values, and
// taking it out brings them back.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(settings))
	f.Add([]byte(`{}`))
	f.Add([]byte("{/**/}"))
	f.Add([]byte(`{"a":[1,],"hooks":{"PreToolUse":[]},}`))
	f.Add([]byte("{\"hooks\":{\"Stop\":[1//x\n]}//\n}"))
	e := &Env{Home: "/h", Project: "/p", Program: "umbra"}
	edit := find("gemini-cli").files(e)[0]
	f.Fuzz(func(t *testing.T, text []byte) {
		out, _, err := edit.edit(text, false)
		if err != nil {
			return
		}
		again, _, err := edit.edit(out, false)
		if err != nil || string(again) != string(out) {
			t.Fatalf("twice: %v\n%q\n%q", err, out, again)
		}
		back, _, err := edit.edit(out, true)
		if err != nil {
			t.Fatalf("remove: %v\n%q", err, out)
		}
		if d, err := parseDocument(back); err != nil || d.lookup("mcpServers", "umbra") != nil && !strings.Contains(string(text), "umbra") {
			t.Fatalf("%v\n%q\n%q", err, text, back)
		}
		if !strings.Contains(string(text), "umbra") {
			if was, is := values(t, text), values(t, back); was != is {
				t.Fatalf("%s became %s\n%q\n%q", was, is, text, back)
			}
		}
	})
}

// values is the standard form of a document, without what is empty where an edit adds
// something.
func values(t *testing.T, text []byte) string {
	t.Helper()
	d, err := parseDocument(text)
	need.NoError(t, err)
	var all map[string]any
	if err := json.Unmarshal([]byte(plainJSON(d.root)), &all); err != nil {
		return ""
	}
	for _, name := range []string{"hooks", "mcpServers"} {
		inner, ok := all[name].(map[string]any)
		for key, v := range inner {
			if list, ok := v.([]any); ok && len(list) == 0 {
				delete(inner, key)
			}
		}
		if ok && len(inner) == 0 {
			delete(all, name)
		}
	}
	raw, err := json.Marshal(all)
	need.NoError(t, err)
	return string(raw)
}

func FuzzTOML(f *testing.F) {
	f.Add([]byte("a = 1\n[mcp_servers.a]\ncommand = \"x\"\n"))
	f.Add([]byte("[mcp_servers.umbra]\ncommand = \"x\"\n# c\n[b]"))
	e := &Env{Home: "/h", Project: "/p", CodexHome: "/c", Program: "umbra"}
	edit := find("codex").files(e)[1]
	f.Fuzz(func(t *testing.T, text []byte) {
		out, note, err := edit.edit(text, false)
		if err != nil || note != "" {
			return
		}
		back, _, err := edit.edit(out, true)
		if err != nil {
			t.Fatalf("%v\n%q", err, out)
		}
		if _, was, err := edit.table(text); err == nil {
			if have, is, err := edit.table(back); err != nil || have != "" || was != is {
				t.Fatalf("%q: %v\n%q", text, err, back)
			}
		}
		if again, _, err := edit.edit(back, false); err != nil || len(again) == 0 {
			t.Fatalf("%v\n%q\n%q", err, back, again)
		}
	})
}
