package forward

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"

	"umbra/httpapi"
	"umbra/internal/errs"
)

// Leased is httpapi.Cluster's.
func (f *Forwarder) Leased() error {
	if held, _ := f.o.Node.Lease(); !held {
		return unleased(nil)
	}
	return nil
}

// Call is httpapi.AtOwner. While ownership moves it waits, for Options.Wait at most. Where the
// engine does not say who owns the workspace, this node does the work, or finds that it cannot.
func (f *Forwarder) Call(ctx context.Context, o httpapi.OwnerCall) (answer json.RawMessage, sent bool, err error) {
	until := time.Now().Add(f.o.Wait)
	uncertain := false
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		owner, err := f.o.Node.Owner(ctx, o.Workspace)
		if err != nil || owner.Self {
			return nil, false, nil
		}
		answer, again, err := f.callAt(ctx, owner, o, &uncertain)
		switch {
		case ctx.Err() != nil:
			return nil, true, errs.Wrap(context.Cause(ctx), "")
		case err == nil && !again:
			f.o.Meter.Answered.Add(1)
			return answer, true, nil
		case again && errors.Is(err, errOlder):
			return nil, false, nil
		case !again || time.Now().After(until):
			if again {
				err = moving()
			}
			if uncertain && (slices.Contains(refusals, errs.CodeOf(err)) || errs.CodeOf(err) == "outcome_unknown") {
				f.o.Meter.Unknown.Add(1)
				err = unknown(err)
			}
			return nil, true, err
		}
		f.o.Log.Debug("a call is not answered by the owner of its workspace", "workspace", o.Workspace, "node", owner.Node, "error", err)
		f.o.Node.Forget(o.Workspace)
		f.o.Meter.Repeated.Add(1)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, true, errs.Wrap(context.Cause(ctx), "")
		}
	}
}

// errOlder is for a node that runs an older program, without the route.
var errOlder = errors.New("the node does not know the route")

// callAt sends a call to one node. again says that nothing was done, or that the call can be
// sent twice; uncertain is set where it was sent, changes something and was not answered.
func (f *Forwarder) callAt(ctx context.Context, owner Owner, o httpapi.OwnerCall, uncertain *bool) (answer json.RawMessage, again bool, err error) {
	began := time.Now()
	p := f.peer(owner)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(errDead) })()
	run, err := p.runOf(ctx, f)
	if err != nil {
		return nil, true, err
	}
	if !p.begin() {
		return nil, true, errLeft
	}
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	k := o.Caller
	resp, err := f.exchangeBody(traced, p, o, claims{To: run, Claim: owner.Epoch == 0 && !owner.Pinned, Token: k.Token, Scope: k.Scope, Roots: k.Roots, Owner: k.Owner, Remote: o.Remote})
	p.answered()
	lost := func(err error) (json.RawMessage, bool, error) {
		*uncertain = *uncertain || sent.Load() && !o.Reads
		if !sent.Load() || o.Reads || o.Keyed {
			return nil, true, err
		}
		return nil, false, unknown(err)
	}
	if err != nil {
		return lost(err)
	}
	defer resp.Body.Close()
	f.o.Meter.Took.Since(began)
	if resp.StatusCode == http.StatusMisdirectedRequest {
		p.setRun(resp.Header.Get(runHeader))
		return nil, true, errors.New("it does not own the workspace")
	}
	status, code := resp.StatusCode, resp.Header.Get(httpapi.ErrorHeader)
	if status == http.StatusNotFound && code == "not_found" {
		return nil, true, errOlder
	}
	if status != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxWhole)) // the status is enough
		return refused(status, code, body)
	}
	lines := bufio.NewReader(resp.Body)
	for {
		raw, err := lines.ReadBytes('\n')
		if err != nil {
			return lost(err)
		}
		var line struct {
			Progress *httpapi.Progress `json:"progress"`
			Done     json.RawMessage   `json:"done"`
			Status   int               `json:"status"`
			Error    string            `json:"error"`
		}
		switch err := json.Unmarshal(raw, &line); {
		case err != nil:
			return nil, false, errs.Wrap(err, "")
		case line.Progress != nil:
			if o.Progress != nil {
				o.Progress(*line.Progress)
			}
		case line.Done != nil:
			return line.Done, false, nil
		default:
			return refused(line.Status, line.Error, raw)
		}
	}
}

// refused is the error that a node answered. again says that another node, or the same one
// soon, may answer otherwise, and that nothing was done.
func refused(status int, code string, body []byte) (answer json.RawMessage, again bool, err error) {
	r := refusalOf(body)
	if code = cmp.Or(code, r.Error); code == "" {
		code, r.Detail = "node_failed", fmt.Sprintf("The node that has the workspace answered with status %d.", status)
	}
	again = code == "owner_moving" || code == "starting"
	return nil, again, &errs.Error{Kind: httpapi.KindOfStatus(status), Code: code, Detail: r.Detail}
}

// exchangeBody sends a call as a request of this node's own.
func (f *Forwarder) exchangeBody(ctx context.Context, p *peer, o httpapi.OwnerCall, c claims) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.address+o.Path, bytes.NewReader(o.Body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Request-Id", o.RequestID)
	return f.sendOwn(p, r, c)
}
