package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/gitstore/sink"
	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
)

// testErase purges: whatever was dropped before, and whatever was put before and never
// named, is deleted; what an owner may name yet is not, and objects of tasks' directories
// stay for their grace.
func testErase(t *testing.T, p *clustertest.Pair) {
	ctx := context.Background()
	s := newScene(t, p)
	k := s.s1
	put := func() string {
		t.Helper()
		name, err := k.Put(ctx, strings.NewReader("pack"), 4)
		need.NoError(t, err)
		return name
	}
	swap := func(version uint64, purge bool, pack string, drop ...string) {
		t.Helper()
		m := &sink.Manifest{Version: version, Base: s.next - 1, Packs: []sink.Pack{{Name: pack, Sum: object.ID{1}, Size: 4}}}
		need.NoError(t, k.Swap(ctx, &sink.Switch{Manifest: m, Drop: drop, Purge: purge}))
	}
	s.append(k, "one")
	former := put() // never named, by an owner of before
	need.NoError(t, s.n1.Release(ctx, k.Claim()))
	k, _ = s.claim(s.n2)
	first := put()
	swap(1, false, first)
	second := put()
	swap(2, false, second, first) // a merge: first stays for the grace
	area := "w/area-x"
	objects := s.n2.Objects(s.store, k.grace)
	need.NoError(t, errors.Join(objects.Put(ctx, area, strings.NewReader("file"), 4), objects.Drop(ctx, []string{area})))
	early, third := put(), put()
	swap(3, true, third, second)
	late := put()
	need.NoError(t, k.DropUnnamed(ctx))
	if left, err := s.n2.Erase(ctx, s.store, "w"); err != nil || left != 0 {
		t.Errorf("%d objects are left: %v", left, err)
	}
	for _, c := range []struct {
		what, name string
		want       bool
	}{{"never named by a former owner", former, false}, {"dropped by a merge", first, false}, {"dropped by the purge", second, false},
		{"put before the purge", early, false}, {"of the new history", third, true}, {"put after the purge", late, true}, {"of a task's directory", area, true}} {
		if _, err := blobtest.GetRange(ctx, s.store, c.name, 0, 1); (err == nil) != c.want {
			t.Errorf("the object %s is there: %v", c.what, err == nil)
		}
	}
	if err := k.Append(&sink.Group{Pos: s.next, Data: []byte("x"), Packs: []sink.Pack{{Name: late, Size: 4}}}); err != nil {
		t.Errorf("an object that was put after the purge is not named: %v", err)
	}
	s.next++
	if err := k.Append(&sink.Group{Pos: s.next, Data: []byte("x"), Packs: []sink.Pack{{Name: early, Size: 4}}}); !errors.Is(err, sink.ErrStale) {
		t.Errorf("an object of before the purge is named: %v", err)
	}
}
