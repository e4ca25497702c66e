package tests

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// authorship is a log as the Git AI Standard 3.0.0 has it.
type authorship struct {
	files map[string]map[int]string // path, line: key
	meta  struct {
		Version  string                     `json:"schema_version"`
		Base     string                     `json:"base_commit_sha"`
		Prompts  map[string]json.RawMessage `json:"prompts"`
		Humans   map[string]json.RawMessage `json:"humans"`
		Sessions map[string]struct {
			Agent struct{ Tool, ID, Model string } `json:"agent_id"`
		} `json:"sessions"`
	}
}

var (
	sessionKey = regexp.MustCompile(`^(s_[0-9a-f]{14})::t_[0-9a-f]{14}$`)
	lineRanges = regexp.MustCompile(`^[1-9][0-9]*(-[1-9][0-9]*)?(,[1-9][0-9]*(-[1-9][0-9]*)?)*$`)
)

// readAuthorship reads a log by the rules of sections 1.2.2 to 1.2.4.
func readAuthorship(t *testing.T, text string) (a authorship) {
	t.Helper()
	a.files = make(map[string]map[int]string)
	lines := strings.Split(text, "\n")
	divider := slices.Index(lines, "---")
	if divider < 0 {
		t.Fatalf("no divider: %q", text)
	}
	if err := json.Unmarshal([]byte(strings.Join(lines[divider+1:], "\n")), &a.meta); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if a.meta.Version != "authorship/3.0.0" || a.meta.Prompts == nil || len(a.meta.Base) != 40 {
		t.Errorf("metadata: %s", text)
	}
	path, entries := "", 1
	for _, line := range lines[:divider] {
		entry, ok := strings.CutPrefix(line, "  ")
		if !ok {
			if entries == 0 {
				t.Errorf("%s has no entry", path)
			}
			path, entries = line, 0
			if quoted := strings.HasPrefix(line, `"`) && strings.HasSuffix(line, `"`); quoted {
				path = line[1 : len(line)-1]
			} else if strings.ContainsAny(line, " \t") {
				t.Errorf("%q is not quoted", line)
			}
			if a.files[path] != nil {
				t.Errorf("%q is there twice", path)
			}
			a.files[path] = make(map[int]string)
			continue
		}
		entries++
		key, ranges, _ := strings.Cut(entry, " ")
		m := sessionKey.FindStringSubmatch(key)
		if path == "" || m == nil || !lineRanges.MatchString(ranges) {
			t.Fatalf("entry %q of %q", entry, path)
		}
		if _, ok := a.meta.Sessions[m[1]]; !ok {
			t.Errorf("session %s has no record", m[1])
		}
		last := 0
		for r := range strings.SplitSeq(ranges, ",") {
			from, to, ok := strings.Cut(r, "-")
			if !ok {
				to = from
			}
			start, _ := strconv.Atoi(from)
			end, _ := strconv.Atoi(to)
			if start <= last || end < start || ok && end == start {
				t.Errorf("ranges %q", ranges)
			}
			last = end
			for n := start; n <= end; n++ {
				if a.files[path][n] != "" {
					t.Errorf("%s:%d has two writers", path, n)
				}
				a.files[path][n] = key
			}
		}
	}
	return a
}

// traceRecord is a record as Agent Trace 0.1.0 has it.
type traceRecord struct {
	Version, ID string
	Timestamp   time.Time
	VCS         struct{ Type, Revision string }
	Files       []struct {
		Path          string
		Conversations []struct {
			Contributor struct {
				Type  string
				Model string `json:"model_id"`
			}
			Ranges []struct {
				Start int `json:"start_line"`
				End   int `json:"end_line"`
			}
		}
	}
	Metadata map[string]string
}

// fitsTrace holds a record against testdata/agent-trace.schema.json.
func fitsTrace(t *testing.T, text string) {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schema, err := c.Compile("testdata/agent-trace.schema.json")
	need.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	need.NoError(t, err)
	if err := schema.Validate(v); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

func readTrace(t *testing.T, text, commit string) (r traceRecord) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	fitsTrace(t, text)
	if r.Version != "0.1.0" || r.VCS.Type != "git" || r.VCS.Revision != commit || r.Timestamp.IsZero() || r.Files == nil ||
		!regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(r.ID) {
		t.Errorf("%s", text)
	}
	return r
}

// addedLines are the lines that git says a commit added, by path.
func addedLines(t *testing.T, dir, commit string) map[string][]int {
	t.Helper()
	out := make(map[string][]int)
	path, at := "", 0
	for line := range strings.SplitSeq(harness.Git(t, dir, "-c", "core.quotePath=false", "show", "--format=", "-M", "-U0", commit), "\n") {
		switch {
		case strings.HasPrefix(line, "+++ "):
			path = strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(line, "+++ "), "\t"), "b/")
		case strings.HasPrefix(line, "@@ "):
			_, rest, _ := strings.Cut(line, " +")
			from, _, _ := strings.Cut(strings.Fields(rest)[0], ",")
			at, _ = strconv.Atoi(from)
		case strings.HasPrefix(line, "+"):
			out[path] = append(out[path], at)
			at++
		}
	}
	return out
}

