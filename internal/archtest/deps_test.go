package archtest

import (
	"os/exec"
	"strings"
	"testing"

	"umbra/internal/need"
)

// excluded are the modules that the program must not import, also through others,
// each with its reason.
var excluded = map[string]string{
	"github.com/santhosh-tekuri/jsonschema": "its init compiles all metaschemas: half of the processor time of every start",
	"github.com/getkin/kin-openapi":         "it imports that; internal/sdk has a reader of its own",
}

func TestProgramDoesNotImport(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), need.Tool(t, "go"), "list", "-deps", "umbra/cmd/umbra")
	out, err := cmd.Output()
	need.NoError(t, err)
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("%d packages", len(packages))
	}
	for _, p := range packages {
		for module, why := range excluded {
			if in(p, module) {
				t.Errorf("the program imports %s: %s; `go mod why -m %s`", p, why, module)
			}
		}
	}
}
