package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// hanging has workspaces that cannot be released.
type hanging struct {
	Local
	ids   []string
	until chan struct{}
}

func (h hanging) Held() []string { return h.ids }

func (h hanging) Yield(context.Context, string, bool) error {
	<-h.until
	return nil
}

// TestReleaseAllIsBounded: a workspace whose release hangs holds up no stop.
func TestReleaseAllIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hanging{ids: make([]string, leavers+1), until: make(chan struct{})}
		defer close(h.until)
		n := New(Options{})
		n.Attach(h)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		n.releaseAll(ctx)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
