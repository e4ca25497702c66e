package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/errgroup"

	"umbra/internal/errs"
)

// Piece is an entry of a list. Where it has a workspace, only the owner of that knows
// all of it.
type Piece struct{ ID, Workspace string }

// Entry makes the entry of an ID on this server, errs.NotFound where there is none. It
// may be called by several goroutines at the same time.
type Entry func(ctx context.Context, id string) (any, error)

// atOnce is how many workspaces a list of a cluster's node opens at the same time.
const atOnce = 8

// Gather returns the entries of a list, in order, without those that do not exist any
// more. In a cluster those of workspaces that other nodes own are asked of them, by
// the same route: a list moves no workspace. here makes an entry on this server; it
// may be called by several goroutines at the same time.
func Gather(c *gin.Context, of []Piece, here Entry) ([]any, error) {
	var others map[string]json.RawMessage
	limit := 1
	if x := factsOf(c).exchange; x != nil {
		limit = atOnce
		var err error
		if others, err = x.s.opts.Cluster.Pieces(x, of); err != nil {
			return nil, err
		}
	}
	var ids []string
	for _, p := range of {
		if _, ok := others[p.ID]; !ok {
			ids = append(ids, p.ID)
		}
	}
	own, err := entriesOf(c, ids, limit, here)
	if err != nil {
		return nil, err
	}
	list := make([]any, 0, len(of))
	for _, p := range of {
		if raw, ok := others[p.ID]; ok && !bytes.Equal(raw, []byte("null")) {
			list = append(list, raw)
		} else if e := own[p.ID]; e != nil {
			list = append(list, e)
		}
	}
	return list, nil
}

// AllOfNode are the IDs that Part returns where another node asks for all entries that this
// one has (Others).
var AllOfNode = []string{"*"}

// Others returns the entries of a list that the other nodes of a cluster have, by ID.
func Others(c *gin.Context) (map[string]json.RawMessage, error) {
	if x := factsOf(c).exchange; x != nil {
		return x.s.opts.Cluster.Parts(x)
	}
	return nil, nil
}

// entriesOf makes entries, at most limit at the same time; nil for those that do not
// exist.
func entriesOf(c *gin.Context, ids []string, limit int, here Entry) (map[string]any, error) {
	var mu sync.Mutex
	out := make(map[string]any, len(ids))
	group, ctx := errgroup.WithContext(c.Request.Context())
	group.SetLimit(limit)
	for _, id := range ids {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			e, err := here(ctx, id)
			switch {
			case errs.Is(err, errs.NotFound):
				e = nil
			case err != nil:
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			out[id] = e
			return nil
		})
	}
	return out, group.Wait()
}

// Part returns the IDs of the entries that another node asks for (Gather); nil where
// the request is a client's, for the whole list.
func Part(c *gin.Context) []string {
	f := factsOf(c)
	if f.received == nil || !f.received.Part {
		return nil
	}
	ids, _, err := Query(c, "ids")
	if err != nil {
		return []string{}
	}
	return strings.Split(ids, ",")
}

// ServePart responds to the IDs that Part returned: with the entries of workspaces that
// this node owns, null for those that do not exist. The others are left out.
func ServePart(c *gin.Context, ids []string, where func(id string) (workspace string, err error), here Entry) error {
	over, cancel := context.WithCancel(c.Request.Context())
	cancel() // memory alone
	owned := ids[:0:0]
	for _, id := range ids {
		workspace, err := where(id)
		if err != nil {
			return err
		}
		if workspace != "" && factsOf(c).exchange.s.opts.Cluster.Owns(over, workspace) {
			owned = append(owned, id)
		}
	}
	out, err := entriesOf(c, owned, atOnce, here)
	if err != nil {
		return err
	}
	JSON(c, http.StatusOK, map[string]any{"pieces": out})
	return nil
}
