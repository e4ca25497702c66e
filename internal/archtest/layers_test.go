package archtest

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

// layersFile lists, for each package, the packages of ours that it may import,
// one package a line: "internal/room: internal/errs". Tests are not held to it.
const layersFile = "layers.txt"

// TestImportsAreListed holds every import between our packages to the list. A new
// one is a line that somebody reviews; one that is no longer needed leaves it.
func TestImportsAreListed(t *testing.T) {
	listed := readLayers(t)
	have := map[string][]string{}
	for _, s := range sources(t) {
		if s.test || in(s.dir, "tests") {
			continue
		}
		if _, ok := have[s.dir]; !ok {
			have[s.dir] = nil
		}
		for _, imp := range s.imports {
			if to, ours := strings.CutPrefix(imp, "umbra/"); ours && !slices.Contains(have[s.dir], to) {
				have[s.dir] = append(have[s.dir], to)
			}
		}
	}
	for dir, imports := range have {
		slices.Sort(imports)
		allowed, ok := listed[dir]
		if !ok {
			t.Errorf("%s has no line in %s; it would be:\n%s: %s", dir, layersFile, dir, strings.Join(imports, " "))
			continue
		}
		for _, to := range imports {
			if !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s, which its line in %s does not have", dir, to, layersFile)
			}
		}
		for _, to := range allowed {
			if !slices.Contains(imports, to) {
				t.Errorf("%s no longer imports %s: its line in %s shrinks", dir, to, layersFile)
			}
		}
	}
	for dir := range listed {
		if _, ok := have[dir]; !ok {
			t.Errorf("%s is in %s and is no package", dir, layersFile)
		}
	}
}

func readLayers(t *testing.T) map[string][]string {
	t.Helper()
	f, err := os.Open(layersFile)
	need.NoError(t, err)
	defer f.Close()
	out := map[string][]string{}
	last := ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text := lines.Text()
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		dir, imports, ok := strings.Cut(text, ":")
		if !ok || dir <= last {
			t.Fatalf("%s: %q is no line, or out of order", layersFile, text)
		}
		last = dir
		out[dir] = strings.Fields(imports)
		if !slices.IsSorted(out[dir]) {
			t.Errorf("%s: the imports of %s are not sorted", layersFile, dir)
		}
	}
	need.NoError(t, lines.Err())
	return out
}
