package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestCommandsOfTheDocuments: each umbra command in the documents, in a block or in a
// line of text, names verbs and flags that the program has.
func TestCommandsOfTheDocuments(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*.service", "examples/*.md", "clients/*/README.md", "clients/action/*", "clients/claude-code/*/*.md", "clients/claude-code/*/*/*.md", "deploy/*/*", "Containerfile", ".github/*/*"} {
		list, err := filepath.Glob(filepath.Join("..", pattern))
		need.NoError(t, err)
		files = append(files, list...)
	}
	helps := map[string]string{}
	help := func(verb string) string {
		if _, ok := helps[verb]; !ok {
			status, out, _ := harness.Run(t, nil, append(strings.Fields(verb), "--help")...)
			if status != 0 || !strings.Contains(out, "\nUsage:\n  umbra "+verb+" ") { // an unknown verb has the program's
				out = ""
			}
			helps[verb] = out
		}
		return helps[verb]
	}
	n := 0
	span := regexp.MustCompile("`([^`\n]+)`")
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil || strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "FORMAT.md") {
			continue // a directory, or other texts that begin with the name
		}
		text := strings.ReplaceAll(string(raw), "\\\n", " ")
		block := !strings.HasSuffix(name, ".md")
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "```") {
				block = !block
				continue
			}
			commands := []string{line}
			if !block && !strings.HasPrefix(line, "    ") {
				commands = nil
				for _, m := range span.FindAllStringSubmatch(line, -1) {
					commands = append(commands, m[1])
				}
			}
			for _, command := range commands {
				for _, args := range umbraCommands(command) {
					n++
					verb := args[0]
					if help(verb) == "" {
						t.Errorf("%s:%d: %q: there is no verb %s", name, i+1, command, verb)
						continue
					}
					if len(args) > 1 && strings.Contains(help(verb), "Available Commands:") && help(verb+" "+args[1]) != "" {
						verb += " " + args[1]
					}
					for _, arg := range args[1:] {
						if arg == "--" {
							break
						}
						flag, _, _ := strings.Cut(arg, "=")
						if strings.HasPrefix(flag, "--") && !regexp.MustCompile(`(^|\s)`+regexp.QuoteMeta(flag)+`\b`).MatchString(help(verb)) {
							t.Errorf("%s:%d: %q: umbra %s has no flag %s", name, i+1, command, verb, flag)
						}
					}
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d commands were found", n)
	}
	t.Logf("%d commands", n)
}

// umbraCommands returns the arguments of each call of umbra in a command line.
func umbraCommands(line string) (calls [][]string) {
	line, _, _ = strings.Cut(line, "  #")
	line = strings.ReplaceAll(line, "sudo -u umbra ", "")
	for _, part := range regexp.MustCompile(`[;&|()"']+|\$ `).Split(line, -1) {
		words := strings.Fields(part)
		for len(words) > 0 && (strings.Contains(words[0], "=")) {
			words = words[1:]
		}
		if len(words) > 1 && filepath.Base(words[0]) == "umbra" && regexp.MustCompile(`^[a-z]+$`).MatchString(words[1]) {
			calls = append(calls, words[1:])
		}
	}
	return calls
}
