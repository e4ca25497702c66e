package server

import (
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/datadir"
	"umbra/internal/need"
)

// A node's former life is kept in place: it takes no room on a disk that is full.
func TestFormerLife(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, datadir.NodeFile)
	for _, want := range []formerLife{{"c", 1 << 62}, {"a-longer-name", 7}, {"c", 8}} {
		need.NoError(t, writeFormerLife(dir, want))
		if got, err := readFormerLife(dir); got != want || err != nil {
			t.Errorf("%+v, %v, not %+v", got, err, want)
		}
		if st, err := os.Stat(name); err != nil || st.Size() != formerLifeSize {
			t.Errorf("%v, %v", st, err)
		}
	}
	if all, err := os.ReadDir(dir); len(all) != 1 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
	// What a program of before has left, and a power failure.
	for text, want := range map[string]formerLife{`{"cluster":"c","life":"9"}`: {"c", 9}, string(make([]byte, 64)): {}, "": {}} {
		need.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		if got, err := readFormerLife(dir); got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	need.NoError(t, os.WriteFile(name, []byte("{"), 0o600))
	if _, err := readFormerLife(dir); err == nil {
		t.Error("half of it is read")
	}
}
