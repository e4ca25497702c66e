package gitstore

import (
	"fmt"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/errs"
)

// A blob that was found to be part of a collision is never committed.
func TestCommitRefusesCollision(t *testing.T) {
	s := openAt(t, testDir(t), Options{})
	defer closeStore(t, s)
	before := s.Tip()
	b := s.NewBlob([]byte("data"))
	b.bad = true
	_, err := s.Commit(t.Context(), Draft{Edits: []Edit{{Path: "f", Mode: object.Regular, Blob: b}}})
	if errs.CodeOf(err) != "sha1_collision" || !errs.Is(err, errs.Unprocessable) {
		t.Errorf("committed with %v", err)
	}
	if now := s.Tip(); now != before {
		t.Errorf("the tip moved to %+v", now)
	}
	if err := collision(object.ErrCollision); errs.CodeOf(err) != "sha1_collision" {
		t.Error(err)
	}
}

// Content that many files of a baseline have is stored once, also while the pack
// that holds it is being made durable.
func TestBaselineStoresContentOnce(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{BaselinePart: 1000})
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("d%d/f%d", i%7, i)] = strings.Repeat(fmt.Sprint(i%30), 100)
	}
	baselineOf(t, s, files)
	closeStore(t, s)
	fsck(t, dir)
	for line := range strings.SplitSeq(git(t, dir, "ls-tree", "-r", "--format=%(path)", "refs/umbra/head"), "\n") {
		delete(files, line)
	}
	if len(files) > 0 {
		t.Errorf("%d files are missing", len(files))
	}
}
