package adopt

import (
	"testing"

	"umbra/internal/blob"
	"umbra/internal/cluster"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/workspaces"
)

// Of two runs at once the one that took the log last wins; the other one's error does not say
// that the former node is live.
func TestTwoAtOnce(t *testing.T) {
	pair := clustertest.Start(t, clustertest.Options{})
	a, err := cluster.Init(t.Context(), cluster.Options{URL: pair.A.URL(), Replication: cluster.ReplicationNone})
	need.NoError(t, err)
	defer a.Close()
	pair.A.SQL("INSERT INTO workspace (id, kind, pinned) VALUES ('w', 'physical', 'n1'), ('v', NULL, NULL)")
	pair.A.SQL("INSERT INTO node (life, name, address, version) VALUES (2, 'n2', 'http://n2', '1'), (3, 'n3', 'http://n3', '1')")
	store, records := blob.NewMemory(), &workspaces.MemRecords{}
	first, err := Begin(t.Context(), a, store, "w")
	need.NoError(t, err)
	late, err := Begin(t.Context(), a, store, "w")
	need.NoError(t, err)
	if _, err := first.Finish(t.Context(), a, records, "n2", "/d"); errs.CodeOf(err) != "adopt_running" {
		t.Errorf("the first: %v", err)
	}
	if r, err := Into(t.Context(), a, store, records, "w", "n3", "/d"); err != nil || *r.Owner != "n3" {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err = late.Finish(t.Context(), a, records, "n2", "/d"); err == nil || err.Error() != alive("n3").Error() {
		t.Errorf("after the other has ended: %v", err)
	}
	if _, err := Virtual(t.Context(), a, store, records, "v"); errs.CodeOf(err) != "not_physical" {
		t.Errorf("a virtual one: %v", err)
	}
}