// The exported commits have notes that name the lines of each agent's session.
func TestExportNotes(t *testing.T) {
	need.Tool(t, "git")
	p := newProject(t, map[string]string{"a.txt": "1\n2\n3\n4\n5\n6\n", "d/x": "x\ny\nz\n"})
	repository(t, p.dir)
	c := p.begin(t, "conversation-1", map[string]any{"model": "m/1", "tool": "Write", "prompt_id": "p1"})
	p.shell(t, "printf '1\\n2\\ntwo and a half\\n3\\n4\\n5\\n6\\n' > a.txt; mkdir -p 'sp ace'; echo s > 'sp ace/new file'")
	p.end(t, c, nil)
	k := &taskOf{p: p, ID: c.TaskID, At: map[string]any{"workspace_id": c.WorkspaceID}}
	other := p.task(t, "metadata", map[string]any{"agent": "other"}, "goal", "the secret of the prompt")
	p.post(t, other.url("/move"), map[string]any{"from": "d/x", "to": "d/moved"}).want(t, 200)
	other.put(t, "d/moved", "x\ny\nz\nw\n").want(t, 200)
	eraser := p.task(t)
	eraser.put(t, "a.txt", "1\n2\n3\n4\n5\n6\n").want(t, 200)
	p.post(t, eraser.url("/revert"), map[string]any{}).want(t, 200)
	other.put(t, "bin", "a\x00b").want(t, 201)
	p.shell(t, "echo person >> a.txt")
	other.sync(t)
	ws := k.str("workspace_id")

	r := export(t, 0, ws, "--data-dir", p.DataDir, "--repo", p.dir, "--branch", "all", "--notes", "git-ai", "--notes", "agent-trace")
	commits := strings.Fields(harness.Git(t, p.dir, "rev-list", "--reverse", "main..all"))
	if len(commits) != r.Commits {
		t.Fatalf("%d commits, of %d", len(commits), r.Commits)
	}
	sessions := make(map[string]string)
	perLine := make(map[string]string)
	for _, commit := range commits {
		note := harness.Git(t, p.dir, "notes", "--ref=ai", "show", commit)
		if strings.Contains(note, "secret") {
			t.Errorf("a prompt's text: %s", note)
		}
		a := readAuthorship(t, note)
		if a.meta.Base != commit {
			t.Errorf("base_commit_sha is %s", a.meta.Base)
		}
		for id, s := range a.meta.Sessions {
			sessions[id] = s.Agent.Tool + " " + s.Agent.ID + " " + s.Agent.Model
		}
		added := addedLines(t, p.dir, commit)
		for path, lines := range a.files {
			for n, key := range lines {
				if !slices.Contains(added[path], n) {
					t.Errorf("%s: the commit did not add %s:%d", commit, path, n)
				}
				perLine[fmt.Sprintf("%s %s:%d", commit, path, n)] = key
			}
		}
		trace := harness.Git(t, p.dir, "notes", "--ref=agent-trace", "show", commit)
		total := 0
		for _, f := range readTrace(t, trace, commit).Files {
			for _, v := range f.Conversations {
				if v.Contributor.Type != "ai" {
					t.Errorf("%s", trace)
				}
				for _, x := range v.Ranges {
					for n := x.Start; n <= x.End; n++ {
						total++
						if a.files[f.Path][n] == "" {
							t.Errorf("%s: %s:%d is in the record alone", commit, f.Path, n)
						}
					}
				}
			}
		}
		for _, lines := range a.files {
			total -= len(lines)
		}
		if total != 0 || strings.Contains(trace, "secret") {
			t.Errorf("%s\n%s", note, trace)
		}
	}
	said := slices.Sorted(maps.Values(sessions))
	if want := []string{"codex conversation-1 m/1", "other " + other.ID + " unknown"}; !slices.Equal(said, want) {
		t.Errorf("the sessions are %q, not %q", said, want)
	}
	// As git blames the branch, so the notes say.
	owner := func(path string) (out []string) {
		for line := range strings.SplitSeq(harness.Git(t, p.dir, "blame", "--line-porcelain", "all", "--", path), "\n") {
			if f := strings.Fields(line); len(f) >= 3 && len(f[0]) == 40 {
				key, _, _ := strings.Cut(perLine[fmt.Sprintf("%s %s:%s", f[0], path, f[1])], "::")
				tool, _, _ := strings.Cut(sessions[key], " ")
				out = append(out, tool)
			}
		}
		return out
	}
	if got := owner("d/moved"); !slices.Equal(got, []string{"", "", "", "other"}) {
		t.Errorf("d/moved: %q", got)
	}
	// What a revert brought back is its first writer's.
	if got := owner("a.txt"); !slices.Equal(got, []string{"", "", "codex", "", "", "", "", ""}) {
		t.Errorf("a.txt: %q", got)
	}
	if got := owner("sp ace/new file"); !slices.Equal(got, []string{"codex"}) {
		t.Errorf("sp ace/new file: %q", got)
	}

	// The same commits again: nothing is written twice. Another squash: more notes.
	tip := harness.Git(t, p.dir, "rev-parse", "refs/notes/ai")
	export(t, 0, ws, "--data-dir", p.DataDir, "--repo", p.dir, "--branch", "again", "--notes", "git-ai")
	if harness.Git(t, p.dir, "rev-parse", "refs/notes/ai", "again") != tip+"\n"+commits[len(commits)-1] {
		t.Error("a second export differs")
	}
	export(t, 0, ws, "--data-dir", p.DataDir, "--repo", p.dir, "--branch", "squashed", "--squash", "task", "--notes", "git-ai")
	for _, commit := range append(commits, strings.Fields(harness.Git(t, p.dir, "rev-list", "main..squashed"))...) {
		readAuthorship(t, harness.Git(t, p.dir, "notes", "--ref=ai", "show", commit))
	}
	fresh := t.TempDir()
	harness.Git(t, fresh, "init", "-q", "-b", "main")
	export(t, 0, ws, "--server", p.URL, "--repo", fresh, "--branch", "all", "--notes", "agent-trace")
	for commit := range strings.FieldsSeq(harness.Git(t, fresh, "rev-list", "all")) {
		readTrace(t, harness.Git(t, fresh, "notes", "--ref=agent-trace", "show", commit), commit)
	}
	if got := harness.Git(t, fresh, "for-each-ref", "refs/notes"); strings.Contains(got, "refs/notes/ai") {
		t.Error(got)
	}
	export(t, 0, k.ID, "--data-dir", p.DataDir, "--repo", p.dir, "--branch", "alone", "--notes", "git-ai")
	lines := make(map[string]int) // of the call, which is more than one commit if the watcher was quick
	for _, commit := range strings.Fields(harness.Git(t, p.dir, "rev-list", "main..alone")) {
		for path, keys := range readAuthorship(t, harness.Git(t, p.dir, "notes", "--ref=ai", "show", commit)).files {
			lines[path] += len(keys)
		}
	}
	if len(lines) != 2 || lines["a.txt"] != 1 || lines["sp ace/new file"] != 1 {
		t.Errorf("%v", lines)
	}
	export(t, 2, ws, "--data-dir", p.DataDir, "--repo", p.dir, "--branch", "b", "--notes", "git")
}

