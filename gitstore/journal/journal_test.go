package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"testing"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// A journal whose sync failed is replaced by its accepted entries; the copy takes
// more, and is a pack in the end.
func TestSalvageAndFinish(t *testing.T) {
	mem, fail := vfs.NewMem(vfs.MemOptions{}), false
	fs := vfs.Inject(mem, &vfs.Hook{OnCall: func(c vfs.Call) error {
		if fail && c.Op == vfs.OpFdatasync {
			return syscall.EIO
		}
		return nil
	}})
	need.NoError(t, errors.Join(fs.Mkdir(Dir, 0o700), fs.SyncDir(".")))
	set := &Set{FS: fs, Log: slog.New(slog.DiscardHandler), MaxObject: 1 << 20}
	set.Skip(6)
	j, err := set.Rotate(0)
	if err != nil || j.Number != 7 {
		t.Fatal(j, err)
	}
	j.State = "the owner's"
	var ids []object.ID
	group := func(j *Journal, text string) error {
		entry := pack.AppendEntry(nil, object.Blob, []byte(text), 1)
		if err := j.Append(entry); err != nil {
			return err
		}
		id := object.Hash(object.Blob, []byte(text))
		j.Accept(len(entry), map[object.ID]Loc{id: {Off: j.End(), End: j.End() + int64(len(entry)), Size: int64(len(text)), Kind: object.Blob}})
		ids = append(ids, id)
		return nil
	}
	for i := range 3 {
		need.NoError(t, group(j, fmt.Sprint("text ", i)))
	}
	fail = true
	if group(j, "not accepted") == nil {
		t.Fatal("the sync did not fail")
	}
	fail = false
	sound, err := set.Salvage(j)
	if err != nil || sound.State != j.State || sound.Number != 7 {
		t.Fatal(sound, err)
	}
	j.Close()
	need.NoError(t, group(sound, "after it"))
	entries, sum, err := sound.Finish()
	if err != nil || len(entries) != 4 || sum == ([20]byte{}) {
		t.Fatal(entries, err)
	}
	for i, id := range ids {
		want := fmt.Sprint("text ", i)
		if i == 3 {
			want = "after it"
		}
		if kind, data, ok, err := sound.Get(id); err != nil || !ok || kind != object.Blob || string(data) != want {
			t.Errorf("%d: %q, %v, %v", i, data, ok, err)
		}
	}
	data, err := vfs.ReadFile(mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly}), sound.Name)
	if err != nil || len(data) < 32 || string(data[:4]) != "PACK" || data[11] != 4 || string(data[len(data)-20:]) != string(sum[:]) {
		t.Errorf("not a pack of 4: % x, %v", data, err)
	}
	sound.Close()
	set.Close()
}
