package calls

import (
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/state"
)

// Where servers share the records a call is in them when it is answered, and open at
// the owner of its workspace alone.
func TestSharedCalls(t *testing.T) {
	db := state.NewShared()
	server := func() *Service {
		k, err := openKeeper(db, nil, "", nil)
		need.NoError(t, err)
		return &Service{o: Options{Now: time.Now}, keep: k, books: map[string]*book{}, open: map[string]*live{}}
	}
	one, two := server(), server()
	a := Record{ID: "a", Workspace: "w", Task: "t", Status: Open, Begun: time.Now(), Touched: time.Now(), TTL: time.Hour}
	b := Record{ID: "b", Workspace: "v", Task: "t", Status: Open, Begun: time.Now(), Touched: time.Now(), TTL: time.Hour}
	seen := sightingAt(time.Now())
	need.NoError(t, one.keep.put(line{Call: &a}, line{Call: &b}, line{Key: "k", Session: &session{Task: "t", Through: 7}}, line{Seen: "w", At: &seen}))
	if s, err := two.keep.session("k"); err != nil || s.Through != 7 {
		t.Errorf("%+v, %v", s, err)
	}
	need.NoError(t, two.takeUp("w"))
	if n := two.OpenOf("t"); n != 1 || two.open["a"] == nil || two.book("w").find("a") == nil || !two.book("w").Called() {
		t.Errorf("%d calls are open at the owner", n)
	}
	if list, err := two.current(0); err != nil || len(list) != 2 {
		t.Errorf("a list of the open calls at another server: %v, %v", list, err)
	}
	if two.last < a.order() {
		t.Error("the next call is before one that is open")
	}
	two.letGo("w")
	if n := two.OpenOf("t"); n != 0 || two.book("w").find("a") != nil {
		t.Errorf("%d calls are open at a server that is not the owner any more", n)
	}
	a.Status, a.Ended = OK, time.Now()
	need.NoError(t, one.keep.put(line{Call: &a}))
	if err := two.takeUp("w"); err != nil || two.OpenOf("t") != 0 {
		t.Errorf("a call that has ended is open: %v", err)
	}
	for within, want := range map[time.Duration]int{0: 1, time.Minute: 2} {
		if list, err := two.current(within); err != nil || len(list) != want {
			t.Errorf("within %v: %v, %v", within, list, err)
		}
	}
	if r, ok, err := two.keep.get("a"); err != nil || !ok || r.Status != OK {
		t.Errorf("%+v, %v", r, err)
	}
}
