package server

import (
	"context"
	"errors"
	"time"

	"umbra/internal/node"
	"umbra/internal/state"
)

// looksBucket has when retention last took its turn at a workspace that no node had open, by ID.
const looksBucket = "retention_looks"

// turns shares the work of retention among the nodes of a cluster.
type turns struct {
	node *node.Node
	db   *state.DB
}

// others is retention.Options.Others.
func (t turns) others(ctx context.Context, ids []string) (map[string]bool, error) {
	owners, err := t.node.Owners(ctx, ids)
	out := make(map[string]bool, len(owners))
	for id := range owners {
		out[id] = true
	}
	return out, err
}

// turn is retention.Options.Turn.
func (t turns) turn(ctx context.Context, id string, since, now time.Time) (mine bool, err error) {
	if _, err := t.node.Owner(ctx, id); !errors.Is(err, node.ErrResting) {
		return false, nil // its owner looks, or it is not known who that is
	}
	err = t.db.Update(func(tx *state.Tx) error {
		mine = false
		var last time.Time
		if found, err := tx.Get(looksBucket, id, &last); err != nil || found && last.After(since) {
			return err
		}
		mine = true
		return tx.Put(looksBucket, id, now)
	})
	return mine && err == nil, err
}

// ended is retention.Options.Ended.
func (t turns) ended(exists func(id string) bool) error {
	var gone []string
	err := t.db.View(func(tx *state.Tx) error {
		gone = nil
		return tx.ForEach(looksBucket, "", func(id string, _ []byte) (bool, error) {
			if !exists(id) {
				gone = append(gone, id)
			}
			return true, nil
		})
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	return t.db.Update(func(tx *state.Tx) error {
		for _, id := range gone {
			if err := tx.Delete(looksBucket, id); err != nil {
				return err
			}
		}
		return nil
	})
}
