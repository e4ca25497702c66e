package licenses

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

// TestTextsAreThoseOfTheProgram holds the list against what is linked and bundled.
func TestTextsAreThoseOfTheProgram(t *testing.T) {
	have := map[Component]bool{}
	for _, l := range All() {
		if len(l.Components) == 0 || len(strings.TrimSpace(l.Text)) < 20 {
			t.Errorf("%v has no text: %q", l.Components, l.Text)
		}
		for _, c := range l.Components {
			have[c] = true
		}
	}
	want := map[Component]bool{{Name: "umbra"}: true, {Name: "std"}: true}
	// The test's result is not that of another go.mod.
	for _, f := range []string{"../../go.mod", "../../go.sum"} {
		if _, err := os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	goTool := need.Tool(t, "go")
	for _, system := range []string{"linux", "darwin"} {
		cmd := exec.Command(goTool, "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "umbra/cmd/umbra")
		cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		need.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				want[Component{name, version}] = true
			}
		}
	}
	for _, lockFile := range []string{"../../httpapi/ui/web/package-lock.json", "../sandbox/luau/npm/package-lock.json"} {
		raw, err := os.ReadFile(lockFile)
		need.NoError(t, err)
		var lock struct {
			Packages map[string]struct {
				Version string
				Dev     bool
			}
		}
		need.NoError(t, json.Unmarshal(raw, &lock))
		for place, p := range lock.Packages {
			if place == "" {
				continue
			}
			name := place[strings.LastIndex(place, "node_modules/")+len("node_modules/"):]
			if !p.Dev && !strings.HasPrefix(name, "@types/") {
				want[Component{name, p.Version}] = true
			}
		}
	}
	for c := range want {
		if !have[c] {
			t.Errorf("%s %s is in the program and not in texts.txt: run make licenses", c.Name, c.Version)
		}
	}
	for c := range have {
		if !want[c] {
			t.Errorf("%s %s is in texts.txt and not in the program: run make licenses", c.Name, c.Version)
		}
	}
}

func TestOf(t *testing.T) {
	list := Of("github.com/spf13/cobra")
	if len(list) != 1 || !strings.Contains(list[0].Text, "Apache License") {
		t.Errorf("%d texts", len(list))
	}
	if !slices.ContainsFunc(Of("luau-web"), func(l License) bool { return strings.Contains(l.Text, "Roblox Corporation") }) {
		t.Error("Luau's notice is missing")
	}
	if len(Of("nothing")) != 0 {
		t.Error("nothing has a license")
	}
}
