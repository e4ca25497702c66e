package tests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// step is one turn of the scripted model: it looks at the last answer and calls
// a tool, or is done.
type step func(last string) (tool string, args map[string]any)

// loop plays a model against a toolset as an agent framework does: tools and map
// fetched at each turn, every answer handed back, until the script ends.
func (a *agent) loop(subtask string, script []step) (transcript []string) {
	a.t.Helper()
	last := ""
	for _, turn := range script {
		if m := a.fileMap(); !strings.HasPrefix(m, "Filesystem Map:\n") {
			a.t.Fatalf("the prompt's map: %s", m)
		}
		offered := a.tools("anthropic")
		name, args := turn(last)
		if !slices.ContainsFunc(offered, func(t map[string]any) bool { return t["name"] == name }) {
			a.t.Fatalf("%s is not offered", name)
		}
		r := a.Do("POST", "/toolsets/"+a.id+"/call", map[string]any{"name": name, "arguments": args, "subtaskId": subtask}).Expect(200)
		last = r.Text("content")
		transcript = append(transcript, name+": "+last)
	}
	return transcript
}

func say(tool string, args ...any) step {
	return func(string) (string, map[string]any) {
		o := map[string]any{}
		for i := 0; i < len(args); i += 2 {
			o[args[i].(string)] = args[i+1]
		}
		return tool, o
	}
}

// A model reads, edits, fails, corrects itself by the message, looks at its
// diff and takes back one part of its work, while a person works beside it.
func TestToolsetAgentLoop(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	original := "package main\n\nfunc add(a, b int) int {\n\treturn a - b\n}\n\nfunc sub(a, b int) int {\n\treturn a - b\n}\n"
	dir := folder(t, map[string]string{"main.go": original, "README.md": "# calc\n"})
	a := newAgent(t, s, physical("/project", "READ_WRITE", dir), virtual("/memo", "READ_WRITE", "agents", "a1"))
	first := a.loop("fix-add", []step{
		say("list_directory", "path", "/"),
		say("search_files", "pattern", "**/*.go"),
		func(found string) (string, map[string]any) { // it takes the path from the answer
			return "read_file", map[string]any{"path": strings.Split(found, "\n")[0]}
		},
		say("edit_file", "path", "/project/main.go", "old_string", "return a - b", "new_string", "return a + b"),
		func(failed string) (string, map[string]any) { // twice in the file: it gives more context
			if !strings.Contains(failed, "appears 2 times") || !strings.Contains(failed, "give more context") {
				t.Errorf("the failure says %q", failed)
			}
			return "edit_file", map[string]any{"path": "/project/main.go", "old_string": "func add(a, b int) int {\n\treturn a - b", "new_string": "func add(a, b int) int {\n\treturn a + b"}
		},
		say("write_file", "path", "/memo/done.md", "content", "fixed add\n"),
	})
	want := []string{"list_directory: memo/\nproject/", "search_files: /project/main.go", "read_file: " + original,
		"edit_file: Error: old_string appears 2 times in /project/main.go; give more context or set replace_all",
		"edit_file: Replaced 1 occurrence(s) in /project/main.go", "write_file: Wrote 10 bytes to /memo/done.md"}
	if !slices.Equal(first, want) {
		t.Errorf("%q", first)
	}
	a.loop("docs", []step{
		say("write_file", "path", "/project/README.md", "content", "# calc\n\nWrong words.\n"),
		say("write_file", "path", "/project/NOTES.md", "content", "junk\n"),
		say("delete_file", "path", "/project/nothing.md"),
	})
	// Beside it a person saves another part of the file.
	edited := strings.Replace(onDisk(t, dir, "main.go"), "package main\n", "// Package main calculates.\npackage main\n", 1)
	need.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(edited), 0o644))
	diff := a.gives("task_diff")
	for _, line := range []string{"--- a/project/main.go", "+++ b/project/main.go", "-\treturn a - b", "+\treturn a + b", "+Wrong words.", "b/project/NOTES.md", "+fixed add"} {
		if !strings.Contains(diff, line+"\n") && !strings.HasSuffix(diff, line) {
			t.Errorf("the diff lacks %q:\n%s", line, diff)
		}
	}
	if strings.Contains(diff, dir) {
		t.Errorf("a host path:\n%s", diff)
	}
	if got := a.gives("task_changes"); got != "In /memo:\n1 create /memo/done.md (subtask fix-add)\nIn /project:\n1 modify /project/main.go (subtask fix-add)\n"+
		"2 modify /project/README.md (subtask docs)\n3 create /project/NOTES.md (subtask docs)" {
		t.Errorf("%s", got)
	}
	// The docs were wrong: that part goes, the fix stays.
	a.ok("Would delete /project/NOTES.md\nWould restore /project/README.md\n2 change(s) would be taken back", "revert_changes", "subtask", "docs", "dry_run", true)
	a.ok("Deleted /project/NOTES.md\nRestored /project/README.md\n2 change(s) taken back", "revert_changes", "subtask", "docs")
	if got := onDisk(t, dir, "README.md"); got != "# calc\n" {
		t.Errorf("%q", got)
	}
	if got := onDisk(t, dir, "main.go"); got != edited {
		t.Errorf("%q", got)
	}
	a.fails("There is a change 1 in each of /memo, /project; give mount too", "revert_changes", "change", 1)
	a.ok("Took own lines back in /project/main.go\n1 change(s) taken back", "revert_changes", "change", 1, "mount", "/project")
	if got := onDisk(t, dir, "main.go"); got != "// Package main calculates.\n"+original {
		t.Errorf("the person's line is lost: %q", got)
	}
	a.ok("Deleted /memo/done.md\n1 change(s) taken back", "revert_changes", "path", "/memo")
	a.ok("Nothing to take back.", "revert_changes", "all", true)
	// What is left of the only executing task's diff is what the person saved.
	if got := a.gives("task_diff"); !strings.Contains(got, "+// Package main calculates.\n") || strings.Contains(got, "a + b") {
		t.Errorf("%s", got)
	}
	a.fails("There is no change 99", "revert_changes", "change", 99)
	a.fails("There are no changes of subtask nobody", "revert_changes", "subtask", "nobody")
	a.fails("Invalid arguments: give exactly one of path, subtask, change and all", "revert_changes", "path", "/project", "all", true)
	a.fails("Invalid arguments: give exactly one of path, subtask, change and all", "revert_changes")
}

