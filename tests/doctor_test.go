package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

type finding struct{ Check, Level, About, Detail, Do string }

// examine runs umbra doctor and gives what it found.
func examine(t *testing.T, env []string, args ...string) (status int, hurts bool, list []finding) {
	t.Helper()
	status, out, errOut := harness.Run(t, env, append([]string{"doctor", "--json"}, args...)...)
	var found struct {
		Hurts    bool
		Findings []finding
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v: %d %q %s", err, status, out, errOut)
	}
	for _, f := range found.Findings {
		if f.Level == "hurts" && f.Do == "" {
			t.Errorf("%s hurts, and nothing is said of what to do: %+v", f.Check, f)
		}
	}
	return status, found.Hurts, found.Findings
}

// of gives the worst level of a check.
func of(list []finding, check string) (level string) {
	rank := map[string]int{"": 0, "ok": 1, "note": 2, "hurts": 3}
	for _, f := range list {
		if f.Check == check && rank[f.Level] > rank[level] {
			level = f.Level
		}
	}
	return level
}

// It works beside a running server, without one, and before the first start.
func TestDoctor(t *testing.T) {
	p := newProject(t, map[string]string{"a/b": "x"})
	p.task(t)
	check := func(what string) {
		t.Helper()
		status, hurts, list := examine(t, nil, "--data-dir", p.DataDir)
		if (status != 0) != hurts {
			t.Errorf("%s: status %d, hurts %v", what, status, hurts)
		}
		for _, c := range []string{"git", "data", "room", "clock", "watches", "workspace", "server"} {
			if of(list, c) == "" {
				t.Errorf("%s: nothing is said of %s: %v", what, c, list)
			}
		}
		if hurts {
			t.Errorf("%s: something hurts here: %+v", what, list)
		}
		if left, err := filepath.Glob(filepath.Join(p.dir, ".umbra-*")); err != nil || len(left) > 0 {
			t.Errorf("%s: left over: %v", what, left)
		}
		if left, err := filepath.Glob(filepath.Join(p.DataDir, ".doctor-*")); err != nil || len(left) > 0 {
			t.Errorf("%s: left over: %v", what, left)
		}
	}
	check("beside the server")
	p.Stop()
	check("without a server")

	none := filepath.Join(t.TempDir(), "none")
	if status, _, list := examine(t, nil, "--data-dir", none); status != 0 || of(list, "data") != "note" {
		t.Errorf("before the first start: %d %+v", status, list)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("it made the data directory")
	}
}

func TestDoctorFindsWhatHurts(t *testing.T) {
	p := newProject(t, nil)
	k := p.task(t)
	p.call(t, "PATCH", "/tasks/"+k.ID, map[string]any{"status": "completed"}).want(t, 200)
	need.NoError(t, os.Rename(p.dir, p.dir+"-away"))
	status, _, list := examine(t, nil, "--data-dir", p.DataDir)
	if status != 1 || of(list, "workspace") != "hurts" {
		t.Errorf("a missing folder: %d %+v", status, list)
	}
	need.NoError(t, os.Rename(p.dir+"-away", p.dir))
	p.Stop()
	need.NoError(t, os.Chmod(p.DataDir, 0o755))
	status, _, list = examine(t, nil, "--data-dir", p.DataDir)
	if status != 1 || of(list, "data") != "hurts" || of(list, "workspace") == "hurts" {
		t.Errorf("an open data directory: %d %+v", status, list)
	}
	need.NoError(t, os.Chmod(p.DataDir, 0o700))
	status, _, list = examine(t, []string{"PATH=" + t.TempDir()}, "--data-dir", p.DataDir)
	if status != 1 || of(list, "git") != "hurts" {
		t.Errorf("without git: %d %+v", status, list)
	}
	status, _, list = examine(t, []string{"UMBRA_LIMITS_FREE_BYTES=8000000TiB"}, "--data-dir", p.DataDir)
	if status != 1 || of(list, "room") != "hurts" {
		t.Errorf("below the floor: %d %+v", status, list)
	}
	// For people: what hurts has its advice under it.
	status, out, _ := harness.Run(t, []string{"PATH=" + t.TempDir()}, "doctor", "--data-dir", p.DataDir)
	if status != 1 || !strings.Contains(out, "hurts") || !strings.Contains(out, "→") {
		t.Errorf("%d %s", status, out)
	}
	if status, _, _ := harness.Run(t, nil, "doctor", "x"); status != 2 {
		t.Errorf("wrong use: %d", status)
	}
}

// It needs no token where tokens are on, and no token reaches it.
func TestDoctorIsTheOwners(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	secret := mustToken(t, s.DataDir, "add", "all", "--scope", "write")
	if status, _, list := examine(t, nil, "--data-dir", s.DataDir); of(list, "server") != "ok" {
		t.Errorf("%d %+v", status, list)
	}
	s.Do("POST", "/upkeep/doctor", nil, "Authorization: Bearer "+secret).Expect(403)
	if status, _, errOut := harness.Run(t, nil, "doctor", "--server", s.URL, "--token", secret); status != 1 || !strings.Contains(errOut, "owner_only") {
		t.Errorf("%d %s", status, errOut)
	}
}
