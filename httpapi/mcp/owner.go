package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/toolset"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
)

// In a cluster a session is at one node, and the workspace of a call may be at another: the
// call alone goes there, and what belongs to the session stays.
const (
	ownerPath = "/cluster/tool"
	maxFacts  = 64 << 10 // bytes of a call without its arguments
)

// ownerCall is a call, or the reading of a resource, for the owner of its workspace.
type ownerCall struct {
	Toolset   string           `json:"toolset"`
	Workspace string           `json:"workspace"`
	Resource  []byte           `json:"resource,omitempty"` // a path, which need not be UTF-8; no tool is called
	Name      string           `json:"name,omitempty"`
	Arguments json.RawMessage  `json:"arguments,omitempty"`
	TaskID    string           `json:"task,omitempty"`
	SubtaskID string           `json:"subtask,omitempty"`
	Actor     string           `json:"actor,omitempty"`
	Client    toolset.Client   `json:"client"`
	Key       *httpapi.SentKey `json:"key,omitempty"`
}

// ownerAnswer is what came of it.
type ownerAnswer struct {
	Answer  toolset.Answer `json:"answer"`
	Path    string         `json:"path,omitempty"`
	Data    []byte         `json:"data,omitempty"`
	Message *mount.Message `json:"message,omitempty"` // why a resource is not read
}

// atOwner carries o out at the owner of its workspace, where that is another node.
func (e *endpoint) atOwner(ctx context.Context, k *caller, o ownerCall, reads bool, progress func(httpapi.Progress)) (a ownerAnswer, sent bool, err error) {
	o.Toolset = e.id
	if k.idem != nil && o.Resource == nil {
		key, err := k.idem.Sent()
		if err != nil {
			return a, false, err
		}
		o.Key = &key
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(o); err != nil {
		return a, false, errs.Wrap(err, "")
	}
	raw, sent, err := e.d.o.AtOwner(ctx, httpapi.OwnerCall{Workspace: o.Workspace, Path: ownerPath, Body: body.Bytes(), Caller: k.who, RequestID: k.requestID,
		Remote: k.remote, Reads: reads, Keyed: o.Key != nil, Progress: progress})
	if err == nil && sent {
		err = httpapi.OwnerAnswered(ctx, raw, &a)
	}
	return a, sent, err
}

// call carries a tool's call out, at the owner of its workspace.
func (e *endpoint) call(ctx context.Context, k *caller, c toolset.Call) (toolset.Answer, error) {
	if e.d.o.AtOwner == nil || k == nil {
		return e.d.o.Toolsets.Call(ctx, e.id, c)
	}
	ws, extra := e.d.o.Toolsets.Place(e.id, c.Name, c.Args)
	if ws == "" || extra {
		return e.d.o.Toolsets.Call(ctx, e.id, c)
	}
	var progress func(httpapi.Progress)
	if c.Progress != nil {
		progress = func(p httpapi.Progress) { c.Progress(p.Done, p.All, p.Step) }
	}
	a, sent, err := e.atOwner(ctx, k, ownerCall{Workspace: ws, Name: c.Name, Arguments: c.Args, TaskID: c.TaskID, SubtaskID: c.SubtaskID, Actor: c.Actor, Client: c.Client},
		c.ReadOnly || reads(c.Name), progress)
	switch {
	case !sent && err == nil:
		return e.d.o.Toolsets.Call(ctx, e.id, c)
	case errs.Is(err, errs.Unavailable) && ctx.Err() == nil:
		return toolset.Answer{Text: "Error: " + detail(err), Failed: true, Unsettled: true}, nil
	case err != nil:
		return toolset.Answer{}, err
	}
	return a.Answer, nil
}

// reads reports whether calls of a tool change nothing. The owner may be a newer program, with
// tools that this one does not know.
func reads(name string) bool {
	t := tool.Find(tool.All(), name)
	return t != nil && t.Hints.ReadOnly
}

func detail(err error) string {
	e, _ := errors.AsType[*errs.Error](errs.Wrap(err, ""))
	return e.Detail
}

// read reads a resource, at the owner of its workspace.
func (e *endpoint) read(ctx context.Context, k *caller, path string) (toolset.Content, error) {
	if e.d.o.AtOwner != nil && k != nil {
		args, err := json.Marshal(map[string]string{"path": path})
		if err != nil {
			return toolset.Content{}, errs.Wrap(err, "")
		}
		if ws, _ := e.d.o.Toolsets.Place(e.id, tool.ReadFile, args); ws != "" {
			a, sent, err := e.atOwner(ctx, k, ownerCall{Workspace: ws, Resource: []byte(path)}, true, nil)
			switch {
			case err != nil:
				return toolset.Content{}, err
			case sent && a.Message != nil:
				return toolset.Content{}, *a.Message
			case sent:
				return toolset.Content{Path: a.Path, Data: a.Data}, nil
			}
		}
	}
	return e.d.o.Toolsets.ReadContent(ctx, e.id, path, k.sees())
}

// serveForOwner carries out what another node sends for one of its sessions. The caller's
// rights count here as they do there.
func (d *Dialect) serveForOwner(c *gin.Context) error {
	var o ownerCall
	body, err := httpapi.ReadBody(c)
	if err == nil {
		err = errs.Wrap(json.Unmarshal(body, &o), "") // of another node: it may be a newer program
	}
	if err != nil {
		return err
	}
	who := httpapi.CallerOf(c)
	return httpapi.ServeForOwner(c, o.Workspace, func(ctx context.Context, progress func(httpapi.Progress)) (any, error) {
		var a ownerAnswer
		if o.Resource != nil {
			f, err := d.o.Toolsets.ReadContent(ctx, o.Toolset, string(o.Resource), who.Sees)
			if m, ok := errors.AsType[mount.Message](err); ok {
				a.Message, err = &m, nil
			}
			a.Path, a.Data = f.Path, f.Data
			return a, err
		}
		call := toolset.Call{Name: o.Name, Args: o.Arguments, TaskID: o.TaskID, SubtaskID: o.SubtaskID, Actor: o.Actor, Client: o.Client, RequestID: httpapi.RequestID(c),
			ReadOnly: who.Scope < httpapi.ScopeWrite, Sees: who.Sees, Progress: func(done, total int64, what string) { progress(httpapi.Progress{Step: what, Done: done, All: total}) }}
		if o.Key != nil {
			defer httpapi.BeginSent(c, *o.Key)()
			call.Key = o.Key.Hash
		}
		var err error
		a.Answer, err = d.o.Toolsets.Call(ctx, o.Toolset, call)
		return a, err
	})
}