// What another actor changed since stays, and the model gets a message.
func TestToolsetRevertConflict(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	dir := folder(t, map[string]string{"f": "one\n"})
	a := newAgent(t, s, physical("/w", "READ_WRITE", dir))
	b := newAgent(t, s, physical("/w", "READ_WRITE", dir))
	a.gives("write_file", "path", "/w/f", "content", "two\n")
	b.gives("write_file", "path", "/w/f", "content", "three\n")
	status, text := a.call("revert_changes", "all", true)
	if status != "error" || !strings.Contains(text, "/w/f: another actor changed the same lines") {
		t.Errorf("%s %s", status, text)
	}
	if got := onDisk(t, dir, "f"); got != "three\n" {
		t.Errorf("%q", got)
	}
}

func TestToolsetSearch(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	dir := folder(t, map[string]string{"a.go": "package a // Needle\r\n", "d/b.go": "x\nneedle 1\nneedle 2\n", "d/bin": "needle\x00", "d/.hidden/c": "needle\n", "d/.git/config": "needle\n",
		"long": strings.Repeat("x", 3000) + "needle" + strings.Repeat("y", 3000), "node_modules/m/i.js": "needle", ".gitignore": "node_modules\n"})
	big := append(bytes.Repeat([]byte("needle\n"), 1), make([]byte, 9<<20)...)
	need.NoError(t, os.WriteFile(filepath.Join(dir, "big"), big, 0o644))
	a := newAgent(t, s, physical("/w", "READ_ONLY", dir), virtual("/v", "READ_WRITE", "s"), virtual("/wo", "WRITE_ONLY", "wo"))
	a.gives("write_file", "path", "/v/n/x.go", "content", "needle v\n")
	a.gives("write_file", "path", "/wo/x.go", "content", "needle wo\n")
	a.ok("/v/n/x.go\n/w/a.go\n/w/d/b.go", "search_files", "pattern", "**/*.go")
	a.ok("/w/a.go", "search_files", "pattern", "*.go", "path", "/w")
	a.ok("/w/d/.hidden/c\n/w/d/b.go\n/w/d/bin", "search_files", "pattern", "**", "path", "/w/d")
	a.ok("/w/d/b.go", "search_files", "pattern", "/w/**/b.*")
	a.ok("No files match.", "search_files", "pattern", "*.zip")
	a.fails("Invalid arguments: pattern: a [ of the pattern is not closed", "search_files", "pattern", "[a")
	a.fails("File not found: /w/none", "search_files", "pattern", "*", "path", "/w/none")
	got := a.gives("grep_files", "pattern", "(?i)needle")
	for _, line := range []string{"/v/n/x.go:1: needle v", "/w/a.go:1: package a // Needle", "/w/d/.hidden/c:1: needle", "/w/d/b.go:2: needle 1", "/w/d/b.go:3: needle 2", "/w/node_modules/m/i.js:1: needle", "[files over 8 MiB were left out: 1]"} {
		if !slices.Contains(strings.Split(got, "\n"), line) {
			t.Errorf("lacks %q:\n%s", line, got)
		}
	}
	if strings.Contains(got, "bin") || strings.Contains(got, ".git/") || strings.Contains(got, "/wo") || len(got) > 2000 {
		t.Errorf("%s", got)
	}
	a.ok("/w/d/b.go:2: needle 1\n[cut: there are more matches; search below a directory, or with a narrower pattern]", "grep_files", "pattern", "needle", "path", "/w/d/b.go", "max_results", 1)
	a.ok("/w/a.go:1: package a // Needle", "grep_files", "pattern", "Needle$", "glob", "*.go", "path", "/w")
	a.ok("No lines match.", "grep_files", "pattern", "absent", "path", "/w/d")
	if status, text := a.call("grep_files", "pattern", "("); status != "error" || !strings.HasPrefix(text, "Error: Invalid arguments: pattern: missing closing )") {
		t.Errorf("%s", text)
	}
}

