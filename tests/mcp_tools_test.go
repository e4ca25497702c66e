package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// npmTool gives a command of tests/mcp, run by the Node.js that stands there.
func npmTool(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := filepath.Abs("mcp/node_modules/.bin")
	need.NoError(t, err)
	path := filepath.Join(bin, name)
	if _, err := os.Stat(path); err != nil {
		need.Missing(t, name+" is not installed (tests/tools/setup)")
	}
	cmd := exec.Command(path, args...)
	cmd.Env = harness.Env(t)
	cmd.Env[0] = "PATH=" + bin + ":" + os.Getenv("PATH")
	cmd.Dir = t.TempDir()
	return cmd
}

// The official conformance suite finds what is expected, check by check: our
// tools are not those of its example server.
func TestMCPConformance(t *testing.T) {
	need.Long(t, "the conformance suite")
	bothRevisions(t, func(t *testing.T, revision string) {
		dir := folder(t, map[string]string{"a.txt": "x\n"})
		s := harness.Start(t, harness.Options{Config: "mcp: {mounts: [{prefix: /project, scope: READ_WRITE, root: " + dir + "}]}"})
		results := t.TempDir()
		cmd := npmTool(t, "conformance", "server", "--url", s.URL+"/mcp", "--requirements", revision, "-o", results)
		out, err := cmd.CombinedOutput() // its status says that something failed, which is known
		found, passed := checks(t, results)
		if passed < 30 {
			t.Fatalf("%d checks passed: %v\n%s", passed, err, out)
		}
		want := expected(t, "mcp/expected-"+revision+".txt")
		for f := range found {
			if !want[f] {
				t.Errorf("fails: %s: %s", f, found[f])
			}
		}
		for w := range want {
			if _, ok := found[w]; !ok {
				t.Errorf("does not fail any more: %s", w)
			}
		}
	})
}

// checks reads the suite's results: what failed, and how many passed.
func checks(t *testing.T, dir string) (failed map[string]string, passed int) {
	t.Helper()
	failed = map[string]string{}
	list, err := filepath.Glob(filepath.Join(dir, "server-*", "checks.json"))
	need.NoError(t, err)
	name := regexp.MustCompile(`^server-(.*)-\d{4}-\d{2}-\d{2}T`)
	for _, file := range list {
		data, err := os.ReadFile(file)
		need.NoError(t, err)
		var all []struct{ ID, Status, ErrorMessage string }
		need.NoError(t, json.Unmarshal(data, &all))
		for _, c := range all {
			switch c.Status {
			case "SUCCESS":
				passed++
			case "FAILURE":
				failed[name.FindStringSubmatch(filepath.Base(filepath.Dir(file)))[1]+" "+c.ID] = c.ErrorMessage
			}
		}
	}
	return failed, passed
}

func expected(t *testing.T, file string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(file)
	need.NoError(t, err)
	out := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out[line] = true
		}
	}
	return out
}

// The inspector's command line, over HTTP and over standard input and output.
func TestMCPInspector(t *testing.T) {
	need.Long(t, "the inspector")
	dir := folder(t, map[string]string{"a.txt": "x\n"})
	s := harness.Start(t, harness.Options{})
	a := newAgent(t, s, physical("/project", "READ_WRITE", dir))
	inspect := func(t *testing.T, target []string, args ...string) string {
		t.Helper()
		cmd := npmTool(t, "inspector", append(append([]string{"--cli"}, target...), args...)...)
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v\n%s%s", args, err, &out, &log)
		}
		return out.String()
	}
	for name, target := range map[string][]string{
		"http":  {s.URL + "/mcp/" + a.id, "--transport", "http"},
		"stdio": {harness.Binary(t), "mcp", "--data-dir", s.DataDir, "--mount=/project=" + dir, "--"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "stdio" { // the program's own flags stand in a file
				file := filepath.Join(t.TempDir(), "mcp.json")
				config := fmt.Sprintf(`{"mcpServers":{"umbra":{"command":%q,"args":["mcp","--data-dir",%q,"--mount",%q]}}}`, target[0], s.DataDir, "/project="+dir)
				need.NoError(t, os.WriteFile(file, []byte(config), 0o600))
				target = []string{"--config", file, "--server", "umbra"}
			}
			var tools struct{ Tools []map[string]any }
			if err := json.Unmarshal([]byte(inspect(t, target, "--method", "tools/list", "--strict")), &tools); err != nil || len(tools.Tools) != 14 {
				t.Errorf("%d tools, %v", len(tools.Tools), err)
			}
			if out := inspect(t, target, "--method", "tools/call", "--tool-name", "read_file", "--tool-arg", "path=/project/a.txt"); !strings.Contains(out, `"x\n"`) {
				t.Errorf("%s", out)
			}
			if out := inspect(t, target, "--method", "resources/read", "--uri", "umbra://filesystem-map"); !strings.Contains(out, "/project [READ_WRITE] physical") {
				t.Errorf("%s", out)
			}
		})
	}
}

