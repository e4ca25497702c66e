package gitstore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/rawpack"
	"umbra/gitstore/storedir"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// TestRepairLargePack holds that the index of a pack of one blob, larger than
// what is taken into memory, is the same again.
func TestRepairLargePack(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	open := func() vfs.FS {
		t.Helper()
		fs, err := vfs.OS(dir)
		need.NoError(t, err)
		return fs
	}
	s, err := Open(ctx, Options{FS: open(), Foreground: true})
	need.NoError(t, err)
	data := make([]byte, rawpack.CacheBytes+1<<20) // random bytes do not become fewer
	rnd := rand.NewChaCha8([32]byte{1})
	rnd.Read(data)
	blob, err := s.StreamBlob(ctx, bytes.NewReader(data), int64(len(data)))
	need.NoError(t, err)
	entry := message.Entry{Operation: message.Create, Path: "large", AfterHash: blob.AfterHash()}
	_, err = s.Commit(ctx, Draft{Edits: []Edit{{Path: "large", Mode: object.Regular, Blob: blob}}, Entries: 1,
		Message: message.Message{Source: message.API, Actor: "a", Entries: []message.Entry{entry}}})
	need.NoError(t, err)
	need.NoError(t, s.Close(ctx))
	indexes, err := filepath.Glob(filepath.Join(dir, storedir.Packs, "*.idx"))
	if err != nil || len(indexes) != 2 {
		t.Fatalf("%v %v", indexes, err)
	}
	before := make(map[string][]byte)
	for _, name := range indexes {
		if before[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
		need.NoError(t, os.Remove(name))
	}
	out, err := Repair(ctx, Options{FS: open()})
	if err != nil || len(out.Cannot) > 0 || len(out.Done) != 2 || !strings.Contains(out.Done[0], "was missing: made again") {
		t.Fatalf("%+v %v", out, err)
	}
	for _, name := range indexes {
		if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, before[name]) {
			t.Errorf("%s is not as it was (%v)", filepath.Base(name), err)
		}
	}
}
