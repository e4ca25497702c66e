package peers

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// Write makes a change in a subtask of a task.
func (s *Server) Write(ctx context.Context, t Task, subtask string, c corpus.Change) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL+"/tasks/"+t.ID+"/content?path="+url.QueryEscape(c.Path), bytes.NewReader(c.Data))
	if err != nil {
		return err
	}
	req.Header.Set("X-Subtask-Id", subtask)
	return expect(s.client, req, nil, http.StatusOK, http.StatusCreated)
}

// Revert takes a subtask back, of so many changes.
func (s *Server) Revert(ctx context.Context, t Task, subtask string, changes int) error {
	var done struct {
		Reverted int `json:"entries_reverted"`
	}
	err := s.post(ctx, "/tasks/"+t.ID+"/subtasks/"+subtask+"/revert", struct{}{}, &done, http.StatusOK)
	if err == nil && done.Reverted != changes {
		err = fmt.Errorf("%d entries were reverted", done.Reverted)
	}
	return err
}

// reverts is a subject that takes subtasks back.
type reverts struct {
	p     Params
	s     *Server
	t     Task
	files int
	n     int // subtasks so far
}

// Reverts makes the subject: each change is the revert of a subtask that changed so many files.
func Reverts(p Params, files int) (measure.Subject, error) {
	s, t, err := NewWorkspace(p)
	return &reverts{p: p, s: s, t: t, files: files}, err
}

func (r *reverts) Name() string    { return NameServer }
func (r *reverts) Durable() string { return durableUmbra }
func (r *reverts) OneAtATime()     {}

func (r *reverts) subtask() string { return fmt.Sprint("round-", r.n) }

// Prepare changes the files.
func (r *reverts) Prepare(corpus.Change) error {
	r.n++
	for i := range r.files {
		if err := r.s.Write(r.p.Ctx, r.t, r.subtask(), corpus.Change{Path: corpus.Path(i), Data: corpus.Content(i, uint64(r.n))}); err != nil {
			return err
		}
	}
	return nil
}

func (r *reverts) Change(ctx context.Context, _ int, _ corpus.Change) error {
	return r.s.Revert(ctx, r.t, r.subtask(), r.files)
}

// starts is a subject that starts the server and makes a change.
type starts struct {
	p     Params
	s     *Server
	tasks []Task
	n     int // starts so far
}

// startFiles is how many files a workspace of Starts has.
const startFiles = 20

// Starts makes the subject: each change is a start of the server, which has so many
// workspaces, and a change in one of them.
func Starts(p Params, workspaces int) (measure.Subject, error) {
	s, err := NewServer(p)
	if err != nil {
		return nil, err
	}
	x := &starts{p: p, s: s}
	for range workspaces {
		folder, err := p.Env.Dir("workspace")
		if err != nil {
			return nil, err
		}
		if err := corpus.Write(p.Ctx, folder, startFiles); err != nil {
			return nil, err
		}
		t, err := s.Open(p.Ctx, folder)
		if err != nil {
			return nil, err
		}
		x.tasks = append(x.tasks, t)
	}
	return x, nil
}

func (x *starts) Name() string    { return filepath.Base(x.p.Env.Umbra) }
func (x *starts) Durable() string { return durableUmbra }
func (x *starts) OneAtATime()     {}

// Prepare stops the server.
func (x *starts) Prepare(corpus.Change) error { return x.s.Stop() }

func (x *starts) Change(ctx context.Context, client int, c corpus.Change) (err error) {
	if x.s, err = StartServer(ctx, x.p.Env, x.s.Data, 1); err != nil {
		return err
	}
	x.n++
	i := x.n % startFiles
	return x.s.Changes(x.tasks[x.n%len(x.tasks)]).Change(ctx, client, corpus.Change{Path: corpus.Path(i), Data: corpus.Content(i, uint64(x.n))})
}
