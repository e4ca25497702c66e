package ignore_test

import (
	"fmt"
	"strings"
	"testing"

	"umbra/internal/ignore"
	"umbra/internal/need"
)

// BenchmarkMatch judges one file that no rule matches, against 120 rules of the
// usual kinds.
func BenchmarkMatch(b *testing.B) {
	var rules strings.Builder
	for i := range 30 {
		fmt.Fprintf(&rules, "*.ext%d\nname%d\n/build%d/\n**/out%d/*.tmp\n", i, i, i, i)
	}
	root, err := ignore.NewRoot(ignore.Options{ReadFile: files{}.ReadFile, InfoExclude: []byte(rules.String())})
	need.NoError(b, err)
	d, err := root.Child("src")
	need.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if d.Match("main.go", false).Ignored() {
			b.Fatal("ignored")
		}
	}
}
