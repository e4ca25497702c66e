package gitstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/packset"
	"umbra/gitstore/storedir"
	"umbra/internal/need"
)

func diskBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.Walk(filepath.Join(dir, storedir.Repo), func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return err
	})
	need.NoError(t, err)
	return n
}

// TestMaintenanceKeepsTheRepositoryCompact makes many small edits, each
// published by itself, and looks at what they cost on disk in the end.
func TestMaintenanceKeepsTheRepositoryCompact(t *testing.T) {
	dir := testDir(t)
	now := time.Unix(1_700_000_000, 0)
	s := openAt(t, dir, Options{Foreground: true, Now: func() time.Time { now = now.Add(time.Second); return now }, MergeGrace: time.Second})
	files := map[string]string{}
	var lines []string
	for i := range 150 {
		lines = append(lines, fmt.Sprintf("line %d of a file that has a usual length, with %x in it", i, i*i*7919))
	}
	for i := range 1000 {
		files[fmt.Sprintf("src/pkg%d/file%d.go", i%40, i)] = strings.Join(lines, "\n")
	}
	baselineOf(t, s, files)
	need.NoError(t, s.Publish(t.Context()))
	before := diskBytes(t, dir)
	const edits = 1200
	for i := range edits {
		n := i * 31 % 1000
		lines[i%len(lines)] = fmt.Sprintf("edited for the %dth time", i)
		mustPut(t, s, "", fmt.Sprintf("src/pkg%d/file%d.go", n%40, n%5), strings.Join(lines, "\n"))
		if i%10 == 9 {
			need.NoError(t, s.Publish(t.Context()))
			need.NoError(t, s.Maintain(t.Context()))
			if n := len(s.r.Packs.InUse()); n > 4*mergeWidth {
				t.Fatalf("%d packs after %d publications", n, i/10)
			}
		}
	}
	now = now.Add(time.Hour)
	need.NoError(t, s.Maintain(t.Context()))
	per := (diskBytes(t, dir) - before) / edits
	t.Logf("%d bytes on disk for an edit", per)
	if per > 1100 {
		t.Errorf("%d bytes on disk for an edit", per)
	}
	fsck(t, dir)
	if rep, err := s.Verify(t.Context(), nil); err != nil || len(rep.Problems) > 0 {
		t.Fatal(rep.Problems, err)
	}
	closeStore(t, s)
}

// TestPlainPacksAreCompressed makes fewer packs than a merge takes, of objects that are
// only stored: the next run compresses them, and the one after it has nothing to do.
func TestPlainPacksAreCompressed(t *testing.T) {
	dir := testDir(t)
	now := time.Unix(1_700_000_000, 0)
	s := openAt(t, dir, Options{Foreground: true, Now: func() time.Time { return now }, MergeGrace: time.Second})
	baselineOf(t, s, map[string]string{"f": "x"})
	for i := range 100 {
		mustPut(t, s, "", fmt.Sprintf("file%d", i), strings.Repeat(fmt.Sprintf("a line of file %d\n", i), 300))
	}
	need.NoError(t, s.Publish(t.Context()))
	stored := diskBytes(t, dir)
	for range 2 {
		maintain(t, s)
		now = now.Add(time.Hour)
	}
	if left := diskBytes(t, dir); left > stored/3 {
		t.Errorf("%d bytes of %d are left", left, stored)
	}
	packs := s.r.Packs.InUse()
	defer packset.ReleaseAll(packs)
	if again := packset.ToMerge(packs, mergeWidth); again != nil {
		t.Errorf("%d packs are merged once more", len(again))
	}
	fsck(t, dir)
	closeStore(t, s)
}
