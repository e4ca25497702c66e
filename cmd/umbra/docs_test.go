package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"umbra/config"
	"umbra/internal/need"
)

// quote is a piece of a page that is set as code.
type quote struct {
	where  string
	text   string
	inline bool // in a sentence: words in it may be names of values
}

var (
	inlineCode = regexp.MustCompile("`([^`]+)`")
	listLine   = regexp.MustCompile(`^ *([-*]|\d+\.) `)
)

// quotes returns the code of all pages for users. What a sentence says does not
// exist is left out.
func quotes(t *testing.T) []quote {
	t.Helper()
	pages := []string{"../../README.md", "../../CONTRIBUTING.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../clients/*/README.md", "../../examples/README.md", "../../changelog/unreleased/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		pages = append(pages, found...)
	}
	var out []quote
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		need.NoError(t, err)
		fenced, console := false, false
		lines := strings.Split(string(raw), "\n")
		for i, line := range lines {
			where := fmt.Sprintf("%s:%d", strings.TrimPrefix(page, "../../"), i+1)
			switch code := strings.TrimSpace(line); {
			case strings.HasPrefix(code, "```"):
				fenced = !fenced
				// Where some lines are commands of a console, the others are output.
				console = fenced && i+1 < len(lines) && strings.HasPrefix(strings.TrimSpace(lines[i+1]), "$ ")
			case fenced && console && !strings.HasPrefix(code, "$ "):
			case fenced, strings.HasPrefix(line, "    ") && !listLine.MatchString(line):
				out = append(out, quote{where, strings.TrimPrefix(code, "$ "), false})
			default:
				if strings.Contains(line, "There is no `") {
					continue
				}
				for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
					out = append(out, quote{where, m[1], true})
				}
			}
		}
	}
	return out
}

// shellWords splits a command line into its simple commands and their words; a
// comment ends it.
func shellWords(line string) [][]string {
	var out [][]string
	var words []string
	var word strings.Builder
	begun, quoted := false, rune(0)
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range line {
		switch {
		case quoted != 0 && r == quoted:
			quoted = 0
		case quoted != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			begun, quoted = true, r
		case r == ' ' || r == '\t':
			end()
		case r == '#' && !begun:
			return append(out, words)
		case strings.ContainsRune("&|;()", r):
			end()
			out, words = append(out, words), nil
		default:
			begun = true
			word.WriteRune(r)
		}
	}
	end()
	return append(out, words)
}

// arguments returns what follows the program's name in a command, which may begin
// with variables, with programs that run it, or with another name of the program.
func arguments(words []string) ([]string, bool) {
	if i := slices.Index(words, "--"); i >= 0 && words[0] == "claude" {
		words = words[i+1:]
	}
	if len(words) > 3 && words[0] == "sudo" && words[1] == "-u" {
		words = words[3:]
	}
	for i, w := range words {
		switch {
		case w == "umbra" || w == "./bin/umbra" || w == "bin/umbra":
			return words[i+1:], true
		case strings.Contains(w, "="):
		default:
			return nil, false
		}
	}
	return nil, false
}

// placeholder is a word in place of others: N, [DIR], a|b, …
var placeholder = regexp.MustCompile(`^[A-Z][A-Z0-9_.:=@-]*$|[…|{}]|^\.\.\.$`)

// argsOf finds a client's list of arguments.
var argsOf = regexp.MustCompile(`"args": ?(\[[^\]]*\])`)

