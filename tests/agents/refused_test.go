package agents

import (
	"sync"
	"testing"
	"time"
)

// TestCodexRefusesAShell: a shell that Codex does not run ends its call, though
// Codex has no event for that. Else all that others change until the turn's end
// would be its.
func TestCodexRefusesAShell(t *testing.T) {
	s := newScene(t, map[string]string{"base.txt": "old\n", "person.txt": "old\n"}, "codex")
	run := func(command string) step {
		return step{calls: []toolCall{{name: "exec_command", args: map[string]any{"cmd": command}}}}
	}
	var m *model
	var person sync.Once
	m = newModel(t, map[string]map[string][]step{"codex": {"main": {
		run("rm -rf base.txt"),
		run("echo new > shell.txt"),
		run("rm -f base.txt"),
		patch("*** Add File: patch.txt\n+new\n"),
		run("true"), run("true"), run("true"), run("true"),
	}}}, func(_ string, at int, _ *step) {
		if at == 7 { // no shell is open
			person.Do(func() { s.put(t, "person.txt", "new\n") })
		}
	})
	s.settings(t, m)
	s.wire(t, "codex")
	if status, out := s.start(t, m, "codex", 4*time.Minute); status != 0 {
		t.Fatalf("status %d:\n%s", status, out)
	}
	s.calls(t)
	for _, e := range s.log(t) {
		if e.Path == "person.txt" && (e.Source != "external" || e.TaskID != nil) {
			t.Errorf("a person's change is of source %s (%s)", e.Source, e.certainty())
		}
	}
	if files := s.files(t); files["base.txt"] != "old\n" || files["shell.txt"] != "new\n" || files["patch.txt"] != "new\n" {
		t.Errorf("Codex was to refuse two shells: %s", describe(files))
	}
}
