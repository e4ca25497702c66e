package forward

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
)

// A node was restarted, and the list of nodes has its former life: the end of that one ends no
// request that the new one has.
func TestRestartedOwner(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.set("a", "n2", "one")
	n1, n2 := w.nodes[0], w.nodes[1]
	w.locked(func() { n2.former, n2.life = n2.life, 77 })
	n2.after = func(*gin.Context) {
		w.locked(func() { n2.former = 0 })
		n1.f.compare(n1.Peers(), time.Now())
	}
	n1.ask("PUT", "/w/a/x", "two").want(t, 200, "")
	w.locked(func() { n2.life = 78 })
	n1.f.compare(n1.Peers(), time.Now())
	n1.f.mu.Lock()
	defer n1.f.mu.Unlock()
	if len(n1.f.peers) != 0 {
		t.Error("a life that is over is kept")
	}
}

// The end of a body of a known length is found without another read of it.
func TestBodyEnds(t *testing.T) {
	closed := iotest.ErrReader(http.ErrBodyReadAfterClose)
	if got, err := io.ReadAll(exactly(io.MultiReader(strings.NewReader("ab"), closed), 2)); string(got) != "ab" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if _, err := io.ReadAll(exactly(closed, -1)); err == nil {
		t.Error("a body of an unknown length ends without its error")
	}
}

// What a request is about is looked up again where that was another thing of its name.
func TestNameOfAnother(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.set("a", "n2", "one")
	w.locked(func() { w.as = "former" })
	if a := w.nodes[0].ask("GET", "/as/x", "").want(t, 200, ""); a.json(t)["by"] != "n2" {
		t.Error(a.body)
	}
	w.set("a", "elsewhere", "one") // no node has it
	w.nodes[0].ask("GET", "/as/x", "").want(t, 403, "physical_off")
}

// A node to which another one has sent nothing yet gets nothing either once it has left: it
// may still own workspaces.
func TestLeftBeforeTheFirst(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n1, n2 := w.nodes[0], w.nodes[1]
	n2.f.SayLeft(t.Context())
	for _, p := range n1.f.o.Node.Peers() {
		if p.Name == "n2" && n1.f.peer(ownerOf(p)).begin() {
			t.Error("n1 sends n2 requests")
		}
	}
}

// A list with entries of every node, and the look for what nodes had, ask a node that joined after
// the last beat; where the engine is away a list has what is known, and the look fails.
func TestNodeOfAfterTheLastBeat(t *testing.T) {
	w := newWorld(t)
	hangs := false
	n1 := w.start("n1", func(o *Options) {
		n := o.Node.(*fakeNode)
		o.Live = func(ctx context.Context) (list []Peer, err error) {
			if hangs {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			w.locked(func() {
				if !w.engine {
					err = errs.New(errs.Unavailable, "engine_unavailable", "The engine is away.")
				}
			})
			return n.peers(true), err
		}
	})
	w.start("n2")
	n3 := w.start("n3", func(o *Options) {
		o.Held = func(string, []string) ([]HeldFile, error) { return []HeldFile{{Path: []byte("p"), Blob: "b"}}, nil }
	})
	w.set("of-n2", "n2", "one")
	w.set("of-n3", "n3", "one")
	w.locked(func() { n3.unseen = true })
	entries := func(want string) {
		t.Helper()
		if a := n1.ask("GET", "/entries", "").want(t, 200, ""); a.body != want+"\n" {
			t.Errorf("%s, want %s", a.body, want)
		}
	}
	entries(`["n2","n3"]`)
	if list, err := n1.f.Held("a", []string{"b"}); len(list) != 1 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	w.locked(func() { w.engine = false })
	entries(`["n2"]`)
	if list, err := n1.f.Held("a", []string{"b"}); errs.CodeOf(err) != "engine_unavailable" {
		t.Errorf("%v, %v", list, err)
	}
	hangs = true
	entries(`["n2"]`)
}
