package demo

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"umbra/internal/client"
	"umbra/internal/term"
)

// cleanUp takes away all that demos have left: workspaces with their history and
// tasks, and the projects.
func (d *Demo) cleanUp(ctx context.Context, c *client.Client) error {
	list, err := demoTasks(ctx, c)
	if err != nil {
		return err
	}
	removed := []string{}
	for _, t := range list {
		if slices.Contains(removed, t.WorkspaceID) {
			continue
		}
		if t.Status == "executing" || t.Status == "paused" { // of a demo that was cut short
			ended := client.Request{Method: http.MethodPatch, Path: client.Path("tasks", t.ID), Body: map[string]any{"status": "cancelled"}}
			if _, err := c.JSON(ctx, ended, nil); err != nil {
				return err
			}
		}
		res, err := c.Do(ctx, client.Request{Method: http.MethodDelete, Path: client.Path("workspaces", t.WorkspaceID), Query: url.Values{"history": {"delete"}}})
		if err != nil {
			return err
		}
		if err := errors.Join(res.Body.Close(), removeProject(t.Workspace)); err != nil {
			return err
		}
		removed = append(removed, t.WorkspaceID)
	}
	return d.reportRemoved(removed)
}

// removeProject removes a project of the demo's, and nothing else: the folder's
// name and place are the demo's own.
func removeProject(root *string) error {
	if root == nil {
		return nil
	}
	parent := filepath.Dir(*root)
	if filepath.Base(*root) != demoProject || !strings.HasPrefix(filepath.Base(parent), demoPrefix) {
		return nil
	}
	temp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil || filepath.Dir(parent) != temp {
		return nil // another machine's, or another time's
	}
	return os.RemoveAll(parent)
}

func (d *Demo) reportRemoved(removed []string) error {
	if d.JSON {
		raw, err := json.Marshal(map[string]any{"removed": removed})
		if err != nil {
			return err
		}
		_, err = d.Stdout.Write(append(raw, '\n'))
		return err
	}
	o := term.Open(d.Stdout, term.Options{Color: term.Color(d.Color)})
	for _, id := range removed {
		o.Printf("removed %s\n", id)
	}
	if len(removed) == 0 {
		o.Printf("no demo has left anything\n")
	}
	return o.Close()
}
