package peers

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"umbra/tests/bench/corpus"
)

// The names of the subjects that call tools, and of the read that they are compared with.
const (
	NameWriteTool = "umbra, `write_file` of a toolset"
	NameReadTool  = "umbra, `read_file` of a toolset"
	NameContent   = "umbra, `GET /tasks/{id}/content`"
)

// Tool is a subject that calls one tool of a toolset for each file.
type Tool struct {
	name, durable string
	call          func(ctx context.Context, c corpus.Change) error
}

func (t *Tool) Name() string    { return t.name }
func (t *Tool) Durable() string { return t.durable }

// Change calls the tool.
func (t *Tool) Change(ctx context.Context, _ int, c corpus.Change) error { return t.call(ctx, c) }

// Tools mounts the directory of a task in a toolset of that task, and returns the
// subjects that write and read files there.
func (s *Server) Tools(ctx context.Context, t Task) (write, read *Tool, err error) {
	var set struct {
		ID string `json:"id"`
	}
	mount := map[string]any{"prefix": "/", "scope": "READ_WRITE", "store": map[string]string{"type": "physical", "root": t.Folder}}
	if err := s.post(ctx, "/toolsets", map[string]any{"mounts": []any{mount}, "taskId": t.ID}, &set, http.StatusCreated); err != nil {
		return nil, nil, err
	}
	call := func(ctx context.Context, tool string, arguments map[string]string) error {
		var answer struct{ Status, Content string }
		err := s.post(ctx, "/toolsets/"+set.ID+"/call", map[string]any{"name": tool, "arguments": arguments}, &answer, http.StatusOK)
		if err == nil && answer.Status != "success" {
			err = fmt.Errorf("%s: %s", tool, answer.Content)
		}
		return err
	}
	write = &Tool{NameWriteTool, durableUmbra, func(ctx context.Context, c corpus.Change) error {
		return call(ctx, "write_file", map[string]string{"path": "/" + c.Path, "content": string(c.Data)})
	}}
	read = &Tool{NameReadTool, "–", func(ctx context.Context, c corpus.Change) error {
		return call(ctx, "read_file", map[string]string{"path": "/" + c.Path})
	}}
	return write, read, nil
}

// Content gives the subject that reads files of a task in the tasks dialect.
func (s *Server) Content(t Task) *Reading {
	return &Reading{name: NameContent, client: s.client, url: func(path string) string {
		return s.URL + "/tasks/" + t.ID + "/content?path=" + url.QueryEscape(path)
	}}
}
