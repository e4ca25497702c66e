package hook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// readers are tools that change no file, or only start agents whose own tools
// have events. A call for one of these would claim what others change while it
// runs. Names of all agents, lower case.
var readers = makeSet(
	// Claude Code
	"read", "glob", "grep", "ls", "webfetch", "websearch", "todowrite", "todoread", "task", "agent", "notebookread",
	"bashoutput", "killshell", "killbash", "taskoutput", "taskstop", "exitplanmode", "enterplanmode", "askuserquestion", "skill", "toolsearch",
	// Codex
	"update_plan", "view_image", "spawn_agent", "wait_agent", "wait", "send_input", "close_agent", "resume_agent",
	"request_user_input", "list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource",
	// Gemini CLI and Qwen Code
	"read_file", "read_many_files", "list_directory", "grep_search", "search_file_content", "google_web_search", "web_search",
	"web_fetch", "write_todos", "todo_write", "ask_user", "ask_user_question", "activate_skill", "exit_plan_mode", "enter_plan_mode",
	// Copilot
	"view", "list_dir", "file_search", "semantic_search", "get_errors", "manage_todo_list", "runsubagent", "report_intent",
	// opencode
	"list", "question",
)

func makeSet(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// harmless reports whether a tool needs no call. Tools of umbra's own MCP server
// need none either: what they write is attributed without one.
func harmless(tool string, input json.RawMessage) bool {
	name := strings.ToLower(tool)
	if name == "str_replace_editor" {
		var in toolInput
		return json.Unmarshal(input, &in) == nil && in.Command == "view"
	}
	return readers[name] || strings.HasPrefix(name, "mcp__umbra__") || strings.HasPrefix(name, "mcp_umbra_")
}

// toolInput has the fields of the tools that change files, as the agents name
// them.
type toolInput struct {
	Command  text            `json:"command"`
	Cmd      text            `json:"cmd"`
	Input    text            `json:"input"`
	Patch    text            `json:"patch"`
	PatchTxt text            `json:"patchText"`
	File     text            `json:"file_path"`
	FilePath text            `json:"filePath"`
	Path     text            `json:"path"`
	Target   text            `json:"target_file"`
	Notebook text            `json:"notebook_path"`
	Content  json.RawMessage `json:"content"`
	Contents json.RawMessage `json:"contents"`
	FileText json.RawMessage `json:"file_text"`
	Replaced []struct {
		FilePath text `json:"filePath"`
	} `json:"replacements"`
}

func firstOf(list ...text) string {
	for _, s := range list {
		if s != "" {
			return string(s)
		}
	}
	return ""
}

// declare sets the paths of an editing tool. A tool with an input of another
// shape declares nothing, so that its changes are judged as those of a shell.
func (e *Event) declare(raw json.RawMessage) {
	var in toolInput
	if json.Unmarshal(raw, &in) != nil {
		// Codex and Copilot may pass a patch as a plain string.
		var patch text
		if json.Unmarshal(raw, &patch) == nil {
			in.Input = patch
		}
	}
	file := firstOf(in.File, in.FilePath, in.Path, in.Target, in.Notebook)
	switch strings.ToLower(e.Tool) {
	case "apply_patch", "applypatch", "patch":
		e.patch(firstOf(in.Command, in.Input, in.Patch, in.PatchTxt))
	case "write", "write_file", "create", "create_file":
		var content *string
		for _, raw := range []json.RawMessage{in.Content, in.Contents, in.FileText} {
			var s string
			if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil && content == nil {
				content = &s
			}
		}
		e.add(file, content)
	case "edit", "multiedit", "replace", "strreplace", "str_replace", "str_replace_editor", "edit_file", "search_replace",
		"replace_string_in_file", "insert_edit_into_file", "notebookedit", "notebook_edit", "edit_notebook_file", "delete", "delete_file":
		e.add(file, nil)
	case "multi_replace_string_in_file":
		for _, r := range in.Replaced {
			e.add(string(r.FilePath), nil)
		}
	default:
		if command := firstOf(in.Command, in.Cmd); command != "" {
			sum := sha256.Sum256([]byte(command))
			e.CommandSHA256 = hex.EncodeToString(sum[:])
		}
	}
	if len(e.Paths) > maxPaths { // judged as what a shell changes
		e.Paths = nil
	}
	e.OnlyPaths = len(e.Paths) > 0
}

// maxPaths is how many paths a server accepts for one call.
const maxPaths = 10_000

// Headers of the files in a patch.
const (
	addFile    = "*** Add File: "
	updateFile = "*** Update File: "
	deleteFile = "*** Delete File: "
	moveTo     = "*** Move to: "
)

// patch declares the files of a Codex patch, each once, in order. Of an added
// file the patch has all of the content.
func (e *Event) patch(text string) {
	var added string
	var content strings.Builder
	finish := func() {
		if added != "" {
			s := content.String()
			e.add(added, &s)
		}
		added = ""
		content.Reset()
	}
	for line := range strings.Lines(text) {
		if s, ok := strings.CutPrefix(line, "+"); ok {
			if added != "" {
				content.WriteString(strings.TrimSuffix(s, "\n"))
				content.WriteByte('\n')
			}
			continue
		}
		line = strings.TrimRight(line, "\r\n")
		name, isAdd := strings.CutPrefix(line, addFile)
		switch {
		case isAdd:
			finish()
			added = name
		case strings.HasPrefix(line, "***"):
			finish()
			for _, head := range []string{updateFile, deleteFile, moveTo} {
				if name, ok := strings.CutPrefix(line, head); ok {
					e.add(name, nil)
				}
			}
		}
	}
	finish()
}
