package node

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"umbra/internal/blob"
	"umbra/internal/cluster"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
	"umbra/internal/workspaces"
)

// alone is a manager whose workspaces are no forks, and have no directory.
type alone struct{ Local }

func (alone) Family(id string) string                   { return id }
func (alone) Pinned(string) bool                        { return false }
func (alone) Held() []string                            { return nil }
func (alone) Yield(context.Context, string, bool) error { return nil }

// TestReleaseIsLost: a workspace that the engine says this node has, and that it does not have,
// is released when it is asked for. A release was lost in a failover, whether or not beats were
// answered since, or a claim was not answered.
func TestReleaseIsLost(t *testing.T) {
	p := clustertest.Start(t, clustertest.Options{Standby: true})
	url := p.A.Database(t)
	db := p.A.In(strings.TrimSuffix(url[strings.LastIndexByte(url, '/')+1:], "?sslmode=disable"))
	c, err := cluster.Open(t.Context(), cluster.Options{URL: url, Name: "n1", Address: "http://n1", Version: "test", Lease: 3 * time.Second, Wait: 8 * time.Second})
	need.NoError(t, err)
	defer func() { need.NoError(t, c.Close(context.Background())) }()
	n := New(Options{Cluster: c, Store: blob.NewMemory()})
	n.Attach(alone{})
	n.Start()
	defer n.Close()
	life, _ := c.Life()
	asked := func(ws string) error {
		_, err := n.Owner(t.Context(), ws)
		if errors.Is(err, ErrResting) {
			err = nil
		}
		return err
	}
	handedOver := func(ws string) error { return n.Handover(t.Context(), ws) }
	for i, ask := range []func(string) error{asked, handedOver} {
		ws := strconv.Itoa(i)
		owner := func() string { return db.SQL("SELECT coalesce(owner, 0) FROM workspace WHERE id = '" + ws + "'") }
		_, err = c.Create(t.Context(), cluster.Workspace{ID: ws, Kind: workspaces.VirtualKind})
		need.NoError(t, err)
		held, err := n.Claim(t.Context(), workspaces.Record{ID: ws, Kind: workspaces.VirtualKind})
		need.NoError(t, err)
		need.NoError(t, asked(ws))
		if owner() == "0" {
			t.Error("a workspace that this node has was released")
		}
		held.Release(t.Context())
		db.SQL("UPDATE workspace SET owner = " + strconv.FormatInt(life.ID, 10) + " WHERE id = '" + ws + "'")
		<-c.Beaten()
		need.NoError(t, ask(ws))
		if owner() != "0" {
			t.Errorf("%d: no node has a workspace after its release was lost", i)
		}
		end := n.move(ws) // as in a claim that is not answered yet
		_, err = c.Claim(t.Context(), ws)
		need.NoError(t, err)
		need.NoError(t, ask(ws))
		if owner() == "0" {
			t.Errorf("%d: a claim under way was released", i)
		}
		end()
		need.NoError(t, ask(ws))
		if owner() != "0" {
			t.Errorf("%d: no node has a workspace after its claim was not answered", i)
		}
	}
}