// TestCommandsOfTheDocs: each command of a page is one that the program has, with
// flags and as many arguments as it takes.
func TestCommandsOfTheDocs(t *testing.T) {
	n, clients := 0, 0
	for _, q := range quotes(t) {
		if m := argsOf.FindStringSubmatch(q.text); m != nil { // the settings of an MCP client
			var args []string
			if err := json.Unmarshal([]byte(m[1]), &args); err != nil || len(args) == 0 || args[0] != "mcp" {
				t.Errorf("%s: %s: %v", q.where, m[1], err)
			} else if err := parses(args, false); err != nil {
				t.Errorf("%s: %s: %v", q.where, m[1], err)
			}
			clients++
		}
		for _, simple := range shellWords(strings.NewReplacer("[", " ", "]", " ", "…", " … ").Replace(q.text)) {
			args, ok := arguments(simple)
			if !ok || len(args) == 0 || strings.HasPrefix(q.where, "docs/FORMAT.md") || strings.HasPrefix(q.where, "docs/ARCHITECTURE.md") && !q.inline || q.inline && !strings.Contains(q.text, "umbra ") || strings.HasSuffix(args[0], ":") {
				continue
			}
			n++
			if err := parses(args, q.inline); err != nil {
				t.Errorf("%s: %s: %v", q.where, q.text, err)
			}
		}
	}
	if n < 100 || clients < 6 {
		t.Errorf("only %d commands and %d clients' settings were found", n, clients)
	}
}

func parses(args []string, inline bool) error {
	var out, errOut bytes.Buffer
	root := command(&out, &errOut)
	if args[0] == "COMMAND" || args[0] == "…" {
		return nil
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if cmd == root && !strings.HasPrefix(args[0], "-") {
		return fmt.Errorf("unknown command %q", args[0])
	}
	if cmd.HasSubCommands() && len(rest) > 0 && !placeholder.MatchString(rest[0]) && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("unknown command %q", rest[0])
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	variable := slices.ContainsFunc(rest, func(w string) bool { return placeholder.MatchString(w) })
	switch err := cmd.ParseFlags(rest); err.(type) {
	case nil:
	case *pflag.InvalidValueError:
		if !variable {
			return err
		}
	case *pflag.ValueRequiredError:
		if !inline {
			return err
		}
	default:
		return err
	}
	if !inline && !variable {
		return cmd.ValidateArgs(cmd.Flags().Args())
	}
	return nil
}

// TestFlagsOfTheDocs: each flag that a sentence names alone is a flag of some command.
func TestFlagsOfTheDocs(t *testing.T) {
	others := []string{"--userns", "--update-shallow", "--filter", "--depth"} // of other programs
	known := map[string]bool{}
	var out, errOut bytes.Buffer
	each(command(&out, &errOut), func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		c.Flags().VisitAll(func(f *pflag.Flag) { known["--"+f.Name] = true })
	})
	known["--version"] = true
	for _, q := range quotes(t) {
		name, _, _ := strings.Cut(q.text, "=")
		name, _, _ = strings.Cut(name, " ")
		if !q.inline || !strings.HasPrefix(name, "--") || name == "--" || slices.Contains(others, name) {
			continue
		}
		if !known[name] {
			t.Errorf("%s: no command has the flag %s", q.where, name)
		}
	}
}

// routes returns the methods of each path of the API.
func routes(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("../../httpapi/*/openapi.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d documents: %v", len(files), err)
	}
	out := map[string][]string{}
	for _, file := range append(files, "../../httpapi/openapi.yaml") {
		raw, err := os.ReadFile(file)
		need.NoError(t, err)
		var doc struct {
			Paths map[string]map[string]any
		}
		need.NoError(t, yaml.Unmarshal(raw, &doc))
		for path, item := range doc.Paths {
			out[path] = slices.AppendSeq(out[path], maps.Keys(item))
		}
	}
	return out
}

var (
	routeOf = regexp.MustCompile(`^((?:GET|HEAD|POST|PUT|PATCH|DELETE)(?:\|(?:GET|PUT|POST|DELETE))*) (/[^ ]*)`)
	segment = regexp.MustCompile(`\\\{[^/]*\\\}`)
)

