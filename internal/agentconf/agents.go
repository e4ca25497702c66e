// Package agentconf wires coding agents to umbra: it adds hooks, an MCP entry and
// for opencode a plugin to the agents' configuration files, and takes them out
// again. Files of others are merged: all bytes that are not added stay.
package agentconf

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"umbra/clients/opencode"
)

// Env is where agents are looked for, and how they call umbra.
type Env struct {
	Home    string // absolute
	Project string // absolute
	// ConfigHome is $XDG_CONFIG_HOME, else ~/.config; CodexHome $CODEX_HOME, else
	// ~/.codex.
	ConfigHome, CodexHome string
	LookPath              func(program string) (string, error)
	// Program is how to call umbra: a name on PATH or an absolute path.
	Program string
	// HookFlags are appended to the hooks' commands.
	HookFlags []string
	// InProject selects the project's files instead of the user's.
	InProject bool
}

// agent is what is known of one agent.
type agent struct {
	name     string
	programs []string
	// dirs are its directories; the agent is found if one of them exists.
	dirs  func(e *Env) []string
	files func(e *Env) []file
}

// Kinds of files.
type kind int

const (
	jsonFile kind = iota // merged
	tomlFile             // merged
	ownFile              // written as a whole
)

// file is one file to be edited.
type file struct {
	path string
	kind kind
	hook *hooks
	// member is the path of the MCP entry, and value what it is.
	member []string
	value  any
	first  []pair // of a JSON file that is made, what it begins with
	text   string // of an ownFile
	// onlyRemove: the agent's settings are elsewhere now, and what an earlier init wrote
	// here is taken out.
	onlyRemove bool
}

type pair struct {
	name  string
	value any
}

// hooks are entries in hooks.EVENT of a JSON file.
type hooks struct {
	agent   string
	events  []string
	element func(event string) any
}

// command is one hook of the agents that follow Claude Code.
type command struct {
	Name    string `json:"name,omitempty"`
	Type    string `json:"type"`
	Command string `json:"command"`
	Timeout int    `json:"timeout"`
}

type group struct {
	Matcher string    `json:"matcher,omitempty"`
	Hooks   []command `json:"hooks"`
}

type server struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// shellWord quotes a text for a POSIX shell, where it needs that.
func shellWord(s string) string {
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:,@%+=", r))
	}
	if s != "" && strings.IndexFunc(s, odd) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (e *Env) hookCommand(agent string) string {
	words := append([]string{shellWord(e.Program), "hook", agent}, e.HookFlags...)
	return strings.Join(words, " ")
}

// mcpArgs are the arguments of umbra as an MCP server on a directory.
func mcpArgs(dir string) []string { return []string{"mcp", "--mount", "/project=" + dir} }

// base is the directory of the agent's files: in the project or at home.
func (e *Env) base(name string) string {
	if e.InProject {
		return filepath.Join(e.Project, name)
	}
	return filepath.Join(e.Home, name)
}

func (e *Env) both(name string) []string {
	return []string{filepath.Join(e.Home, name), filepath.Join(e.Project, name)}
}

// like returns hooks in the shape that Claude Code, Codex, Gemini CLI and Qwen
// Code share.
func (e *Env) like(agent, name, matcher string, timeout int, tools, others []string) *hooks {
	return &hooks{agent: agent, events: slices.Concat(tools, others), element: func(event string) any {
		g := group{Hooks: []command{{Name: name, Type: "command", Command: e.hookCommand(agent), Timeout: timeout}}}
		if slices.Contains(tools, event) {
			g.Matcher = matcher
		}
		return g
	}}
}

func (e *Env) mcp(path string, member ...string) file {
	return file{path: path, member: append(member, "umbra"), value: server{e.Program, mcpArgs(".")}}
}

