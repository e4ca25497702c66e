package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// tourStep is one command of the README, and what it is said to print.
type tourStep struct {
	line    int
	command string
	output  []string
}

// tour reads the console blocks of a document: a line that begins with "$ " is a
// command, what follows is its output.
func tour(t *testing.T, name string) []tourStep {
	t.Helper()
	raw, err := os.ReadFile(name)
	need.NoError(t, err)
	var steps []tourStep
	inside := false
	for i, line := range strings.Split(string(raw), "\n") {
		switch command, isCommand := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case isCommand:
			steps = append(steps, tourStep{line: i + 1, command: command})
		case len(steps) == 0:
			t.Fatalf("%s:%d: output without a command", name, i+1)
		default:
			last := &steps[len(steps)-1]
			last.output = append(last.output, line)
		}
	}
	return steps
}

// fresh is what is another at each run: ids, times, names of temporary folders.
var fresh = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|n\.[0-9a-f]{64}|\b[0-9a-f]{7,64}\b|\b\d{6,}\b`)

// tourIDs holds what the README says for what this run has.
type tourIDs map[string]string

// here gives a text with this run's ids in place of the README's.
func (m tourIDs) here(text string) string {
	return fresh.ReplaceAllStringFunc(text, func(id string) string {
		if now, known := m[id]; known {
			return now
		}
		return id
	})
}

// compare holds output against what the README says, and learns the ids. A line
// "…" stands for any lines, "…" in a line for any text, and spaces for as many as
// the longest name of a column leaves.
func (m tourIDs) compare(want, got []string) error {
	spaces := regexp.MustCompile(` {2,}`)
	for i, w := range want {
		w = spaces.ReplaceAllString(w, " ")
		if w == "…" {
			if i == len(want)-1 {
				return nil
			}
			return fmt.Errorf("\"…\" must stand at the end")
		}
		if i >= len(got) {
			return fmt.Errorf("it ends before %q", w)
		}
		var ids []string
		pattern := "^"
		for j, part := range strings.Split(w, "…") {
			if j > 0 {
				pattern += ".*"
			}
			rest := part
			for loc := fresh.FindStringIndex(rest); loc != nil; loc = fresh.FindStringIndex(rest) {
				id := rest[loc[0]:loc[1]]
				ids = append(ids, id)
				pattern += regexp.QuoteMeta(rest[:loc[0]]) + "(" + shape(id) + ")"
				rest = rest[loc[1]:]
			}
			pattern += regexp.QuoteMeta(rest)
		}
		found := regexp.MustCompile(pattern + "$").FindStringSubmatch(spaces.ReplaceAllString(got[i], " "))
		if found == nil {
			return fmt.Errorf("it prints %q where the README has %q", got[i], w)
		}
		for j, id := range ids {
			if before, known := m[id]; known && before != found[j+1] {
				return fmt.Errorf("%s is %s here, and was %s before", id, found[j+1], before)
			}
			if !strings.Contains(id, ":") { // a time is no name
				m[id] = found[j+1]
			}
		}
	}
	if len(got) > len(want) {
		return fmt.Errorf("it goes on with %q", got[len(want)])
	}
	return nil
}

// shape is the pattern of what stands in an id's place.
func shape(id string) string {
	switch {
	case strings.Contains(id, ":"):
		return `\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`
	case strings.HasPrefix(id, "n."):
		return `n\.[0-9a-f]{64}`
	case len(id) > 8 && strings.Trim(id, "0123456789") == "":
		return `\d+`
	}
	return fmt.Sprintf("[0-9a-f]{%d}", len(id))
}

// TestReadme follows the README's tour literally, in a new home, and holds what
// is printed against what it says.
func TestReadme(t *testing.T) {
	for _, tool := range []string{"sh", "git", "curl"} {
		need.Tool(t, tool)
	}
	steps := tour(t, "../README.md")
	if len(steps) < 8 {
		t.Fatalf("the tour has %d commands", len(steps))
	}
	s := harness.Start(t, harness.Options{})
	// The README's places are these here.
	app, bin := filepath.Join(t.TempDir(), "app"), t.TempDir()
	need.NoError(t, os.Symlink(harness.Binary(t), filepath.Join(bin, "umbra")))
	address := strings.TrimPrefix(s.URL, "http://")
	there := strings.NewReplacer("127.0.0.1:8080", address, "/tmp/app", app)
	node := strings.TrimPrefix(s.First().URL, "http://") // which the verbs ask, since they have its data directory
	back := strings.NewReplacer(address, "127.0.0.1:8080", node, "127.0.0.1:8080", app, "/tmp/app", os.TempDir()+"/umbra-demo-", "/tmp/umbra-demo-")
	env := append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir(), "UMBRA_DATA_DIR="+s.DataDir, "TZ=UTC", "LC_ALL=C.UTF-8",
		"GIT_CONFIG_GLOBAL=/dev/null", "NO_COLOR=1", "GIT_TERMINAL_PROMPT=0")
	t.Cleanup(func() { // the demo's project, where the tour was cut short
		cmd := exec.Command(filepath.Join(bin, "umbra"), "demo", "--clean")
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("umbra demo --clean: %v\n%s", err, out)
		}
	})
	ids, dir := tourIDs{}, t.TempDir()
	for _, step := range steps {
		cmd := exec.Command("sh", "-c", there.Replace(ids.here(step.command)))
		cmd.Env, cmd.Dir = env, dir
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		need.NoError(t, cmd.Start())
		timer := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		if err != nil {
			t.Fatalf("README.md:%d: %s: %v\n%s", step.line, step.command, err, &out)
		}
		var got []string
		if text := strings.TrimSuffix(back.Replace(out.String()), "\n"); text != "" {
			got = strings.Split(text, "\n")
		}
		if err := ids.compare(step.output, got); err != nil {
			t.Fatalf("README.md:%d: %s: %v\n%s", step.line, step.command, err, &out)
		}
	}
}

// TestReadmeLinks holds that what the README points to is there.
func TestReadmeLinks(t *testing.T) {
	raw, err := os.ReadFile("../README.md")
	need.NoError(t, err)
	for _, m := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(string(raw), -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
			t.Errorf("README.md points to %s: %v", m[1], err)
		}
	}
}