// The official file system server and ours do the same to the same folder, for
// what both can.
func TestMCPLikeFilesystemServer(t *testing.T) {
	need.Long(t, "the file system server")
	files := map[string]string{"a.txt": "one\ntwo\nthree\n", "d/b.txt": "b", "d/e/c.md": "c", "empty": "", "ü ö.txt": "umlaut\n", "d/x/": ""}
	theirDir, ourDir := folder(t, files), folder(t, files)
	need.NoError(t, os.Symlink("/etc", filepath.Join(theirDir, "out")))
	need.NoError(t, os.Symlink("/etc", filepath.Join(ourDir, "out")))
	theirs := connect(t, &sdk.CommandTransport{Command: npmTool(t, "mcp-server-filesystem", theirDir), TerminateDuration: 5 * time.Second}, before)
	s := harness.Start(t, harness.Options{})
	a := newAgent(t, s, physical("/w", "READ_WRITE", ourDir))
	ours := connect(t, overHTTP(s, "/"+a.id, ""), before)

	type args = map[string]any
	for i, step := range []struct {
		their     string
		theirArgs args
		our       string
		ourArgs   args
		same      func(their, our string) bool
	}{
		{"read_text_file", args{"path": "a.txt"}, "read_file", args{"path": "a.txt"}, equal},
		{"read_text_file", args{"path": "ü ö.txt"}, "read_file", args{"path": "ü ö.txt"}, equal},
		{"read_text_file", args{"path": "empty"}, "read_file", args{"path": "empty"}, equal},
		{"read_text_file", args{"path": "none"}, "read_file", args{"path": "none"}, nil},
		{"read_text_file", args{"path": "d"}, "read_file", args{"path": "d"}, nil},
		{"read_text_file", args{"path": "../x"}, "read_file", args{"path": "../x"}, nil},
		{"read_text_file", args{"path": "out/hostname"}, "read_file", args{"path": "out/hostname"}, nil},
		{"list_directory", args{"path": "d"}, "list_directory", args{"path": "d"}, sameNames},
		{"list_directory", args{"path": "none"}, "list_directory", args{"path": "none"}, nil},
		{"write_file", args{"path": "new.txt", "content": "näw\n"}, "write_file", args{"path": "new.txt", "content": "näw\n"}, nil},
		{"write_file", args{"path": "a.txt", "content": "replaced two\n"}, "write_file", args{"path": "a.txt", "content": "replaced two\n"}, nil},
		{"write_file", args{"path": "d", "content": "x"}, "write_file", args{"path": "d", "content": "x"}, nil},
		{"write_file", args{"path": "out/x", "content": "x"}, "write_file", args{"path": "out/x", "content": "x"}, nil},
		{"write_file", args{"path": "../../x", "content": "x"}, "write_file", args{"path": "../../x", "content": "x"}, nil},
		{"edit_file", args{"path": "a.txt", "edits": []args{{"oldText": "two", "newText": "2"}}}, "edit_file", args{"path": "a.txt", "old_string": "two", "new_string": "2"}, nil},
		{"edit_file", args{"path": "a.txt", "edits": []args{{"oldText": "none", "newText": "2"}}}, "edit_file", args{"path": "a.txt", "old_string": "none", "new_string": "2"}, nil},
		{"move_file", args{"source": "new.txt", "destination": "d/moved.txt"}, "move_file", args{"from": "new.txt", "to": "d/moved.txt"}, nil},
		{"move_file", args{"source": "none", "destination": "x"}, "move_file", args{"from": "none", "to": "x"}, nil},
		{"move_file", args{"source": "d/e", "destination": "f"}, "move_file", args{"from": "d/e", "to": "f"}, nil},
		{"search_files", args{"path": ".", "pattern": "**/*.txt"}, "search_files", args{"path": ".", "pattern": "**/*.txt"}, sameNames},
		{"get_file_info", args{"path": "a.txt"}, "stat_file", args{"path": "a.txt"}, func(their, our string) bool {
			return strings.Contains(their, "size: 13") && strings.Contains(our, `"size":11`) || strings.Contains(their, "size: 11") && strings.Contains(our, `"size":11`)
		}},
		{"get_file_info", args{"path": "none"}, "stat_file", args{"path": "none"}, nil},
	} {
		their, theirFailed := theirs.call(t, step.their, under(theirDir, step.theirArgs))
		our, ourFailed := ours.call(t, step.our, under("/w", step.ourArgs))
		if theirFailed != ourFailed {
			t.Errorf("%d %s %v: theirs fails %v (%s), ours %v (%s)", i, step.our, step.ourArgs, theirFailed, their, ourFailed, our)
		}
		if !theirFailed && step.same != nil && !step.same(strings.ReplaceAll(their, theirDir, "/w"), our) {
			t.Errorf("%d %s %v: theirs\n%s\nours\n%s", i, step.our, step.ourArgs, their, our)
		}
		if x, y := need.Files(t, theirDir), need.Files(t, ourDir); !maps.Equal(x, y) {
			t.Fatalf("%d %s %v: folders differ: theirs %v, ours %v", i, step.our, step.ourArgs, x, y)
		}
	}
}

func equal(a, b string) bool { return a == b }

// sameNames compares listings: theirs says "[FILE] a" or "[DIR] a", ours "a" or
// "a/".
func sameNames(their, our string) bool {
	x, y := strings.Split(strings.TrimSpace(their), "\n"), strings.Split(strings.TrimSpace(our), "\n")
	for i, n := range x {
		if dir, ok := strings.CutPrefix(n, "[DIR] "); ok {
			n = dir + "/"
		}
		x[i] = strings.TrimPrefix(n, "[FILE] ")
	}
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// under makes the paths of arguments absolute.
func under(root string, in map[string]any) map[string]any {
	out := maps.Clone(in)
	for _, name := range []string{"path", "from", "to", "source", "destination"} {
		if p, ok := out[name].(string); ok {
			out[name] = strings.TrimSuffix(root+"/"+p, "/.")
		}
	}
	return out
}
