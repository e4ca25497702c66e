package cli

import (
	"strings"
	"testing"
)

func TestGitEnvironment(t *testing.T) {
	got := GitEnvironment([]string{"PATH=/bin", "GIT_DIR=/elsewhere", "GIT_WORK_TREE=/x", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_PARAMETERS='a'",
		"GIT_OBJECT_DIRECTORY=/y", "GIT_PAGER=most", "GIT_AUTHOR_NAME=me", "GIT_EXTERNAL_DIFF=evil", "GIT_INDEX_FILE=z"}, "/repo.git")
	text := strings.Join(got, "\n")
	for _, want := range []string{"PATH=/bin", "GIT_PAGER=most", "GIT_AUTHOR_NAME=me", "GIT_DIR=/repo.git", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, bad := range []string{"elsewhere", "WORK_TREE", "CONFIG_COUNT", "PARAMETERS", "OBJECT_DIRECTORY", "EXTERNAL_DIFF", "INDEX_FILE"} {
		if strings.Contains(text, bad) {
			t.Errorf("%s is still there", bad)
		}
	}
}