// Random edits of two tasks: squashed and not, each line that git says an exported
// commit added is in the note, and no other.
func TestExportNotesRandom(t *testing.T) {
	need.Tool(t, "git")
	p := newProject(t, map[string]string{"base": "1\n"})
	repository(t, p.dir)
	rnd := rand.New(rand.NewPCG(3, 9))
	tasks := []*taskOf{p.task(t, "metadata", map[string]any{"agent": "one"}), p.task(t, "metadata", map[string]any{"agent": "two"})}
	files := map[string][]string{}
	for range 60 {
		path := []string{"f", "g/h"}[rnd.IntN(2)]
		lines := files[path]
		at := rnd.IntN(len(lines) + 1)
		add := []string{[]string{"", "}", "a", "b", fmt.Sprint(rnd.IntN(99))}[rnd.IntN(5)], fmt.Sprint(rnd.IntN(30))}
		lines = slices.Concat(lines[:at], add[:1+rnd.IntN(2)], lines[min(len(lines), at+rnd.IntN(3)):])
		files[path] = lines
		tasks[rnd.IntN(2)].put(t, path, strings.Join(lines, "\n")+"\n")
	}
	for _, squash := range []string{"none", "task"} {
		export(t, 0, tasks[0].str("workspace_id"), "--data-dir", p.DataDir, "--repo", p.dir, "--branch", squash, "--squash", squash, "--notes", "git-ai")
		for commit := range strings.FieldsSeq(harness.Git(t, p.dir, "rev-list", "main.."+squash)) {
			a := readAuthorship(t, harness.Git(t, p.dir, "notes", "--ref=ai", "show", commit))
			added := addedLines(t, p.dir, commit)
			for path, lines := range added {
				if len(lines) != len(a.files[path]) {
					t.Errorf("%s %s: git says %v, the note %v", commit, path, lines, a.files[path])
				}
				for _, n := range lines {
					if a.files[path][n] == "" {
						t.Errorf("%s %s:%d is not in the note", commit, path, n)
					}
				}
			}
		}
	}
}
