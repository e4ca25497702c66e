package forward

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/sync/errgroup"

	"umbra/httpapi"
	"umbra/internal/errs"
)

const (
	// maxPieces bounds the IDs in one request for a part of a list, in bytes.
	maxPieces = 16 << 10
	// maxPart bounds the answer to it, in bytes.
	maxPart = 64 << 20
)

// Owns is httpapi.Cluster's.
func (f *Forwarder) Owns(ctx context.Context, workspace string) bool {
	owner, err := f.o.Node.Owner(ctx, workspace)
	return err == nil && owner.Self
}

// Pieces asks the other nodes for the entries of a list whose workspaces they own.
// Entries that they do not return within half of Options.Wait are left out, and so
// are those of workspaces without an owner: a request for one claims it.
func (f *Forwarder) Pieces(x *httpapi.Exchange, of []httpapi.Piece) (map[string]json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(x.Context(), f.o.Wait/2)
	defer cancel()
	out := map[string]json.RawMessage{}
	// A workspace may move while its owner is asked.
	for range 2 {
		asked, err := f.pieces(ctx, x, of, out)
		if err != nil {
			return nil, err
		}
		left := of[:0:0]
		for _, p := range asked {
			if _, ok := out[p.ID]; !ok {
				f.o.Node.Forget(p.Workspace)
				left = append(left, p)
			}
		}
		if of = left; len(of) == 0 || ctx.Err() != nil {
			break
		}
	}
	return out, nil
}

// pieces is Pieces once. It returns those that others were asked for.
func (f *Forwarder) pieces(ctx context.Context, x *httpapi.Exchange, of []httpapi.Piece, out map[string]json.RawMessage) (asked []httpapi.Piece, err error) {
	var workspaces []string
	for _, p := range of {
		if p.Workspace != "" {
			workspaces = append(workspaces, p.Workspace)
		}
	}
	owners, err := f.o.Node.Owners(ctx, workspaces)
	if err != nil {
		return nil, err
	}
	type batch struct {
		owner Owner
		ids   []string
		bytes int
	}
	open := map[string]*batch{} // by address: the one that is being filled
	var batches []*batch
	for _, p := range of {
		owner, ok := owners[p.Workspace]
		if !ok {
			continue
		}
		asked = append(asked, p)
		b := open[owner.Address]
		if b == nil || b.bytes+len(p.ID) >= maxPieces {
			b = &batch{owner: owner}
			open[owner.Address] = b
			batches = append(batches, b)
		}
		b.ids, b.bytes = append(b.ids, p.ID), b.bytes+len(p.ID)+1
	}
	answers := make([]map[string]json.RawMessage, len(batches))
	var group errgroup.Group
	for i, b := range batches {
		group.Go(func() (err error) {
			answers[i], err = f.part(ctx, x, b.owner, b.ids)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, a := range answers {
		for id, raw := range a {
			out[id] = raw
		}
	}
	return asked, nil
}

// Parts asks each other node for all entries of a list that it has. What a node does not
// return within half of Options.Wait is left out.
func (f *Forwarder) Parts(x *httpapi.Exchange) (map[string]json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(x.Context(), f.o.Wait/2)
	defer cancel()
	look, done := context.WithTimeout(ctx, f.o.Wait/8) // the others are asked after it
	peers, err := f.live(look)
	done()
	if err != nil {
		peers = f.o.Node.Peers() // the list is returned without the engine, too
	}
	answers := make([]map[string]json.RawMessage, len(peers))
	var group errgroup.Group
	for i, p := range peers {
		if p.Name == f.o.Node.Name() {
			continue
		}
		group.Go(func() (err error) {
			answers[i], err = f.part(ctx, x, ownerOf(p), httpapi.AllOfNode)
			return err
		})
	}
	err = group.Wait()
	out := map[string]json.RawMessage{}
	for _, a := range answers {
		maps.Copy(out, a)
	}
	return out, err
}

// part asks one node for entries of a list. It returns none where the node does not
// answer, or is not the owner any more.
func (f *Forwarder) part(ctx context.Context, x *httpapi.Exchange, owner Owner, ids []string) (map[string]json.RawMessage, error) {
	k := x.Caller()
	c := claims{Part: true, Token: k.Token, Scope: k.Scope, Roots: k.Roots, Owner: k.Owner, Remote: x.Request().RemoteAddr}
	target := x.Request().URL.Path + "?" + url.Values{"ids": {strings.Join(ids, ",")}}.Encode()
	resp, body, err := f.exchange(ctx, owner, http.MethodGet, target, c, maxPart)
	if err != nil {
		f.o.Log.Debug("no part of a list of another node", "node", owner.Node, "error", err)
		return nil, context.Cause(x.Context())
	}
	if resp.StatusCode == http.StatusOK {
		var a struct {
			Pieces map[string]json.RawMessage `json:"pieces"`
		}
		if err := json.Unmarshal(body, &a); err != nil {
			return nil, errs.Wrap(fmt.Errorf("the part of a list of node %s: %w", owner.Node, err), "")
		}
		return a.Pieces, nil
	}
	code := resp.Header.Get(httpapi.ErrorHeader)
	if resp.StatusCode == http.StatusMisdirectedRequest || resp.StatusCode == http.StatusServiceUnavailable {
		return nil, nil
	}
	return nil, &httpapi.Problem{Status: resp.StatusCode, Code: code, Detail: fmt.Sprintf("Node %s could not return its part of the list: %s", owner.Node, refusalOf(body).Detail)}
}

// exchange sends a request of this node's own to another, and again where its program
// was restarted.
func (f *Forwarder) exchange(ctx context.Context, owner Owner, method, target string, c claims, limit int64) (*http.Response, []byte, error) {
	p := f.peer(owner)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(errDead) })()
	for attempt := 0; ; attempt++ {
		run, err := p.runOf(ctx, f)
		if err != nil {
			return nil, nil, err
		}
		c.To = run
		resp, err := f.call(ctx, p, method, target, c)
		if err != nil {
			return nil, nil, err
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
		resp.Body.Close()
		if again := resp.Header.Get(runHeader); again != "" && attempt < 2 {
			p.setRun(again)
			continue
		}
		return resp, body, err
	}
}
