package corpus

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/need"
)

func TestSequencesRepeatAndClientsStayApart(t *testing.T) {
	seen := make(map[string]int)
	for client := range 4 {
		a, b := NewSequence(100, client, 4, 7), NewSequence(100, client, 4, 7)
		for range 50 {
			x, y := a.Next(), b.Next()
			if x.Path != y.Path || !bytes.Equal(x.Data, y.Data) {
				t.Fatal("two sequences of one seed differ")
			}
			if who, ok := seen[x.Path]; ok && who != client {
				t.Fatalf("%s belongs to clients %d and %d", x.Path, who, client)
			}
			seen[x.Path] = client
		}
	}
}

func TestAVersionIsOneLine(t *testing.T) {
	for i := range 200 {
		old, edited := bytes.Split(Content(i, 0), []byte("\n")), bytes.Split(Content(i, 5_000_000_000+uint64(i)), []byte("\n"))
		if len(old) != len(edited) {
			t.Fatalf("file %d: %d lines became %d", i, len(old), len(edited))
		}
		differ := 0
		for n := range old {
			if !bytes.Equal(old[n], edited[n]) {
				differ++
			}
		}
		if differ != 1 {
			t.Fatalf("file %d: %d lines differ", i, differ)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	need.NoError(t, Write(t.Context(), dir, 123))
	for i := range 123 {
		got, err := os.ReadFile(filepath.Join(dir, Path(i)))
		if err != nil || !bytes.Equal(got, Content(i, 0)) {
			t.Fatalf("file %d: %v", i, err)
		}
	}
}