var agents = []agent{
	{
		name: "claude-code", programs: []string{"claude"},
		dirs: func(e *Env) []string { return e.both(".claude") },
		files: func(e *Env) []file {
			mcp := e.mcp(filepath.Join(e.Home, ".claude.json"), "mcpServers")
			if e.InProject {
				mcp = e.mcp(filepath.Join(e.Project, ".mcp.json"), "mcpServers")
			}
			return []file{{path: filepath.Join(e.base(".claude"), "settings.json"), hook: e.like("claude-code", "", "Write|Edit|MultiEdit|NotebookEdit|Bash", 10,
				[]string{"PreToolUse", "PostToolUse", "PostToolUseFailure"},
				[]string{"PostToolBatch", "UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop", "SessionStart", "SessionEnd"})}, mcp}
		},
	},
	{
		name: "codex", programs: []string{"codex"},
		dirs: func(e *Env) []string { return []string{e.CodexHome, filepath.Join(e.Project, ".codex")} },
		files: func(e *Env) []file {
			dir := e.CodexHome
			if e.InProject {
				dir = filepath.Join(e.Project, ".codex")
			}
			return []file{{path: filepath.Join(dir, "hooks.json"), hook: e.like("codex", "", "", 10, nil,
				[]string{"PreToolUse", "PostToolUse", "UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop", "SessionStart", "SessionEnd"})},
				{path: filepath.Join(dir, "config.toml"), kind: tomlFile, member: []string{"mcp_servers", "umbra"}, value: server{e.Program, mcpArgs(".")}}}
		},
	},
	{
		name: "cursor", programs: []string{"cursor", "cursor-agent"},
		dirs: func(e *Env) []string { return e.both(".cursor") },
		files: func(e *Env) []file {
			h := &hooks{agent: "cursor", events: []string{"beforeSubmitPrompt", "preToolUse", "postToolUse", "postToolUseFailure", "beforeShellExecution",
				"afterShellExecution", "afterFileEdit", "subagentStart", "subagentStop", "stop", "sessionEnd"}}
			h.element = func(string) any {
				return struct {
					Command string `json:"command"`
				}{e.hookCommand("cursor")}
			}
			mcp := e.mcp(filepath.Join(e.base(".cursor"), "mcp.json"), "mcpServers")
			mcp.value = server{e.Program, mcpArgs("${workspaceFolder}")}
			return []file{{path: filepath.Join(e.base(".cursor"), "hooks.json"), hook: h, first: []pair{{"version", 1}}}, mcp}
		},
	},
	{
		name: "gemini-cli", programs: []string{"gemini"},
		dirs: func(e *Env) []string { return e.both(".gemini") },
		files: func(e *Env) []file {
			f := e.mcp(filepath.Join(e.base(".gemini"), "settings.json"), "mcpServers")
			f.hook = e.like("gemini-cli", "umbra", "*", 10_000, []string{"BeforeTool", "AfterTool"}, []string{"BeforeAgent", "AfterAgent", "SessionStart", "SessionEnd"})
			return []file{f}
		},
	},
	{
		name: "qwen-code", programs: []string{"qwen"},
		dirs: func(e *Env) []string { return e.both(".qwen") },
		files: func(e *Env) []file {
			f := e.mcp(filepath.Join(e.base(".qwen"), "settings.json"), "mcpServers")
			f.hook = e.like("qwen-code", "umbra", "*", 10_000, []string{"PreToolUse", "PostToolUse", "PostToolUseFailure"},
				[]string{"UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop", "SessionStart", "SessionEnd"})
			return []file{f}
		},
	},
	{
		name: "copilot", programs: []string{"copilot"},
		dirs: func(e *Env) []string {
			return []string{filepath.Join(e.Home, ".copilot"), filepath.Join(e.Project, ".github", "hooks")}
		},
		files: func(e *Env) []file {
			h := &hooks{agent: "copilot", events: []string{"PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SubagentStop", "Stop", "SessionStart", "SessionEnd"}}
			h.element = func(string) any {
				return struct {
					Type    string `json:"type"`
					Bash    string `json:"bash"`
					Command string `json:"command"` // VS Code's name for it
					Timeout int    `json:"timeoutSec"`
				}{"command", e.hookCommand("copilot"), e.hookCommand("copilot"), 10}
			}
			if e.InProject {
				return []file{{path: filepath.Join(e.Project, ".github", "hooks", "umbra.json"), hook: h, first: []pair{{"version", 1}}},
					e.mcp(filepath.Join(e.Project, ".vscode", "mcp.json"), "servers")}
			}
			mcp := e.mcp(filepath.Join(e.Home, ".copilot", "mcp-config.json"), "mcpServers")
			mcp.value = struct {
				Type string `json:"type"`
				server
				Tools []string `json:"tools"`
			}{"local", server{e.Program, mcpArgs(".")}, []string{"*"}}
			return []file{{path: filepath.Join(e.Home, ".copilot", "hooks", "umbra.json"), hook: h, first: []pair{{"version", 1}}}, mcp}
		},
	},
	{
		name: "opencode", programs: []string{"opencode"},
		dirs: func(e *Env) []string {
			return []string{filepath.Join(e.ConfigHome, "opencode"), filepath.Join(e.Project, ".opencode")}
		},
		files: func(e *Env) []file {
			dir, plugins := filepath.Join(e.ConfigHome, "opencode"), filepath.Join(e.ConfigHome, "opencode", "plugins")
			if e.InProject {
				dir, plugins = e.Project, filepath.Join(e.Project, ".opencode", "plugins")
			}
			list := []file{{path: filepath.Join(plugins, "umbra.js"), kind: ownFile, text: e.plugin()}}
			used := opencodeConfig(dir)
			for _, name := range []string{"opencode.json", "opencode.jsonc"} {
				path := filepath.Join(dir, name)
				list = append(list, file{path: path, first: []pair{{"$schema", "https://opencode.ai/config.json"}}, member: []string{"mcp", "umbra"}, onlyRemove: path != used,
					value: struct {
						Type    string   `json:"type"`
						Command []string `json:"command"`
						Enabled bool     `json:"enabled"`
					}{"local", append([]string{e.Program}, mcpArgs(".")...), true}})
			}
			return list
		},
	},
}

