package adopt

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"umbra/internal/cluster"
)

// Of returns what became of a workspace; nil where it was never adopted.
func Of(ctx context.Context, e Cluster, ws string) (*cluster.Adoption, error) {
	r, err := find(ctx, e, ws)
	if errors.Is(err, cluster.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return r.adopted, nil
}

// All returns what became of the workspaces that were adopted, by ID.
func All(ctx context.Context, e Cluster) (map[string]*cluster.Adoption, error) {
	return ask(ctx, e, func(ctx context.Context, c *cluster.Conn) (map[string]*cluster.Adoption, error) {
		rows, err := c.Query(ctx, `SELECT id, adopted FROM workspace WHERE adopted IS NOT NULL`)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		all := map[string]*cluster.Adoption{}
		for rows.Next() {
			id, a := "", &cluster.Adoption{}
			if err := rows.Scan(&id, a); err != nil {
				return nil, err
			}
			all[id] = a
		}
		return all, rows.Err()
	})
}

// Back notes that the node which had a workspace's directory has put its later commits
// aside, in these directories.
func Back(ctx context.Context, e Cluster, ws, node string, orphaned []string) error {
	return e.Write(ctx, func(ctx context.Context, c *cluster.Conn) error {
		var a *cluster.Adoption
		err := c.QueryRow(ctx, `SELECT adopted FROM workspace WHERE id = $1`, ws).Scan(&a)
		if errors.Is(err, sql.ErrNoRows) || err == nil && (a == nil || a.From != node) {
			return nil
		}
		if err != nil {
			return err
		}
		a.Back = true
		if len(orphaned) > 0 {
			a.Orphaned = orphaned
		}
		raw, err := json.Marshal(a)
		if err != nil {
			return err
		}
		_, err = c.Exec(ctx, `UPDATE workspace SET adopted = $2 WHERE id = $1 AND adopted->>'from' = $3`, ws, string(raw), node)
		return err
	})
}
