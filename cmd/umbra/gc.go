package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/progress"
	"umbra/internal/render"
	"umbra/internal/term"
)

func gcCommand() *cobra.Command {
	v := &verb{}
	var now, dry bool
	cmd := &cobra.Command{
		Use:   "gc [WS…]",
		Short: "Truncate old history by the settings, and free its space",
		Long: `Apply retention.age and retention.bytes to the workspaces (all, or those named by
id or directory), rewrite packs with objects that are no longer needed, and free their
space: when the grace of superseded packs ends (ten minutes), or with --now at once,
which may fail a git command that is running there. Without these settings no history
is dropped.

Ids of commits, changes and tasks stay. History that an executing, paused or pinned
task needs is kept, and so is history newer than a commit that a ref, worktree or
reflog of a user points to.

With --json: {"workspaces":[…],"freed_bytes","waiting_bytes","dry_run"}, as the
server reports each. The exit status is 1 if a workspace failed.`,
		Example: `  umbra gc --dry-run
  umbra gc . --now`,
	}
	cmd.Flags().BoolVar(&now, "now", false, "free the space at once; concurrent git commands may fail")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only report what would be removed")
	v.Connection.Flags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		ids := []string{}
		if len(args) > 0 {
			list, err := v.Named(ctx, args)
			if err != nil {
				return err
			}
			for _, w := range list {
				ids = append(ids, w.ID)
			}
		}
		return v.collect(ctx, map[string]any{"workspaces": ids, "now": now, "dry_run": dry})
	})
	return cmd
}

func (v *verb) collect(ctx context.Context, body map[string]any) error {
	bar := progress.Show("gc", v.Stderr)
	ask := func(body map[string]any, into *render.Collected) ([]byte, error) {
		return v.Client.Work(ctx, client.Request{Method: http.MethodPost, Path: client.Path("upkeep", "gc"), Body: body}, func(p client.Progress) {
			if bar.Set != nil {
				bar.Set(int(p.Done), int(p.All))
			}
		}, into)
	}
	var done render.Collected
	raw, err := ask(body, &done)
	if err == nil && len(done.Elsewhere) > 0 {
		raw, err = others(&done, raw, func(id string, into *render.Collected) ([]byte, error) {
			return ask(map[string]any{"workspaces": []string{id}, "now": body["now"], "dry_run": body["dry_run"]}, into)
		})
	}
	bar.Done()
	if err != nil {
		return err
	}
	err = v.Answer(raw, func(o *term.Output) { render.Collection(o, &done) })
	for _, w := range done.Workspaces {
		if err == nil && w.Error != nil {
			err = exitcode.With(exitcode.Failed)
		}
	}
	return err
}

// settled asks for a workspace that another node of a cluster has, up to three times while it
// moves on.
func settled(ask func() ([]byte, error)) (raw []byte, err error) {
	for range 3 {
		if raw, err = ask(); client.CodeOf(err) != "owner_moving" {
			break
		}
	}
	return raw, err
}

// others asks for the workspaces that other nodes of a cluster have, each alone, and adds
// what was done to them. One that cannot be asked for is named with the error; one that was
// deleted meanwhile is not.
func others(done *render.Collected, raw []byte, ask func(id string, into *render.Collected) ([]byte, error)) ([]byte, error) {
	type answer struct {
		Workspaces []json.RawMessage `json:"workspaces"`
		Freed      int64             `json:"freed_bytes"`
		Waiting    int64             `json:"waiting_bytes"`
		DryRun     bool              `json:"dry_run"`
	}
	var all answer
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	for _, id := range done.Elsewhere {
		var one render.Collected
		raw, err := settled(func() ([]byte, error) {
			one = render.Collected{}
			raw, err := ask(id, &one)
			if err == nil && len(one.Workspaces) == 1 && one.Workspaces[0].Error != nil {
				err = &client.Error{Code: *one.Workspaces[0].Error}
			}
			return raw, err
		})
		switch code := client.CodeOf(err); {
		case code == "workspace_not_found":
			continue
		case code != "" && raw != nil:
			err = nil // the answer has it
		case code != "":
			raw, err = json.Marshal(map[string]any{"workspaces": []any{map[string]any{"workspace": id, "error": code}}})
			if err == nil {
				err = json.Unmarshal(raw, &one)
			}
		}
		var more answer
		if err == nil {
			err = json.Unmarshal(raw, &more)
		}
		if err != nil {
			return nil, err
		}
		done.Workspaces = append(done.Workspaces, one.Workspaces...)
		done.Freed, done.Waiting = done.Freed+one.Freed, done.Waiting+one.Waiting
		all.Workspaces = append(all.Workspaces, more.Workspaces...)
	}
	done.Elsewhere, all.Freed, all.Waiting = nil, done.Freed, done.Waiting
	return json.Marshal(all)
}

// usedElsewhere asks for the workspaces that other nodes of a cluster have, each alone, and
// adds what they take; but for those that were deleted meanwhile.
func usedElsewhere(use *render.DiskUse, raw []byte, ask func(id string, into *render.DiskUse) ([]byte, error)) ([]byte, error) {
	var all struct {
		Workspaces []json.RawMessage `json:"workspaces"`
		DiskBytes  int64             `json:"disk_bytes"`
		TaskBytes  int64             `json:"task_files_bytes"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	list := all.Workspaces
	for _, id := range use.Elsewhere {
		var one render.DiskUse
		raw, err := settled(func() ([]byte, error) { return ask(id, &one) })
		if client.CodeOf(err) == "workspace_not_found" {
			continue
		}
		all.Workspaces = nil
		if err == nil {
			err = json.Unmarshal(raw, &all)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, all.Workspaces...)
		use.Workspaces = append(use.Workspaces, one.Workspaces...)
		use.DiskBytes, use.TaskBytes = use.DiskBytes+one.DiskBytes, use.TaskBytes+one.TaskBytes
	}
	all.Workspaces, all.DiskBytes, all.TaskBytes, use.Elsewhere = list, use.DiskBytes, use.TaskBytes, nil
	return json.Marshal(all)
}

func duCommand() *cobra.Command {
	v := &verb{}
	var by string
	cmd := &cobra.Command{
		Use:   "du [WS]",
		Short: "Show disk usage by workspace and task",
		Long: `Show how many bytes the workspaces (all, or the one named by id or directory) take in
the data directory: their repositories and journals, and their tasks' scratch and
artifacts.

With --by task also by task: the compressed size of the objects that its commits
brought into the history first, and its scratch and artifacts. It reads the whole
history.

With --json: as the server answers it.`,
		Example: `  umbra du
  umbra du . --by task`,
		Args: cli.Args(0, 1),
	}
	cmd.Flags().StringVar(&by, "by", "", "show it by `task` too")
	v.Connection.Flags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		query := url.Values{}
		if by != "" {
			query.Set("by", by)
		}
		if len(args) > 0 {
			w, err := v.FindWorkspace(ctx, args[0])
			if err != nil {
				return err
			}
			query.Set("workspace", w.ID)
		}
		var use render.DiskUse
		raw, err := v.Client.JSON(ctx, client.Request{Path: "/upkeep/du", Query: query}, &use)
		if err == nil && len(use.Elsewhere) > 0 {
			raw, err = usedElsewhere(&use, raw, func(id string, into *render.DiskUse) ([]byte, error) {
				query.Set("workspace", id)
				return v.Client.JSON(ctx, client.Request{Path: "/upkeep/du", Query: query}, into)
			})
		}
		if err != nil {
			return err
		}
		return v.Answer(raw, func(o *term.Output) { render.DiskUsage(o, &use) })
	})
	return cmd
}
