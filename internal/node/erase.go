package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"umbra/internal/errs"
)

// Remaining says where what a purge has dropped may still be. Names are those of its JSON.
type Remaining struct {
	Objects int      `json:"objects"` // in the object store
	Nodes   []string `json:"nodes"`   // that read it still, or did not answer
	Error   string   `json:"error"`   // why it is not known, or was not deleted; empty: nothing failed
}

const (
	// eraseGrace is after how long what a purge has dropped is deleted also where a node
	// has not said that it does not read it.
	eraseGrace = 60 * time.Second
	// ErasePatience is for how long Erase may need.
	ErasePatience = eraseGrace + 15*time.Second
	// eraseEvery is how often the others are asked.
	eraseEvery = 250 * time.Millisecond
)

// Erase waits until no other live node and no object has what a purge has dropped of
// workspaces of this node, until ctx ends; a node is waited for no longer than the grace of
// such objects. drop has another node drop what it has of them. It returns nil where
// nothing remains.
func (n *Node) Erase(ctx context.Context, list []string, drop func(ctx context.Context, o Owner) error) *Remaining {
	begun, done := time.Now(), make(map[int64]bool)
	t := time.NewTicker(eraseEvery)
	defer t.Stop()
	var r *Remaining
	var err error
	for {
		// An attempt that ctx cuts off finds nothing out.
		if now, failed := n.erase(ctx, list, drop, done, time.Since(begun) >= eraseGrace); r == nil || ctx.Err() == nil {
			r, err = now, failed
		}
		if err == nil && r.Objects == 0 && (len(r.Nodes) == 0 || time.Since(begun) >= eraseGrace) {
			if len(r.Nodes) == 0 {
				return nil
			}
			return r
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			if err != nil {
				r.Error = errs.Wrap(err, "").Error()
			}
			return r
		}
	}
}

// erase is one attempt. done are the lives that have dropped what they had.
func (n *Node) erase(ctx context.Context, list []string, drop func(ctx context.Context, o Owner) error, done map[int64]bool, anyway bool) (*Remaining, error) {
	r := &Remaining{Nodes: []string{}}
	live, err := n.c.Live(ctx)
	if err != nil {
		return r, err
	}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, p := range live {
		if p.Name == n.Name() || done[p.Life] {
			continue
		}
		asked.Go(func() {
			err := drop(ctx, Owner{Node: p.Name, Address: p.Address, URL: p.URL, Life: p.Life})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				done[p.Life] = true
				return
			}
			n.opt.Log.Debug("a node may have what was purged", "workspaces", list, "node", p.Name, "error", err)
			r.Nodes = append(r.Nodes, p.Name)
		})
	}
	asked.Wait()
	slices.Sort(r.Nodes)
	if len(r.Nodes) > 0 && !anyway {
		return r, nil
	}
	for _, ws := range list {
		if s := n.own(ws); s != nil { // else its new owner cannot name them either
			if err := s.DropUnnamed(ctx); err != nil {
				return r, err
			}
		}
		left, err := n.c.Erase(ctx, n.opt.Store, ws)
		if r.Objects += left; err != nil {
			return r, err
		}
	}
	return r, nil
}
