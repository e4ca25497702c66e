package peers

import (
	"context"
	"fmt"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// NameApply is the subject's name.
const NameApply = "umbra's write service, in process"

type apply struct{ w *workspace.Workspace }

// Apply makes the subject: history and the file, without HTTP.
func Apply(p Params) (measure.Subject, error) {
	root, err := project(p, "apply-work")
	if err != nil {
		return nil, err
	}
	m, err := NewManager(p)
	if err != nil {
		return nil, err
	}
	w, _, err := m.Open(p.Ctx, root, workspaces.OpenOptions{Force: true})
	if err != nil {
		return nil, err
	}
	p.Env.Defer("workspace", func() error { w.Release(); return nil })
	_, err = w.Store().PutTask(p.Ctx, message.Info{TaskID: BenchTask, Goal: "measure", Status: "executing"}, gitstore.ID{})
	return &apply{w}, err
}

// NewManager makes a write service on a data directory of its own.
func NewManager(p Params) (*workspaces.Manager, error) {
	data, err := p.Env.Dir("manager")
	if err != nil {
		return nil, err
	}
	m, err := workspaces.NewManager(workspaces.Options{DataDir: data, Records: &workspaces.MemRecords{}})
	if err != nil {
		return nil, err
	}
	p.Env.Defer("write service", func() error { return m.Close(context.Background()) })
	return m, nil
}

func (a *apply) Name() string    { return NameApply }
func (a *apply) Durable() string { return durableUmbra }

func (a *apply) Change(ctx context.Context, _ int, c corpus.Change) error {
	res, err := a.w.Apply(ctx, workspace.Request{
		By:  workspace.By{TaskID: BenchTask, SubtaskID: "loop", Actor: "bench"},
		Ops: []workspace.Op{{Kind: workspace.OpWrite, Path: wspath.Path(c.Path), Data: c.Data}},
	})
	if err == nil && res.Commit.IsZero() {
		err = fmt.Errorf("%s was as it should become", c.Path)
	}
	return err
}
