package merge3_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"umbra/gitstore/diff/difftest"
	"umbra/gitstore/merge3"
	"umbra/internal/need"
)

// TestSameAsMergeFile compares with `git merge-file -p`: whether it is clean,
// how many conflicts there are, and the text with its markers.
// UMBRA_MERGE_FILE_CASES asks for more than the usual number of cases.
func TestSameAsMergeFile(t *testing.T) {
	t.Parallel()
	n := difftest.Count(t, "UMBRA_MERGE_FILE_CASES", 1500)
	const workers = 2
	for worker := range workers {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			clean := 0
			for seed := worker; seed < n && !t.Failed(); seed += workers {
				if sameAsMergeFile(t, dir, seed) {
					clean++
				}
			}
			if all := n / workers; clean < all/4 || clean > all*3/4 {
				t.Errorf("%d of %d merges are clean: the cases are one-sided", clean, all)
			}
		})
	}
}

func sameAsMergeFile(t *testing.T, dir string, seed int) (clean bool) {
	t.Helper()
	base, ours, theirs := difftest.Texts(difftest.Seeded(seed))
	for file, data := range map[string][]byte{"base": base, "ours": ours, "theirs": theirs} {
		need.NoError(t, os.WriteFile(filepath.Join(dir, file), data, 0o600))
	}
	labels := merge3.Labels{Ours: "our side", Base: "old", Theirs: "their side"}
	args := []string{"merge-file", "-p", "-L", labels.Ours, "-L", labels.Base, "-L", labels.Theirs}
	style := merge3.TwoSided
	if seed%3 == 2 {
		args, style = append(args, "--diff3"), merge3.Diff3
	}
	want, conflicts := difftest.Git(t, dir, nil, append(args, "ours", "base", "theirs")...)
	r, err := merge3.Merge(base, ours, theirs, merge3.Options{})
	need.NoError(t, err)
	if style == merge3.Diff3 && r.Clean && conflicts > 0 {
		return true // see the package comment
	}
	got := r.Render(labels, style)
	if r.Clean != (conflicts == 0) || !bytes.Equal(got, want) {
		t.Errorf("seed %d: clean %v, git's conflicts %d\nbase\n%q\nours\n%q\ntheirs\n%q\ngot\n%s\ngit\n%s",
			seed, r.Clean, conflicts, base, ours, theirs, got, want)
	}
	if style == merge3.TwoSided && len(r.Conflicts) != conflicts {
		t.Errorf("seed %d: %d conflicts, git counts %d", seed, len(r.Conflicts), conflicts)
	}
	if r.Coarse {
		t.Errorf("seed %d: a small merge used up its allowance", seed)
	}
	return r.Clean
}
