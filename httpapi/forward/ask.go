package forward

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"umbra/httpapi"
	"umbra/internal/errs"
)

// Outsider sends requests among nodes from a program that is none, and has the cluster's
// key. Its methods may be called from any goroutine.
type Outsider struct {
	Key []byte
	To  Peer
}

// outside is the part of a node that a sender needs.
type outside struct {
	Node
	o *Outsider
}

func (n outside) Name() string  { return "" }
func (n outside) Key() []byte   { return n.o.Key }
func (n outside) Peers() []Peer { return []Peer{n.o.To} }

// Adopt asks the node to let a workspace go on in its directory dir, and decodes what it
// answers. Errors have the node's code.
func (o *Outsider) Adopt(ctx context.Context, workspace, dir string, into any) error {
	body, err := o.ask(ctx, adoptPath, url.Values{"workspace": {workspace}, "into": {dir}})
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// Arrive says to the node that a workspace became its own.
func (o *Outsider) Arrive(ctx context.Context, workspace string) error {
	_, err := o.ask(ctx, arrivePath, url.Values{"workspace": {workspace}})
	return err
}

// Look has the node look at its row now, not with its next beat.
func (o *Outsider) Look(ctx context.Context) error {
	_, err := o.ask(ctx, lookPath, nil)
	return err
}

func (o *Outsider) ask(ctx context.Context, path string, q url.Values) ([]byte, error) {
	f := New(Options{Node: outside{o: o}})
	defer f.Close()
	resp, body, err := f.exchange(ctx, ownerOf(o.To), http.MethodPost, path+"?"+q.Encode(), claims{Scope: httpapi.ScopeWrite, Owner: true}, maxWhole)
	if err != nil {
		return nil, fmt.Errorf("node %s does not answer at %s: %w", o.To.Name, o.To.Address, err)
	}
	if resp.StatusCode != http.StatusOK {
		r := refusalOf(body)
		if r.Error == "" {
			r.Error, r.Detail = "node_failed", fmt.Sprintf("Node %s answered with status %d.", o.To.Name, resp.StatusCode)
		}
		return nil, &errs.Error{Kind: errs.Conflict, Code: r.Error, Detail: r.Detail}
	}
	return body, nil
}
