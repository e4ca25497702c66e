package recordrow

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

// TestPackData: the records of a pack are read again from its data, and damaged data is
// refused.
func TestPackData(t *testing.T) {
	var list []Pair
	for i := range 3*PackSize + 1 {
		list = append(list, Pair{fmt.Sprintf("\x09%06d\x00", i), []byte(strings.Repeat("v", i%7))})
	}
	packs := NewPacks(list)
	if len(packs) != 4 {
		t.Errorf("%d packs", len(packs))
	}
	var got []Pair
	for _, p := range packs {
		data, err := p.Encode()
		need.NoError(t, err)
		part, err := DecodePack(p.First, data)
		need.NoError(t, err)
		if len(part) > PackSize || part[0].Key != string(p.First) || part[len(part)-1].Key != string(p.Last) {
			t.Errorf("%d records from %q to %q", len(part), p.First, p.Last)
		}
		got = append(got, part...)
		for _, bad := range [][]byte{nil, data[:1], data[:len(data)/2], append([]byte{9}, data[1:]...)} {
			if _, err := DecodePack(p.First, bad); err == nil {
				t.Errorf("%d of %d bytes were read", len(bad), len(data))
			}
		}
	}
	if !slices.EqualFunc(got, list, func(a, b Pair) bool { return a.Key == b.Key && string(a.Value) == string(b.Value) }) {
		t.Error("other records were read")
	}
	for bucket := range Codes {
		if strings.HasPrefix(bucket, "answers") && Packable(bucket) {
			t.Errorf("%s is packed, and the lanes write it", bucket)
		}
	}
}
