package sink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"

	"umbra/gitstore/object"
)

func sample() *Manifest {
	return &Manifest{Version: 7, Base: 41, Seq: 40,
		Packs: []Pack{{Name: "w/3-ab.pack", Sum: object.ID{1}, Size: 1 << 40, Idx: 1072, Count: 3, Through: 40},
			{Name: "w/3-cd.pack", Sum: object.ID{2}, Size: 99, Idx: 1100, Count: 1, Through: 12}},
		Refs:  []Ref{{Name: "refs/heads/shadow", ID: object.ID{9}}, {Name: "refs/umbra/tasks/a/base", ID: object.ID{8}}},
		Files: []File{{Name: "exclude", Size: 3, Data: []byte("*.o")}, {Name: "moved/00000001", Size: 1 << 20, Object: "w/3-ef.file", Data: []byte{}}}}
}

func TestManifestEncoding(t *testing.T) {
	m := sample()
	b := m.Encode()
	back, err := DecodeManifest(b)
	if err != nil || !reflect.DeepEqual(m, back) {
		t.Fatalf("%v\ngot  %+v\nwant %+v", err, back, m)
	}
	m.Packs[0], m.Packs[1] = m.Packs[1], m.Packs[0]
	m.Refs[0], m.Refs[1] = m.Refs[1], m.Refs[0]
	if !bytes.Equal(m.Encode(), b) {
		t.Fatal("the encoding depends on the order")
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 0x20
		if _, err := DecodeManifest(bad); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if _, err := DecodeManifest(b[:i]); err == nil {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, err := DecodeManifest([]byte("umbra manifest 2\n....")); !errors.Is(err, ErrNewer) {
		t.Fatalf("a newer version: %v", err)
	}
}

func TestGroupEncoding(t *testing.T) {
	g := Group{Pos: 3, Seq: 2, Data: []byte("entries"), Packs: sample().Packs}
	b := g.AppendTo(nil)
	back, err := DecodeGroup(3, b)
	if err != nil || !reflect.DeepEqual(g, back) {
		t.Fatalf("%v %+v", err, back)
	}
	for i := range len(b) - len(g.Data) {
		bad := bytes.Clone(b)
		bad[i] ^= 0x20
		if _, err := DecodeGroup(3, bad); err == nil {
			t.Fatalf("byte %d changed: no error", i)
		}
		if _, err := DecodeGroup(3, b[:i]); i > 0 && err == nil {
			t.Fatalf("cut at %d: no error", i)
		}
	}
	claim := Group{Pos: 4}
	if b := claim.AppendTo(nil); len(b) != 0 {
		t.Fatalf("the row of a claim has %d bytes", len(b))
	}
	if back, err := DecodeGroup(4, nil); err != nil || !reflect.DeepEqual(back, claim) {
		t.Fatalf("%v %+v", err, back)
	}
}

func FuzzManifest(f *testing.F) {
	for _, m := range []*Manifest{sample(), {}} {
		b := m.Encode()
		f.Add(b[:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
		m, err := DecodeManifest(b)
		if err != nil {
			return
		}
		again, err := DecodeManifest(m.Encode())
		if err != nil || !reflect.DeepEqual(m.Encode(), again.Encode()) {
			t.Fatalf("%v: %+v and %+v", err, m, again)
		}
	})
}

func FuzzGroup(f *testing.F) {
	g := Group{Seq: 2, Data: []byte("entries"), Packs: sample().Packs}
	b := g.AppendTo(nil)
	f.Add(b[:len(b)-len(g.Data)-4], g.Data)
	f.Fuzz(func(t *testing.T, head, data []byte) {
		b := append(binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli)), data...)
		g, err := DecodeGroup(1, b)
		if err != nil {
			return
		}
		again, err := DecodeGroup(1, g.AppendTo(nil))
		if err != nil || !reflect.DeepEqual(g, again) {
			t.Fatalf("%v: %+v and %+v", err, g, again)
		}
	})
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err                      error
		refused, fenced, unknown bool
	}{
		{Fenced(true, nil), true, true, false},
		{Fenced(false, nil), false, true, false},
		{Unknown(nil), false, false, true},
		{Unavailable("standby", nil), true, false, false},
		{ReplicationOff(nil), true, false, false},
		{BlobsUnavailable(nil), true, false, false},
		{Missing("x"), true, false, false},
		{Stale("x"), true, false, false},
	} {
		if errors.Is(c.err, ErrRefused) != c.refused || errors.Is(c.err, ErrFenced) != c.fenced || errors.Is(c.err, ErrUnknown) != c.unknown {
			t.Errorf("%v is of other kinds", c.err)
		}
	}
	if !errors.Is(Stale("x"), ErrStale) || !errors.Is(Missing("x"), ErrMissing) {
		t.Error("stale, missing")
	}
}