// TestRoutesOfTheDocs: each route of a page is one of the API, with that method.
func TestRoutesOfTheDocs(t *testing.T) {
	all, n := routes(t), 0
	for _, q := range quotes(t) {
		m := routeOf.FindStringSubmatch(q.text)
		if m == nil {
			continue
		}
		n++
		path, _, _ := strings.Cut(strings.TrimRight(m[2], ".,;:"), "?")
		for _, method := range strings.Split(m[1], "|") {
			if !hasRoute(all, strings.ToLower(method), path) {
				t.Errorf("%s: the API has no %s %s", q.where, method, path)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d routes were found", n)
	}
}

func hasRoute(all map[string][]string, method, path string) bool {
	given := regexp.MustCompile(`\{[^/]*\}`).ReplaceAllString(path, "x")
	for route, methods := range all {
		pattern := segment.ReplaceAllString(regexp.QuoteMeta(route), "[^/]+")
		if regexp.MustCompile("^"+pattern+"$").MatchString(given) && slices.Contains(methods, method) {
			return true
		}
	}
	return false
}

var (
	settingOf  = regexp.MustCompile(`^([a-z]+(?:\.[a-z_]+)+)(?:[:=] .*)?$`)
	variableOf = regexp.MustCompile(`\bUMBRA_[A-Z_]+\b`)
	fileName   = regexp.MustCompile(`\.(json|log|toml|yaml)$`)
	metricOf   = regexp.MustCompile(`\bumbra_[a-z_]+\b`)
)

// TestSettingsOfTheDocs: each setting and variable of a page is one of the server's,
// or of the verbs'.
func TestSettingsOfTheDocs(t *testing.T) {
	variables := config.Variables()
	sections, n := map[string]bool{}, 0
	raw, err := os.ReadFile("../../config.yaml")
	need.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+):$`).FindAllSubmatch(raw, -1) {
		sections[string(m[1])] = true
	}
	// What umbra sets for the commands that it runs, and what deployments and tests use.
	others := []string{"UMBRA_FORK", "UMBRA_WORKSPACE", "UMBRA_STEP", "UMBRA_COMMIT", "UMBRA_TASK_ID", "UMBRA_SUBTASK_ID", "UMBRA_PATH",
		"UMBRA_DB_PASSWORD", "UMBRA_STORE_SECRET", "UMBRA_HOST", "UMBRA_BIN", "UMBRA_UPDATE", "UMBRA_CLUSTER"}
	for _, q := range quotes(t) {
		if m := settingOf.FindStringSubmatch(q.text); m != nil && !fileName.MatchString(m[1]) && sections[m[1][:strings.IndexByte(m[1], '.')]] {
			n++
			name := "UMBRA_" + strings.ToUpper(strings.ReplaceAll(m[1], ".", "_"))
			if !slices.ContainsFunc(variables, func(v string) bool { return v == name || strings.HasPrefix(v, name+"_") }) {
				t.Errorf("%s: there is no setting %s", q.where, m[1])
			}
		}
		if strings.HasPrefix(q.where, "docs/TESTING.md") || strings.HasPrefix(q.where, "docs/BENCHMARKS.md") {
			continue // variables of the tests
		}
		for _, name := range variableOf.FindAllString(q.text, -1) {
			if !strings.HasSuffix(name, "_") && !slices.Contains(variables, name) && !slices.Contains(others, name) {
				t.Errorf("%s: there is no variable %s", q.where, name)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d settings were found", n)
	}
}

// TestMetricsOfTheDocs: each metric of a page is on the dashboard, which has all.
func TestMetricsOfTheDocs(t *testing.T) {
	board, err := os.ReadFile("../../docs/grafana.json")
	need.NoError(t, err)
	tools := []string{"umbra_changes", "umbra_undo"} // of opencode's plugin
	for _, q := range quotes(t) {
		for _, name := range metricOf.FindAllString(q.text, -1) {
			if !slices.Contains(tools, name) && !strings.HasPrefix(q.text, "umbra_VERSION") && !bytes.Contains(board, []byte(name)) {
				t.Errorf("%s: there is no metric %s", q.where, name)
			}
		}
	}
}
