package script

import (
	"errors"
	"testing"
)

func TestCheckName(t *testing.T) {
	for name, want := range map[string]string{
		"":               "filename cannot be empty",
		"a\x00":          "filename cannot contain null bytes",
		"/a":             "filename must be relative, got absolute path",
		"/../a":          "filename must be relative, got absolute path",
		"..":             "filename cannot contain '..' path traversal",
		"a/../b":         "filename cannot contain '..' path traversal",
		"a/..":           "filename cannot contain '..' path traversal",
		"../\x00":        "filename cannot contain null bytes",
		"a..b":           "",
		"...":            "",
		"..a/b":          "",
		"data/x.csv":     "",
		"./a//b":         "",
		"a\\..\\b":       "",
		"with space\n\t": "",
		".":              "cannot save the file: The path is empty or names the workspace's root.",
	} {
		p, err := checkName(name)
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		if r, ok := errors.AsType[*Refused](err); !ok || r.Message != want || p != "" {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
