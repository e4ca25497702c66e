package powercut

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestLayersExt4(t *testing.T) { cutLayers(t, "ext4") }
func TestLayersXFS(t *testing.T)  { cutLayers(t, "xfs") }

// Of each command: files that are recorded, and ignored ones.
const layerRecorded, layerIgnored = 20, 200

// cutLayers cuts the power while what a command did in a layer is applied. Afterwards
// all of it is there, recorded and ignored files alike, or nothing; all of it if the
// command's end was reported.
func cutLayers(t *testing.T, kind string) {
	need.Long(t, "power cuts")
	d := newDisk(t, kind)
	ws := d.path("ws")
	need.NoError(t, os.MkdirAll(filepath.Join(ws, "out"), 0o755))
	need.NoError(t, os.WriteFile(filepath.Join(ws, ".gitignore"), []byte("out/\n*.o\n"), 0o644))
	def := 20
	if os.Getenv("UMBRA_SOAK") != "" {
		def = 200
	}
	results, at := map[string]int{}, 0
	for round := range env("UMBRA_POWER_CUTS", def) {
		s := harness.Start(t, harness.Options{DataDir: d.path("data")})
		if round > 0 {
			now, result := layersFound(t, s, ws, at, round)
			results[result]++
			if t.Failed() {
				t.Fatalf("round %d", round)
			}
			at = now
		}
		// Some commands only replace files, others make their directory again.
		line := fmt.Sprintf("for i in $(seq %d); do echo %d > f$i; done; ", layerRecorded, round+1)
		if round%2 == 1 {
			line += "rm -rf out; mkdir out; "
		}
		line += fmt.Sprintf("for i in $(seq %d); do echo %d > out/x$i; done; echo %d > a.o; echo", layerIgnored, round+1, round+1)
		cmd := harness.Command(t, nil, "exec", "--server", s.URL, "--isolate=require", "--agent=a", "--session=s", "--", "sh", "-c", line)
		cmd.Dir = ws
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		out, err := cmd.StdoutPipe()
		need.NoError(t, err)
		need.NoError(t, cmd.Start())
		if _, err := out.Read(make([]byte, 1)); err != nil { // the command is done
			_ = cmd.Wait()
			if strings.Contains(errOut.String(), "no layer") {
				need.Missing(t, errOut.String())
			}
			t.Fatal(err, errOut.String())
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		wait := time.After(time.Duration(rand.IntN(400)) * time.Millisecond)
		if round%4 == 3 { // with the answer, or some time after it
			if err := <-ended; err != nil {
				t.Fatal(err, errOut.String())
			}
			at = round + 1
			wait = time.After(time.Duration(rand.IntN(30)) * time.Millisecond)
		}
		<-wait
		d.cut()
		_ = cmd.Process.Kill()
		if round%4 != 3 {
			if err := <-ended; err == nil {
				at = round + 1
			}
		}
		s.Kill()
		d.reattach()
	}
	t.Log(results)
}

// layersFound returns which command's files the workspace has: those of at, which were
// reported, or, all of them, those of the next command, round.
func layersFound(t *testing.T, s *harness.Server, ws string, at, round int) (now int, result string) {
	t.Helper()
	made := s.Do("POST", "/tasks", map[string]string{"goal": "g", "workspace": ws}).Expect(201)
	id := made.Text("workspace_id")
	s.Do("POST", "/workspaces/"+id+"/sync", map[string]any{}).Expect(200)
	var list struct{ Layers []struct{ Layer string } }
	s.Do("GET", "/layers", nil).Expect(200).JSON(&list)
	seen := map[string][]string{}
	look := func(name string) {
		text, err := os.ReadFile(filepath.Join(ws, name))
		if err != nil {
			text = []byte("0\n") // of before the first command
		}
		seen[string(text)] = append(seen[string(text)], name)
	}
	for i := 1; i <= layerRecorded; i++ {
		look(fmt.Sprint("f", i))
	}
	for i := 1; i <= layerIgnored; i++ {
		look(fmt.Sprint("out/x", i))
	}
	look("a.o")
	for _, n := range []int{at, round} {
		if len(seen) == 1 && len(seen[fmt.Sprintln(n)]) > 0 {
			result = map[bool]string{true: "applied", false: "not applied"}[n == round]
			now = n
		}
	}
	if result == "" {
		for text, names := range seen {
			t.Errorf("%q have %q", names[:min(3, len(names))], text)
		}
		t.Errorf("command %d: %d versions, %d was reported", round, len(seen), at)
	}
	// A layer that was not applied is listed, unless its directory was not durable.
	for _, l := range list.Layers {
		if result != "not applied" {
			t.Errorf("command %d is applied, and its layer %s is listed", round, l.Layer)
		}
		s.Do("DELETE", "/layers/"+l.Layer, nil)
	}
	out, err := exec.Command("git", "--git-dir", made.Text("git_dir"), "fsck", "--strict", "--no-dangling").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("fsck: %v %s", err, out)
	}
	return now, result
}