// opencodeConfig is the file that opencode's settings are in: of two, the one
// that has content.
func opencodeConfig(dir string) string {
	plain := filepath.Join(dir, "opencode.json")
	for _, path := range []string{plain, plain + "c"} {
		if raw, err := os.ReadFile(path); err == nil && len(strings.TrimSpace(string(raw))) > 0 {
			return path
		}
	}
	if _, err := os.Lstat(plain); err != nil {
		if _, err := os.Lstat(plain + "c"); err == nil {
			return plain + "c"
		}
	}
	return plain
}

// plugin is opencode's plugin, with the command that it runs.
func (e *Env) plugin() string {
	words := append([]string{e.Program, "hook", "generic"}, e.HookFlags...)
	raw, err := json.Marshal(words)
	if err != nil { // a list of strings
		return ""
	}
	return "// Made by `umbra init`; `umbra init --remove` takes it out.\n" + strings.Replace(opencode.Plugin, opencode.Command, "const command = "+string(raw)+";", 1)
}

// Names lists the agents, in the order in which they are wired.
func Names() []string {
	var list []string
	for _, a := range agents {
		list = append(list, a.name)
	}
	return list
}

func find(name string) *agent {
	for i := range agents {
		if agents[i].name == name {
			return &agents[i]
		}
	}
	return nil
}

// Found reports whether an agent is on this machine: its program is on PATH, or
// one of its directories exists.
func (e *Env) Found(name string) bool {
	a := find(name)
	if a == nil {
		return false
	}
	for _, p := range a.programs {
		if _, err := e.LookPath(p); err == nil {
			return true
		}
	}
	return slices.ContainsFunc(a.dirs(e), func(dir string) bool {
		info, err := os.Stat(dir)
		return err == nil && info.IsDir()
	})
}

// hasHook reports whether a JSON text has an agent's hook of umbra, in any form of
// its command: a program whose name begins with umbra, perhaps in quotes.
func hasHook(agent, plain string) bool {
	for rest := plain; ; {
		before, after, found := strings.Cut(rest, " hook "+agent)
		if !found {
			return false
		}
		rest = after
		word := strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(before, " "), `"`), `\`)
		word = strings.TrimSuffix(word, "'")
		word = word[strings.LastIndexAny(word, `/ "'`)+1:]
		if strings.HasPrefix(word, "umbra") && (after == "" || strings.ContainsRune("\"\\ '", rune(after[0]))) {
			return true
		}
	}
}

// oursHook returns what recognizes an element that has an agent's hook of umbra
// and no hook of others.
func oursHook(agent string) func(plain string) bool {
	return func(plain string) bool {
		var g struct {
			Hooks []json.RawMessage `json:"hooks"`
		}
		return hasHook(agent, plain) && json.Unmarshal([]byte(plain), &g) == nil && len(g.Hooks) <= 1
	}
}

// oursMCP recognizes an MCP entry that Apply made.
func oursMCP(plain string) bool {
	return strings.Contains(plain, `"mcp","--mount","/project=`)
}
