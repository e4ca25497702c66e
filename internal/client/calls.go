package client

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/url"
	"strconv"
)

// Workspaces lists those that the caller may see.
func (c *Client) Workspaces(ctx context.Context) (list []Workspace, raw []byte, err error) {
	var body struct {
		Workspaces []Workspace `json:"workspaces"`
	}
	raw, err = c.JSON(ctx, Request{Path: "/workspaces"}, &body)
	return body.Workspaces, raw, err
}

// Task gives one task.
func (c *Client) Task(ctx context.Context, id string) (t Task, err error) {
	_, err = c.JSON(ctx, Request{Path: Path("tasks", id)}, &t)
	return t, err
}

// Item is one element of a list, read and as it came.
type Item[T any] struct {
	Value T
	Raw   json.RawMessage
}

// Pages goes through a list whose answers are {"<name>":[…],"next":…}, page by
// page, each of at most size elements.
func Pages[T any](ctx context.Context, c *Client, path, name string, query url.Values, size int) iter.Seq2[Item[T], error] {
	return func(yield func(Item[T], error) bool) {
		q := url.Values{}
		maps.Copy(q, query)
		q.Set("limit", strconv.Itoa(size))
		for {
			var page map[string]json.RawMessage
			if _, err := c.JSON(ctx, Request{Path: path, Query: q}, &page); err != nil {
				yield(Item[T]{}, err)
				return
			}
			var list []json.RawMessage
			if err := json.Unmarshal(page[name], &list); err != nil {
				yield(Item[T]{}, err)
				return
			}
			for _, raw := range list {
				item := Item[T]{Raw: raw}
				err := json.Unmarshal(raw, &item.Value)
				if !yield(item, err) || err != nil {
					return
				}
			}
			var next string
			if json.Unmarshal(page["next"], &next) != nil || next == "" {
				return
			}
			q.Set("after", next)
		}
	}
}
