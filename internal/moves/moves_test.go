package moves

import (
	"slices"
	"testing"

	"umbra/internal/need"
	"umbra/internal/vfs"
)

func TestRecords(t *testing.T) {
	files := vfs.NewMem(vfs.MemOptions{})
	list := []Record{
		{Seq: 9, Steps: []Step{{Ino: 7, From: "a b/\xff", To: "c\n\"d"}}},
		{Seq: 10, Steps: []Step{{Swap: true, Ino: 7, Other: 8, From: "a", To: "b"}, {Ino: 9, From: "x", To: "y/z"}}},
	}
	for _, r := range slices.Backward(list) {
		need.NoError(t, Write(files, r))
	}
	cut := files.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly})
	got, err := Read(cut, 0)
	if err != nil || len(got) != 2 || got[0].Seq != 9 || !slices.Equal(got[0].Steps, list[0].Steps) || !slices.Equal(got[1].Steps, list[1].Steps) {
		t.Fatalf("%+v, %v", got, err)
	}
	if got, _ := Read(cut, 9); len(got) != 1 || got[0].Seq != 10 {
		t.Fatalf("after 9: %+v", got)
	}
	Drop(files, 9)
	if got, _ := Read(files, 0); len(got) != 1 || got[0].Seq != 10 {
		t.Fatalf("%+v are left", got)
	}
	un := Unfinished(list)
	if len(un[0].Steps) != 0 || len(un[1].Steps) != 2 {
		t.Fatalf("%+v", un)
	}
}

// A record of which a byte is missing or another is none.
func TestTorn(t *testing.T) {
	files := vfs.NewMem(vfs.MemOptions{})
	need.NoError(t, Write(files, Record{Seq: 1, Steps: []Step{{Ino: 7, From: "a", To: "b"}}}))
	whole, err := vfs.ReadFile(files, "moves/1")
	need.NoError(t, err)
	for i := range whole {
		if _, ok := parse(string(whole[:i])); ok {
			t.Errorf("%d bytes are taken for a record", i)
		}
		other := slices.Clone(whole)
		other[i] ^= 1
		if _, ok := parse(string(other)); ok {
			t.Errorf("taken for a record with another byte %d", i)
		}
	}
}

func TestInverse(t *testing.T) {
	steps := []Step{{Ino: 1, From: "a", To: "b"}, {Swap: true, Ino: 2, Other: 3, From: "c", To: "d"}}
	want := []Step{{Swap: true, Ino: 3, Other: 2, From: "c", To: "d"}, {Ino: 1, From: "b", To: "a"}}
	if got := Inverse(steps); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
