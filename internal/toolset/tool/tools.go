package tool

import (
	"slices"

	"umbra/internal/toolset/mount"
)

// The names of the tools.
const (
	ReadFile      = "read_file"
	ListDirectory = "list_directory"
	WriteFile     = "write_file"
	EditFile      = "edit_file"
	StatFile      = "stat_file"
	SearchFiles   = "search_files"
	GrepFiles     = "grep_files"
	MoveFile      = "move_file"
	DeleteFile    = "delete_file"
	TaskChanges   = "task_changes"
	TaskDiff      = "task_diff"
	RevertChanges = "revert_changes"
	ExplainLine   = "explain_line"
)

// Hints are MCP's annotations: by them a client decides how careful to be.
type Hints struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

// Tool is one tool.
type Tool struct {
	Name        string
	Title       string // for people
	Description string
	Params      []Param
	Scopes      []mount.Scope // one mount of any of these makes it available
	Hints       Hints
}

// Defaults and bounds that are in the schemas.
const (
	DefaultLines   = 2000
	DefaultMatches = 100
	MaxMatches     = 1000
)

func scopes(want func(mount.Scope) bool) []mount.Scope {
	return slices.DeleteFunc(mount.Scopes(), func(s mount.Scope) bool { return !want(s) })
}

func path(description string) Param {
	return Param{Name: "path", Type: String, Required: true, Description: description}
}

func optional(name string, t Type, description string) Param {
	return Param{Name: name, Type: t, Description: description}
}

