package forward

import (
	"testing"
	"time"

	"github.com/gin-gonic/gin"
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
