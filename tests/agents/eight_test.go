package agents

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
)

// TestEightAgents runs four agents twice each, at once in one directory: each writes
// files of its own by its tool and by shells that overlap as they come. No change is given
// to another, what is shared has its writer among the claimants, and to undo one agent's
// session leaves all the others' files. UMBRA_AGENT_STEPS says how many files each writes in
// either way: 40.
func TestEightAgents(t *testing.T) {
	need.Soak(t, "eight agents at once")
	steps := 40
	if text := os.Getenv("UMBRA_AGENT_STEPS"); text != "" {
		var err error
		if steps, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	agents := []string{"codex", "opencode", "gemini-cli", "qwen-code"}
	s := newScene(t, map[string]string{"base.txt": "old\n"}, agents...)
	scripts := map[string]map[string][]step{}
	for _, agent := range agents {
		scripts[agent] = map[string][]step{}
		for _, name := range []string{"main", "second"} {
			var list []step
			for n := range steps {
				mine := fmt.Sprintf("%s-%s-%d", agent, name, n)
				command := fmt.Sprintf("echo 1 > %[1]s.sh; sleep 0.1; sed -i s/1/2/ %[1]s.sh; mv %[1]s.sh %[1]s.shell", mine)
				switch agent {
				case "codex":
					list = append(list, step{calls: []toolCall{{name: "exec_command", args: map[string]any{"cmd": command}}}},
						patch("*** Add File: "+mine+".tool\n+x\n"))
				case "opencode":
					list = append(list, shell("bash", "command", command), tool("write", map[string]any{"filePath": s.dir + "/" + mine + ".tool", "content": "x\n"}))
				default:
					list = append(list, shell("run_shell_command", "command", command), tool("write_file", map[string]any{"file_path": s.dir + "/" + mine + ".tool", "content": "x\n"}))
				}
			}
			scripts[agent][name] = list
		}
	}
	m := newModel(t, scripts, nil)
	s.settings(t, m)
	s.wire(t, agents...)
	var group sync.WaitGroup
	for _, agent := range agents {
		for _, name := range []string{"main", "second"} {
			group.Go(func() {
				limit := 4*time.Minute + time.Duration(steps)*10*time.Second
				if status, out := s.startScript(t, m, agent, name, limit); status != 0 {
					t.Errorf("%s %s: status %d\n%s", agent, name, status, out)
				}
			})
		}
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	after := s.files(t)
	calls := s.calls(t)
	// A tool's declared file says whose session is whose.
	tasks, writers := map[string]string{}, map[string]string{}
	writer := func(path string) string {
		parts := strings.Split(path, "-")
		return strings.Join(parts[:max(0, len(parts)-1)], "-")
	}
	log := s.log(t)
	for _, e := range log {
		if e.Source == "call" && strings.HasSuffix(e.Path, ".tool") {
			tasks[*e.TaskID], writers[writer(e.Path)] = writer(e.Path), *e.TaskID
		}
	}
	if len(tasks) != 8 || len(writers) != 8 {
		t.Fatalf("8 sessions were to be distinct: %v, %v", tasks, writers)
	}
	shared, own := 0, 0
	for _, e := range log {
		if e.Source == "baseline" {
			continue
		}
		for _, p := range e.paths() {
			who := writer(p)
			switch {
			case e.Source == "call" && e.TaskID != nil && tasks[*e.TaskID] == who:
				own++
			case e.Source == "shared":
				shared++
				claimed := false
				for _, id := range e.Claimants {
					claimed = claimed || tasks[calls[id].TaskID] == who
				}
				if !claimed || strings.HasSuffix(p, ".tool") {
					t.Errorf("%s is shared by %v", p, e.Claimants)
				}
			default:
				t.Errorf("%s is of source %s, task %v, certainty %s", p, e.Source, e.TaskID, e.certainty())
			}
		}
	}
	open := 0
	for _, c := range calls {
		if c.Status == "open" || c.Status == "lost" {
			open++
		}
	}
	t.Logf("%d calls, %d open; %d paths are one agent's, %d shared", len(calls), open, own, shared)
	if open > 0 {
		t.Errorf("%d calls are open", open)
	}
	// One session is undone: its tools' files go, and nothing of the others.
	for who, task := range writers {
		status, out := s.try(t, "umbra", "revert", "--task", task)
		if status != 0 && status != 1 {
			t.Errorf("revert: status %d\n%s", status, out)
		}
		want := maps.Clone(after)
		now := s.files(t)
		for p := range want {
			if writer(p) == who {
				if _, left := now[p]; left && strings.HasSuffix(p, ".tool") {
					t.Errorf("%s is still there\n%s", p, out)
				}
				delete(want, p)
				delete(now, p)
			}
		}
		if !maps.Equal(now, want) {
			t.Errorf("undo of %s changed others' files", who)
		}
		break
	}
}
