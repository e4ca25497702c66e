package hook

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
)

// rewriting are the agents whose hook may replace a tool's input before it runs.
// Cursor and Copilot's camelCase form may do so too; their tools are left as they
// are, since what they do with an answer without a decision is not documented.
var rewriting = makeSet("claude-code", "codex", "qwen-code", "gemini-cli", "copilot")

// shells are the tools that run a shell's command, lower case.
var shells = makeSet("bash", "run_shell_command", "run_in_terminal")

// isolate replaces the command of a shell by one that runs it in the layer of its
// call. Left alone are commands in the background, which may run for days, and
// commands of umbra.
func (e *Event) isolate(raw json.RawMessage) {
	if e.Kind != Begin || !rewriting[e.Agent] || !shells[strings.ToLower(e.Tool)] || e.Agent == "copilot" && e.Name != "PreToolUse" {
		return
	}
	var in struct {
		Command text `json:"command"`
		Mode    text `json:"mode"`
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &in) != nil || json.Unmarshal(raw, &fields) != nil || in.Command == "" || in.Mode == "async" || ownCommand(string(in.Command)) {
		return
	}
	for _, name := range []string{"run_in_background", "is_background", "isBackground", "detach"} {
		if string(fields[name]) == "true" {
			return
		}
	}
	e.shell, e.input = string(in.Command), fields
}

// ownCommand reports whether a command runs umbra itself.
func ownCommand(command string) bool {
	words := strings.Fields(command)
	return len(words) > 0 && (words[0] == "umbra" || strings.HasSuffix(words[0], "/umbra")) || strings.Contains(command, "umbra exec ")
}

// layered returns the shell's input with a command that runs in the layer of a
// call; nil if the event is of no such shell.
func (e *Event) layered(exec []string, call string) json.RawMessage {
	if e.input == nil {
		return nil
	}
	var b strings.Builder
	for _, word := range append(slices.Clone(exec), "--call="+call, "--") {
		b.WriteString(quoted(word) + " ")
	}
	// The shell that the agent runs is asked for its name: bash and zsh say it.
	b.WriteString(`"${BASH:-${ZSH_NAME:-sh}}" -c ` + quoted(e.shell))
	command, err := marshal(b.String())
	if err != nil {
		return nil
	}
	fields := make(map[string]json.RawMessage, len(e.input))
	maps.Copy(fields, e.input)
	fields["command"] = command
	input, err := marshal(fields)
	if err != nil {
		return nil
	}
	return input
}

// rewrite is the agent's own form of a tool's new input.
func (e *Event) rewrite(input json.RawMessage) []byte {
	specific := map[string]any{"hookEventName": e.Name}
	switch e.Agent {
	case "gemini-cli":
		specific["tool_input"] = input
	case "codex":
		// Codex takes a new input with this decision only. It is none on whether the
		// command may run: its approvals and its sandbox come after the hook.
		specific["permissionDecision"] = "allow"
		specific["updatedInput"] = input
	default:
		// Without a decision the agent asks its user as it always does.
		specific["updatedInput"] = input
	}
	out, err := marshal(map[string]any{"hookSpecificOutput": specific})
	if err != nil {
		return nil
	}
	return append(out, '\n')
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// quoted quotes a word for a POSIX shell.
func quoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:,@%+=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// execCommand is how a command of an agent's shell calls `umbra exec` of this
// program, with what the hook itself was given. The program is named by its path: a
// login shell may have another PATH than the hook. nil: the path is not known.
func (v *Invocation) execCommand() []string {
	program, err := os.Executable()
	if err != nil {
		return nil
	}
	words := []string{program, "exec"}
	if v.serverFlag != "" {
		words = append(words, "--server="+v.serverFlag)
	}
	if v.dataDirFlag != "" {
		words = append(words, "--data-dir="+v.dataDirFlag)
	}
	return words
}
