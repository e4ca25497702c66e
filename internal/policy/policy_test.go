package policy

import (
	"testing"

	"umbra/gitstore/message"
)

func TestJudge(t *testing.T) {
	r, err := New(Settings{Protected: []string{"/.github/**", "*.lock", "secret/"}, MaxFileBytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	none := Task{}
	allowed := TaskOf([]message.Trailer{{Key: KeyAllow, Value: "/go.lock"}})
	only := TaskOf([]message.Trailer{{Key: KeyOnly, Value: "/src/**"}, {Key: KeyOnly, Value: "*.md"}})
	for _, x := range []struct {
		task Task
		path string
		size int64
		rule string
	}{
		{none, "a", 0, ""}, {none, ".github/workflows/x", 0, "protected"}, {none, "d/.github/x", 0, ""}, {none, "d/x.lock", 0, "protected"},
		{none, "secret/x/y", 0, "protected"}, {none, "a", 11, "max_file_bytes"}, {none, "a", 10, ""},
		{allowed, "go.lock", 0, ""}, {allowed, "d/go.lock", 0, "protected"},
		{only, "src/a/b", 0, ""}, {only, "d/x.md", 0, ""}, {only, "a", 0, "only"}, {only, "src/a.lock", 0, "protected"},
	} {
		got := ""
		if x := r.Judge(x.task, x.path, x.size); x != nil {
			got = x.Rule
		}
		if got != x.rule {
			t.Errorf("%s (%d): %q, want %q", x.path, x.size, got, x.rule)
		}
	}
	var off *Rules
	if off.Judge(none, "x.lock", 1<<40) != nil || !off.None(none) || off.None(only) {
		t.Error("no rules refuse")
	}
	for _, bad := range []string{"", " ", "!x", "# x", "[a", "a/[", "x\ny"} {
		if Valid(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
