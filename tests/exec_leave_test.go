package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
)

// TestExecClientLeaves kills umbra exec at some time after its command has ended, while
// the layer is applied: all of it is there then, or nothing and the layer, which can be
// applied. What the command had left running has ended.
func TestExecClientLeaves(t *testing.T) {
	p := newProject(t, map[string]string{"f0": "0\n", ".gitignore": "out/\n", "out/x0": "0\n"})
	results := map[string]int{}
	for round := 1; round <= 12; round++ {
		dir := t.TempDir()
		done, pid := filepath.Join(dir, "done"), filepath.Join(dir, "pid")
		if out, err := exec.Command("mkfifo", done).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		line := fmt.Sprintf("for i in $(seq 0 149); do echo %[1]d > f$i; echo %[1]d > out/x$i; done; sleep 600 & echo $! > %s; : > %s", round, pid, done)
		cmd := p.execCmd(t, "--isolate=require", "--agent=a", "--session=s", "--", "sh", "-c", line)
		need.NoError(t, cmd.Start())
		if _, err := os.ReadFile(done); err != nil {
			t.Fatal(err)
		}
		timer := time.After(time.Duration(round*round) * 5 * time.Millisecond)
		<-timer
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		raw, err := os.ReadFile(pid)
		need.NoError(t, err)
		endsSoon(t, string(raw))
		var list struct {
			Layers []struct {
				Layer   string
				Running bool
			}
		}
		// An apply that runs has the layer until it is done.
		state := func() string {
			p.call(t, "GET", "/layers", nil).want(t, 200).into(t, &list)
			seen := map[string]bool{}
			for i := range 150 {
				for _, name := range []string{fmt.Sprint("f", i), fmt.Sprint("out/x", i)} {
					text, _ := os.ReadFile(filepath.Join(p.dir, name))
					seen[string(text)] = true
				}
			}
			switch {
			case len(list.Layers) == 0 && len(seen) == 1 && seen[fmt.Sprintln(round)]:
				return "applied"
			case len(list.Layers) == 1 && !seen[fmt.Sprintln(round)]:
				return "left"
			}
			return fmt.Sprintf("%d layers, %v", len(list.Layers), seen)
		}
		got := ""
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			if got = state(); got == "applied" {
				break
			}
			if got == "left" {
				if res := p.post(t, "/layers/"+list.Layers[0].Layer+"/apply", map[string]any{}); res.Status == 200 {
					if now := state(); now != "applied" {
						t.Fatalf("round %d: applied later: %s", round, now)
					}
					break
				}
			}
		}
		results[got]++
		if got != "applied" && got != "left" {
			t.Fatalf("round %d: %s", round, got)
		}
	}
	t.Log(results)
}

// endsSoon waits until a process, which is a sleep, has ended.
func endsSoon(t *testing.T, pid string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		if text, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/cmdline"); err != nil || !strings.HasPrefix(string(text), "sleep") {
			return
		}
		if time.Now().After(end) {
			t.Fatal("what the command left running still runs")
		}
	}
}

// TestExecClientKilledAtOnce: the server ends what a command left running also if the
// client is killed before the server sees that it has begun.
func TestExecClientKilledAtOnce(t *testing.T) {
	p := newProject(t, map[string]string{"f": "0\n"})
	pid := filepath.Join(t.TempDir(), "pid")
	cmd := p.execCmd(t, "--isolate=require", "--agent=a", "--session=s", "--", "sh", "-c", "setsid sleep 600 & echo $! > "+pid+"; kill -KILL $PPID")
	if err := cmd.Run(); err == nil {
		t.Fatal("the client was not killed")
	}
	raw, err := os.ReadFile(pid)
	need.NoError(t, err)
	endsSoon(t, string(raw))
}
