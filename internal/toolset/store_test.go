package toolset

import (
	"maps"
	"slices"
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/toolset/tool"
)

// A database of a program before gets what leads to its records; with records changed
// and gone, that is what is left.
func TestIndex(t *testing.T) {
	db := state.NewMemory()
	now := time.Now().UTC()
	one := Record{ID: "one", KeyHash: "k1", Idle: time.Hour, Until: now, Clients: map[string]Served{"c": {}}}
	two := Record{ID: "two", KeyHash: "k2", Loose: []string{"t"}}
	for _, r := range []Record{one, two} {
		need.NoError(t, db.Put(bucket, r.ID, r))
	}
	keys := func() map[string][]string {
		all := map[string][]string{}
		for _, in := range []string{byKey, unsettled, leased, serving} {
			if err := db.View(func(tx *state.Tx) error {
				return tx.ForEach(in, "", func(key string, _ []byte) (bool, error) {
					all[in] = append(all[in], key)
					return true, nil
				})
			}); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	for range 2 {
		need.NoError(t, records.Index(db))
	}
	want := map[string][]string{byKey: {"k1", "k2"}, unsettled: {"two"}, leased: {leaseKey(&one)}, serving: {"one"}}
	if got := keys(); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%q, want %q", got, want)
	}
	s := &Service{o: Options{State: db, Now: time.Now}}
	if _, err := s.update("one", func(r *Record) error {
		r.Until, r.Clients = now.Add(time.Minute), nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	one.Until = now.Add(time.Minute)
	need.NoError(t, records.Remove(db, "two"))
	want = map[string][]string{byKey: {"k1"}, leased: {leaseKey(&one)}}
	if got := keys(); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := s.update("two", func(*Record) error { return nil }); errs.CodeOf(err) != "toolset_not_found" {
		t.Error(err)
	}
}

// other is another server's service over the same records.
func (g *rig) other() *Service {
	g.t.Helper()
	s, err := New(g.t.Context(), Options{State: g.db, Tasks: g.tasks, Workspaces: g.manager, History: history.NewCache()})
	g.check(err)
	g.t.Cleanup(s.Close)
	return s
}

// What one server does to a toolset the other finds at its next call, and tells its
// clients.
func TestSharedToolsets(t *testing.T) {
	g := newSharedRig(t)
	two := g.other()
	o := CreateOptions{Mounts: []Spec{virtualSpec("/a", "READ_WRITE", "a")}, IdempotencyKey: "key", Idle: time.Hour}
	made, _, err := g.Create(t.Context(), o)
	g.check(err)
	got, err := two.Get(made.ID, nil)
	if err != nil || got.TaskID != made.TaskID || !got.Created.Equal(made.Created) {
		t.Fatalf("%+v, %v", got, err)
	}
	again, replayed, err := two.Create(t.Context(), o)
	if err != nil || !replayed || again.ID != made.ID {
		t.Errorf("the request at the other server: %+v, %v, %v", again, replayed, err)
	}
	var seen []string
	defer two.Watch(func(id string) { seen = append(seen, id) })()
	if _, err := g.SetMounts(t.Context(), made.ID, []Spec{virtualSpec("/b", "READ_ONLY", "a")}, Who{}); err != nil {
		t.Fatal(err)
	}
	two.lookAgain()
	if len(seen) != 1 || seen[0] != made.ID {
		t.Errorf("reported: %q", seen)
	}
	if got, err := two.Get(made.ID, nil); err != nil || got.Mounts[0].Prefix != "/b" {
		t.Errorf("%+v, %v", got, err)
	}
	if list, err := two.List(nil); err != nil || len(list) != 1 || list[0].ID != made.ID {
		t.Errorf("%+v, %v", list, err)
	}
	// A use at one server holds the lease at the other, once it is kept.
	now := time.Now()
	for _, s := range []*Service{g.Service, two} {
		s.o.Now = func() time.Time { return now }
	}
	now = now.Add(50 * time.Minute)
	if _, err := g.Get(made.ID, nil); err != nil {
		t.Fatal(err)
	}
	g.check(g.keepUses())
	now = now.Add(50 * time.Minute)
	two.endLeases(t.Context())
	if _, err := g.Get(made.ID, nil); err != nil {
		t.Errorf("it went while it was used: %v", err)
	}
	g.check(g.Delete(t.Context(), made.ID, Who{}))
	if _, err := two.Get(made.ID, nil); errs.CodeOf(err) != "toolset_not_found" {
		t.Errorf("after its end: %v", err)
	}
}

// Clients of one toolset at two servers get tasks beside each other: none is lost.
func TestSharedClients(t *testing.T) {
	g := newSharedRig(t)
	two := g.other()
	made, _, err := g.Create(t.Context(), CreateOptions{Mounts: []Spec{virtualSpec("/a", "READ_WRITE", "a")}, Lazy: true})
	g.check(err)
	done := make(chan error)
	for i := range 8 {
		go func() {
			s := []*Service{g.Service, two}[i%2]
			a, err := s.Call(t.Context(), made.ID, Call{Name: tool.WriteFile, Args: []byte(`{"path":"/a/f","content":"x"}`), Client: Client{Session: string(rune('a' + i))}})
			if a.Failed {
				t.Error(a.Text)
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	r := g.kept()[made.ID]
	tasks := map[string]bool{}
	for _, c := range r.Clients {
		for _, id := range c.Tasks {
			tasks[id] = true
		}
	}
	if len(r.Clients) != 8 || len(tasks) != 8 || len(r.Loose) != 0 {
		t.Errorf("%+v", r)
	}
}
