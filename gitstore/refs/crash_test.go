package refs

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"syscall"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// act is a piece of work with refs, and what they may be at each moment of it.
type act struct {
	name string
	do   func(context.Context, *Store) error
	to   map[string]object.ID // what it moves; zero is removed
}

func acts() []act {
	v := func(n byte) object.ID { return object.ID{n} }
	updates := func(us ...Update) func(context.Context, *Store) error {
		return func(ctx context.Context, s *Store) error {
			_, failed := s.Update(ctx, us)
			return Join(failed)
		}
	}
	pack := func(ctx context.Context, s *Store) error { return s.Pack(ctx) }
	a, b := TasksPrefix+"a/head", TasksPrefix+"b/head"
	return []act{
		{"create", updates(Update{Name: a, New: v(1)}, Update{Name: b, New: v(2)}, Update{Name: ShadowRef, New: v(3)}),
			map[string]object.ID{a: v(1), b: v(2), ShadowRef: v(3)}},
		{"pack", pack, nil},
		{"move", updates(Update{Name: a, New: v(4), Before: was(v(1))}, Update{Name: ShadowRef, New: v(5), Before: was(v(3))}),
			map[string]object.ID{a: v(4), ShadowRef: v(5)}},
		{"put back", updates(Update{Name: a, New: v(6), Before: was(v(9))}), map[string]object.ID{a: v(6), ForeignPrefix + "1": v(4)}},
		{"pack again", pack, nil},
		{"delete", updates(Update{Name: a, Before: was(v(6))}, Update{Name: b, Before: was(v(2))}), map[string]object.ID{a: {}, b: {}}},
	}
}

// check wants every ref to be what it was before the act or after it, and
// nothing else.
func check(t *testing.T, s *Store, at string, before, to map[string]object.ID) {
	t.Helper()
	refs, err := s.List("refs/")
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	got := map[string]object.ID{}
	for _, r := range refs {
		if r.Damaged {
			t.Fatalf("%s: %s is damaged", at, r.Name)
		}
		if r.Name != HeadRef {
			got[r.Name] = r.ID
		}
	}
	names := map[string]bool{}
	for _, m := range []map[string]object.ID{got, before, to} {
		for name := range m {
			names[name] = true
		}
	}
	for name := range names {
		next, moves := to[name]
		if got[name] != before[name] && (!moves || got[name] != next) {
			t.Fatalf("%s: %s is %s, was %s, should be %s", at, name, got[name], before[name], next)
		}
	}
}

func (a act) after(before map[string]object.ID) map[string]object.ID {
	after := map[string]object.ID{}
	for _, m := range []map[string]object.ID{before, a.to} {
		maps.Copy(after, m)
	}
	return after
}

// TestCrashAtEveryCall cuts the power at every call of every act, in every way,
// and does the act again after the start.
func TestCrashAtEveryCall(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	memRepo(t, mem, Options{})
	before := map[string]object.ID{}
	points := 0
	for _, a := range acts() {
		rnd := rand.New(rand.NewPCG(1, 1))
		hook := &vfs.Hook{}
		hook.OnCall = func(c vfs.Call) error {
			for mode := vfs.CrashRandom; mode <= vfs.CrashNamesOnly; mode++ {
				points++
				at := fmt.Sprintf("%s, %s before %s %s", a.name, mode, c.Op, c.Name)
				clone := mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rnd})
				s := memRepo(t, clone, Options{})
				check(t, s, at, before, a.to)
				if _, err := s.ClearStale(t.Context()); err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				noTrash(t, clone)
				if err := a.do(t.Context(), s); err != nil {
					t.Fatalf("%s: again: %v", at, err)
				}
				settled := memRepo(t, clone.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly}), Options{})
				check(t, settled, at+", done again", a.after(before), nil)
			}
			return nil
		}
		s := memRepo(t, vfs.Inject(mem, hook), Options{})
		if err := a.do(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", a.name, err)
		}
		hook.OnCall = nil
		before = a.after(before)
		for mode := vfs.CrashRandom; mode <= vfs.CrashNamesOnly; mode++ {
			clone := mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: rnd})
			check(t, memRepo(t, clone, Options{}), a.name+", done, "+mode.String(), before, nil)
		}
	}
	if points < 500 {
		t.Errorf("only %d crashes", points)
	}
}

// TestErrorAtEveryCall fails every call once: the act fails or not, no ref is
// lost, and done again it succeeds.
func TestErrorAtEveryCall(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EMFILE} {
		mem := vfs.NewMem(vfs.MemOptions{})
		memRepo(t, mem, Options{})
		before := map[string]object.ID{}
		for _, a := range acts() {
			for n := 1; ; n++ {
				clone := mem.CrashClone(vfs.CrashOptions{Mode: vfs.CrashNothing})
				hook := &vfs.Hook{Reads: true}
				s := memRepo(t, vfs.Inject(clone, hook), Options{})
				base, hit := hook.Count(), ""
				hook.OnCall = func(c vfs.Call) error {
					if c.N == base+n {
						hit = c.Op + " " + c.Name
						return errno
					}
					return nil
				}
				err := a.do(t.Context(), s)
				at := fmt.Sprintf("%s, %v at %s", a.name, errno, hit)
				if hit == "" {
					break
				}
				if err == nil {
					check(t, s, at, a.after(before), nil)
				} else {
					check(t, s, at, before, a.to)
				}
				if err := a.do(t.Context(), s); err != nil {
					t.Fatalf("%s: again: %v", at, err)
				}
				check(t, s, at+", done again", a.after(before), nil)
				settled := memRepo(t, clone.CrashClone(vfs.CrashOptions{Mode: vfs.CrashSyncedOnly}), Options{})
				check(t, settled, at+", done again and cut", a.after(before), nil)
			}
			need.NoError(t, a.do(t.Context(), memRepo(t, mem, Options{})))
			before = a.after(before)
		}
	}
}

// TestCrashOfInit finishes an Init that was cut off anywhere.
func TestCrashOfInit(t *testing.T) {
	for mode := vfs.CrashRandom; mode <= vfs.CrashNamesOnly; mode++ {
		mem := vfs.NewMem(vfs.MemOptions{})
		hook := &vfs.Hook{OnCall: func(vfs.Call) error {
			clone := mem.CrashClone(vfs.CrashOptions{Mode: mode})
			s := memRepo(t, clone, Options{})
			if _, target, found, err := s.Read(HEAD); err != nil || !found || target != ShadowRef {
				t.Errorf("%s: HEAD is %q, %v", mode, target, err)
			}
			for name, want := range map[string]string{"config": config, HEAD: "ref: " + ShadowRef + "\n"} {
				if data, err := vfs.ReadFile(clone, "repo.git/"+name); err != nil || string(data) != want {
					t.Errorf("%s: %s holds %q, %v", mode, name, data, err)
				}
			}
			return nil
		}}
		need.NoError(t, Init(vfs.Inject(mem, hook), "repo.git"))
		clone := mem.CrashClone(vfs.CrashOptions{Mode: mode})
		if data, err := vfs.ReadFile(clone, "repo.git/config"); err != nil || string(data) != config {
			t.Errorf("%s: config holds %q, %v", mode, data, err)
		}
	}
}