// All lists the tools, in the order in which they are offered.
func All() []Tool {
	readers, writers := scopes(mount.Scope.Reads), scopes(mount.Scope.Writes)
	both := []mount.Scope{mount.ReadWrite}
	reads := Hints{ReadOnly: true, Idempotent: true}
	return []Tool{
		{Name: ReadFile, Title: "Read a file", Scopes: readers, Hints: reads,
			Description: "Read a text file. Long files are cut: the last line of the answer then says how to read on.",
			Params: []Param{path("Absolute path of the file, such as /project/src/main.go."),
				optional("offset", Integer, "Line to begin with, counted from 0."),
				{Name: "limit", Type: Integer, Min: 1, Description: "How many lines to read; 2000 if left out."},
				optional("byte_offset", Integer, "Byte of the line at offset to begin with; only to read on within one very long line."),
				optional("line_numbers", Boolean, "Begin each line with its number, counted from 1, and a tab.")}},
		{Name: ListDirectory, Title: "List a directory", Scopes: readers, Hints: reads,
			Description: "List the names in a directory, one a line; directories end in \"/\". The path / lists what is mounted.",
			Params:      []Param{path("Absolute path of the directory.")}},
		{Name: WriteFile, Title: "Write a file", Scopes: writers, Hints: Hints{Destructive: true, Idempotent: true},
			Description: "Write a text file: it is made with the directories above it, or replaced as a whole. Every write is kept in history and can be taken back.",
			Params:      []Param{path("Absolute path of the file."), {Name: "content", Type: String, Required: true, Description: "The whole new content."}}},
		{Name: EditFile, Title: "Edit a file", Scopes: writers, Hints: Hints{Destructive: true},
			Description: "Replace text in a file: one piece by old_string and new_string, or several at once by edits, in their order, all or none. Each old_string must be in the file exactly once, unless its replace_all is true.",
			Params: []Param{path("Absolute path of the file."),
				{Name: "old_string", Type: String, NotEmpty: true, Description: "The text to be replaced, exactly as it is in the file, with enough around it to be unique."},
				{Name: "new_string", Type: String, Description: "The text to take its place."},
				optional("replace_all", Boolean, "Replace every occurrence."),
				{Name: "edits", Type: List, Description: "Several replacements in place of old_string and new_string.", Fields: []Param{
					{Name: "old_string", Type: String, Required: true, NotEmpty: true, Description: "The text to be replaced."},
					{Name: "new_string", Type: String, Required: true, Description: "The text to take its place."},
					optional("replace_all", Boolean, "Replace every occurrence.")}}}},
		{Name: StatFile, Title: "Look at a file", Scopes: readers, Hints: reads,
			Description: "Return type, size in bytes and time of change of a file or directory, as JSON.",
			Params:      []Param{path("Absolute path.")}},
		{Name: SearchFiles, Title: "Find files by name", Scopes: readers, Hints: reads,
			Description: "Find files whose path matches a glob, one path a line: * and ? stay within one name, ** matches any directories (**/*.go finds at every depth), [a-z] and {a,b} work.",
			Params: []Param{{Name: "pattern", Type: String, Required: true, NotEmpty: true, Description: "Glob, matched against the path below the directory; one that begins with / against the whole path."},
				optional("path", String, "Directory to search; everything that may be read if left out.")}},
		{Name: GrepFiles, Title: "Search in files", Scopes: readers, Hints: reads,
			Description: "Search file contents for a regular expression (RE2 syntax), line by line. Answers \"path:line: text\". Binary and very large files are left out.",
			Params: []Param{{Name: "pattern", Type: String, Required: true, NotEmpty: true, Description: "Regular expression; (?i) at its beginning ignores case."},
				optional("path", String, "File or directory to search; everything that may be read if left out."),
				optional("glob", String, "Search only files whose path below the directory matches, such as **/*.ts."),
				{Name: "max_results", Type: Integer, Min: 1, Max: MaxMatches, Description: "How many lines to answer at most; 100 if left out."}}},
		{Name: MoveFile, Title: "Move a file", Scopes: both, Hints: Hints{Destructive: true},
			Description: "Move or rename a file or directory.",
			Params: []Param{{Name: "from", Type: String, Required: true, Description: "Absolute path of what is to be moved."},
				{Name: "to", Type: String, Required: true, Description: "Absolute path that it is to have then."},
				optional("overwrite", Boolean, "Replace a file that exists there.")}},
		{Name: DeleteFile, Title: "Delete a file", Scopes: writers, Hints: Hints{Destructive: true, Idempotent: true},
			Description: "Delete a file or directory. Its content stays in history, and the deletion can be taken back.",
			Params:      []Param{path("Absolute path."), optional("recursive", Boolean, "Delete a directory with all that is in it.")}},
		{Name: TaskChanges, Title: "List own changes", Scopes: readers, Hints: reads,
			Description: "List what was changed in your task so far, oldest first, with the numbers that revert_changes takes."},
		{Name: TaskDiff, Title: "Show own changes", Scopes: readers, Hints: reads,
			Description: "Show what was changed in your task so far as a unified diff, without other tasks' changes.",
			Params:      []Param{optional("path", String, "One file; all that was changed if left out.")}},
		{Name: RevertChanges, Title: "Take back own changes", Scopes: writers, Hints: Hints{Destructive: true},
			Description: "Take back your own changes, not those of others. Give exactly one of path, subtask, change and all.",
			Params: []Param{optional("path", String, "File or directory whose changes are to be taken back."),
				optional("subtask", String, "Subtask whose changes are to be taken back."),
				{Name: "change", Type: Integer, Min: 1, Description: "Number of one change, as task_changes lists it."},
				optional("all", Boolean, "Take back everything."),
				optional("mount", String, "With subtask, change or all: only in the workspace mounted there."),
				optional("dry_run", Boolean, "Only report what would be done.")}},
		{Name: ExplainLine, Title: "Explain a line", Scopes: readers, Hints: reads,
			Description: "Show which change wrote a line of a file: its agent, task and goal, when it was made, and its diff of that file.",
			Params: []Param{path("Absolute path of the file."),
				{Name: "line", Type: Integer, Required: true, Min: 1, Description: "Number of the line, counted from 1."}}},
	}
}

// Offered reports whether a table has a mount that allows the tool.
func (t *Tool) Offered(table *mount.Table) bool {
	return slices.ContainsFunc(table.Mounts(), func(m mount.Mount) bool { return slices.Contains(t.Scopes, m.Scope) })
}

// For gives the tools that follow from a table, of those in a list.
func For(table *mount.Table, all []Tool) []Tool {
	out := []Tool{}
	for i := range all {
		if all[i].Offered(table) {
			out = append(out, all[i])
		}
	}
	return out
}

// Find gives a tool by its name, nil if it is not among them.
func Find(tools []Tool, name string) *Tool {
	for i := range tools {
		if tools[i].Name == name {
			return &tools[i]
		}
	}
	return nil
}

// Names lists the names.
func Names(tools []Tool) []string {
	out := make([]string, len(tools))
	for i := range tools {
		out[i] = tools[i].Name
	}
	return out
}
