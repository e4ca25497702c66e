package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

// TestMutants runs the scenarios against programs that leave a part of the protocol
// out: one that is not caught is a part that no test holds.
func TestMutants(t *testing.T) {
	need.Long(t, "it starts PostgreSQL for each mutant")
	for _, m := range Mutants {
		if !slices.ContainsFunc(scenarios, func(s scenario) bool { return slices.Contains(s.mutants, m) }) {
			t.Errorf("no scenario is there for %s", m)
		}
	}
	program := filepath.Join(t.TempDir(), "mutants")
	if out, err := exec.Command("go", "test", "-c", "-tags", "mutants", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range scenarios {
		for _, m := range s.mutants {
			t.Run(m, func(t *testing.T) {
				run := "^TestScenarios$/^" + strings.ReplaceAll(s.name, " ", "_") + "$"
				cmd := exec.Command(program, "-test.run", run, "-test.v")
				cmd.Env = append(os.Environ(), "UMBRA_MUTANT="+m)
				out, err := cmd.CombinedOutput()
				if err == nil {
					t.Errorf("it passes %q", s.name)
				} else if !strings.Contains(string(out), "--- FAIL: TestScenarios/") {
					t.Errorf("it does not come to %q:\n%s", s.name, out)
				}
			})
		}
	}
}
