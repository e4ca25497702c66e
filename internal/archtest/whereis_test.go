package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"umbra/internal/need"
)

// What docs/ARCHITECTURE.md says under "Where is" is there: each path exists, and each
// name is in one of the row's files, or in those of its directories.
func TestWhereIs(t *testing.T) {
	const top = "../../"
	raw, err := os.ReadFile(top + "docs/ARCHITECTURE.md")
	need.NoError(t, err)
	_, text, _ := strings.Cut(string(raw), "\n## Where is\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rows := 0
	for row := range strings.Lines(text) {
		cells := strings.Split(row, " | ")
		if !strings.HasPrefix(row, "| ") || len(cells) != 2 {
			continue
		}
		rows++
		var code strings.Builder
		var names []string
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			at := m[1]
			if !strings.Contains(at, "/") {
				names = append(names, at)
				continue
			}
			files := []string{top + at}
			if info, err := os.Stat(top + at); err != nil {
				t.Errorf("%q: %v", cells[0], err)
				continue
			} else if info.IsDir() {
				if files, err = filepath.Glob(top + at + "/*.go"); err != nil || len(files) == 0 {
					t.Errorf("%q: %s has no files: %v", cells[0], at, err)
				}
			}
			for _, f := range files {
				data, err := os.ReadFile(f)
				need.NoError(t, err)
				code.Write(data)
			}
		}
		for _, name := range names {
			word := name[strings.LastIndex(name, ".")+1:]
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).MatchString(code.String()) {
				t.Errorf("%q: %s is in none of its files", cells[0], name)
			}
		}
	}
	if rows < 12 {
		t.Errorf("%d rows", rows)
	}
}
