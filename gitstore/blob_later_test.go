package gitstore

import (
	"bytes"
	"strings"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
)

// A blob that is compressed late is the same as one that is compressed at once.
func TestLaterBlob(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{Foreground: true})
	for _, data := range []string{"", "a", strings.Repeat("a line of text\n", 10_000)} {
		at, later := s.NewBlob([]byte(data)), s.LaterBlob([]byte(data))
		if at.ID() != later.ID() || at.Size() != later.Size() || at.AfterHash() != later.AfterHash() {
			t.Fatalf("%d bytes: %v and %v", len(data), at.ID(), later.ID())
		}
		edits := []Edit{{Path: "f", Mode: object.Regular, Blob: later}, {Path: "again", Mode: object.Regular, Blob: later}}
		c, err := s.Commit(t.Context(), Draft{Edits: edits, Entries: 2, Message: message.Message{Source: message.API}, AllowEmpty: true})
		need.NoError(t, err)
		if content(t, s, "f") != data || content(t, s, "again") != data {
			t.Errorf("%d bytes are others in %v", len(data), c.Commit)
		}
		if n := s.logs.open.End(); len(data) > 1000 && n > int64(len(data)/2) {
			t.Errorf("%d bytes took %d", len(data), n)
		}
	}
	// Bytes that history has are not written again, also without being compressed.
	big := bytes.Repeat([]byte("x\n"), 50_000)
	if _, err := put(t.Context(), s, "", "f", string(big)); err != nil {
		t.Fatal(err)
	}
	if c, err := s.Commit(t.Context(), Draft{Edits: []Edit{{Path: "f", Mode: object.Regular, Blob: s.LaterBlob(big)}}, Message: message.Message{Source: message.API}}); err != nil || !c.NoChange {
		t.Errorf("%+v, %v", c, err)
	}
	closeStore(t, s)
	fsck(t, dir)
	s = openAt(t, dir, Options{Foreground: true})
	defer closeStore(t, s)
	if content(t, s, "f") != string(big) || !strings.HasPrefix(content(t, s, "again"), "a line") {
		t.Error("the contents are others after a start")
	}
}
