package tasks

import (
	"io"
	"strings"
	"testing"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

func TestBlobContentSeeks(t *testing.T) {
	files, err := vfs.OS(t.TempDir())
	need.NoError(t, err)
	st, err := gitstore.Open(t.Context(), gitstore.Options{FS: files, Foreground: true})
	need.NoError(t, err)
	defer st.Close(t.Context())
	data := []byte(strings.Repeat("0123456789abcdef", inlineBlob/8))
	blob := st.NewBlob(data)
	if _, err := st.Commit(t.Context(), gitstore.Draft{
		Edits: []gitstore.Edit{{Path: "big", Mode: object.Regular, Blob: blob}}, Entries: 1,
		Message: message.Message{Actor: "a", Source: message.API, Entries: []message.Entry{{Operation: message.Modify, Path: "big", AfterHash: blob.AfterHash()}}},
	}); err != nil {
		t.Fatal(err)
	}
	b, err := openBlob(t.Context(), st, blob.ID())
	if err != nil || b.Size != int64(len(data)) {
		t.Fatal(b, err)
	}
	defer b.Close()
	for _, at := range []int64{0, 100, 17, b.Size - 3, 5, b.Size, 0} {
		if _, err := b.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 9)
		n, err := io.ReadFull(b, got)
		want := data[at:min(at+9, b.Size)]
		if string(got[:n]) != string(want) || (err == nil) != (len(want) == 9) {
			t.Errorf("at %d: %q, %v", at, got[:n], err)
		}
	}
}
