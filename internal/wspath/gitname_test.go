package wspath_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/internal/wspath"
)

func TestIsGitName(t *testing.T) {
	for name, want := range map[string]bool{
		".git": true, ".GIT": true, ".Git": true, "git~1": true, "GIT~1": true, ".git.": true, ".git ": true,
		".git . .": true, ".git::$INDEX_ALLOCATION": true, ".git:x": true, `.git\x`: true, `a\.git`: true, `a\b\git~1 `: true,
		".g\u200cit": true, "\ufeff.git": true, ".git\u206f": true, ".GI\u202aT": true, ".git\xff": true,
		"git": false, ".gi": false, ".gitx": false, "git~2": false, "git~10": false, ".git~1": false, " .git": false,
		".gitignore": false, ".gitmodules": false, "..git": false, ".g\u200bit": false, ".gi\xfft": false, "": false, ".gıt": false,
	} {
		if got := wspath.IsGitName(name); got != want {
			t.Errorf("IsGitName(%q) = %v", name, got)
		}
	}
}

// Real git's fsck is the oracle for both kinds of names.
func TestNamesAgainstFsck(t *testing.T) {
	need.Tool(t, "git")
	r := rand.New(rand.NewPCG(11, 7))
	pieces := []string{".git", ".GIT", "git~1", "GiT~1", ".gitmodules", "gitmod~1", "GITMOD~4", "gitmod~5", "gi7eba~1", "gi7eb~10", "GI7~1234", "g~1",
		"~1", ".", " ", ":", "\\", "a", "g", "i", "t", "modules", "\u200c", "\u206f", "\ufeff", "\u200b", "\xff", "\xe2\x80", "\ufffe", "$INDEX", "~", "1", "0", "gi7eba"}
	seen := map[string]bool{"": true, ".": true, "..": true}
	var names []string
	for _, p := range pieces {
		if !seen[p] {
			seen[p] = true
			names = append(names, p)
		}
	}
	for len(names) < 4000 {
		var b strings.Builder
		for range 1 + r.IntN(4) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		if name := b.String(); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}

	repo := t.TempDir()
	git := func(stdin string, args ...string) (string, string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = repo
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		cmd.Stdin = strings.NewReader(stdin)
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		err := cmd.Run()
		if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !(failed && args[0] == "fsck") {
			t.Fatalf("git %v: %v\n%s", args, err, stderr.String())
		}
		return out.String(), stderr.String()
	}
	git("", "init", "-q", "--bare")
	blob, _ := git("target", "hash-object", "-w", "--stdin")
	raw := make([]byte, 20)
	if _, err := fmt.Sscanf(strings.TrimSpace(blob), "%x", &raw); err != nil {
		t.Fatal(err)
	}
	var paths strings.Builder
	for i, name := range names {
		file := filepath.Join(repo, fmt.Sprintf("tree%d", i))
		need.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "120000 %s\x00%s", name, raw), 0o600))
		fmt.Fprintln(&paths, file)
	}
	out, _ := git(paths.String(), "hash-object", "--literally", "--no-filters", "-w", "-t", "tree", "--stdin-paths")
	ids := strings.Fields(out)
	if len(ids) != len(names) {
		t.Fatalf("%d trees for %d names", len(ids), len(names))
	}
	_, report := git("", "fsck", "--full", "--no-dangling")
	found := map[string]bool{}
	for line := range strings.Lines(report) {
		for i, part := range strings.Fields(line) {
			if id := strings.TrimSuffix(part, ":"); len(id) == 40 && i > 0 {
				found[id+" "+strings.TrimSuffix(strings.Fields(line)[i+1], ":")] = true
			}
		}
	}
	git1, modules := 0, 0
	for i, name := range names {
		if want := found[ids[i]+" hasDotgit"]; wspath.IsGitName(name) != want {
			t.Errorf("IsGitName(%q) = %v, git says %v", name, !want, want)
		} else if want {
			git1++
		}
		if want := found[ids[i]+" gitmodulesSymlink"]; wspath.IsModulesName(name) != want {
			t.Errorf("IsModulesName(%q) = %v, git says %v", name, !want, want)
		} else if want {
			modules++
		}
	}
	if git1 < 50 || modules < 50 {
		t.Errorf("the names are too tame: %d and %d of %d", git1, modules, len(names))
	}
}