func TestToolsetReadLong(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	var lines, whole strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	wide := strings.Repeat("ü", 200_000)
	dir := folder(t, map[string]string{"lines": lines.String(), "wide": wide, "bin": "a\xff\xfe"})
	a := newAgent(t, s, physical("/w", "READ_ONLY", dir))
	got := a.gives("read_file", "path", "/w/lines")
	if strings.Count(got, "\n") != 2000 || !strings.HasSuffix(got, "\n[cut: the file goes on; read on with offset 2000]") {
		t.Errorf("…%s", got[len(got)-100:])
	}
	a.ok("line 4999\n", "read_file", "path", "/w/lines", "offset", 4999)
	a.ok("line 3\n[cut: the file goes on; read on with offset 4]", "read_file", "path", "/w/lines", "offset", 3, "limit", 1)
	a.fails("offset 5000 is past the end of /w/lines (5000 lines)", "read_file", "path", "/w/lines", "offset", 5000)
	a.fails("/w/bin is not UTF-8 text (3 bytes)", "read_file", "path", "/w/bin")
	for at := 0; ; {
		part := a.gives("read_file", "path", "/w/wide", "byte_offset", at)
		text, last, cut := strings.Cut(part, "\n[cut: line 0 goes on; read on with offset 0 and byte_offset ")
		whole.WriteString(text)
		if !cut {
			break
		}
		if _, err := fmt.Sscanf(last, "%d]", &at); err != nil {
			t.Fatal(err)
		}
	}
	if whole.String() != wide {
		t.Error("read on, it is another text")
	}
}
