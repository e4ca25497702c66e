package rows

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"umbra/internal/need"
	"umbra/tests/bench/measure"
)

func TestRowsHaveNamesOfTheirOwn(t *testing.T) {
	for _, s := range []measure.Scale{measure.Quick(), measure.Normal(), measure.Full()} {
		seen := make(map[string]bool)
		for _, r := range All(s) {
			if seen[r.Name] {
				t.Errorf("%s scale: two rows are named %s", s.Name, r.Name)
			}
			seen[r.Name] = true
			if r.Title == "" || r.About == "" || r.Run == nil {
				t.Errorf("%s scale: %s is not whole", s.Name, r.Name)
			}
		}
	}
}

// A longer run must not leave out what a shorter one measures.
func TestFullHasEveryRowOfNormal(t *testing.T) {
	full := make(map[string]bool)
	for _, r := range All(measure.Full()) {
		full[r.Name] = true
	}
	for _, r := range All(measure.Normal()) {
		if !full[r.Name] {
			t.Errorf("%s is missing", r.Name)
		}
	}
}

func TestOrder(t *testing.T) {
	keys := []string{"zebra on here", "start on here", "write/files=1k,commits=0 on xfs", "write/files=1k,commits=0 on here", "aardvark on here", "sustained on ext4"}
	slices.SortFunc(keys, Order([]string{"here", "ext4", "xfs"}))
	want := []string{"write/files=1k,commits=0 on here", "write/files=1k,commits=0 on xfs", "sustained on ext4", "start on here", "aardvark on here", "zebra on here"}
	if !slices.Equal(keys, want) {
		t.Errorf("%q", keys)
	}
}

func TestUsedCountsAFileOnce(t *testing.T) {
	dir := t.TempDir()
	need.NoError(t, os.WriteFile(filepath.Join(dir, "a"), make([]byte, 5000), 0o644))
	need.NoError(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
	if got, err := used(dir); err != nil || got.bytes != 5000 || got.blocks < 5000 {
		t.Errorf("%+v, %v", got, err)
	}
}
