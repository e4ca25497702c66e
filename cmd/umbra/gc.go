package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/client"
	"umbra/internal/retention"
	"umbra/internal/term"
)

func gcCommand() *cobra.Command {
	v := &verb{}
	var now, dry bool
	cmd := &cobra.Command{
		Use:   "gc [WS…]",
		Short: "Truncate old history by the settings, and free its space",
		Long: `Apply retention.age and retention.bytes to the workspaces (all, or those named by
id or folder), write packs anew in which anything stands that is needed no more,
and free the room: when the grace of superseded packs ends (ten minutes), or with
--now at once, which may fail a git command that is running there. Without these
settings no history is dropped.

Ids of commits, changes and tasks stay. No history is dropped that a task needs
which is executing, paused or pinned, nor any newer than a commit that a ref,
worktree or reflog of a person stands on.

With --json: {"workspaces":[…],"freed_bytes","waiting_bytes","dry_run"}, as the
server reports each. The exit status is 1 if a workspace could not be done.`,
		Example: `  umbra gc --dry-run
  umbra gc . --now`,
	}
	cmd.Flags().BoolVar(&now, "now", false, "free the space at once; concurrent git commands may fail")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only report what would be removed")
	v.connection.flags(cmd.Flags())
	v.outputFlags(cmd.Flags())
	cmd.RunE = v.action(func(ctx context.Context, args []string) error {
		ids := []string{}
		if len(args) > 0 {
			list, err := v.named(ctx, args)
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

type collected struct {
	Workspaces []struct {
		Workspace string  `json:"workspace"`
		Root      *string `json:"root"`
		Commits   uint64  `json:"commits_dropped"`
		Tasks     int     `json:"tasks_dropped"`
		Cut       int     `json:"tasks_cut"`
		Freed     int64   `json:"freed_bytes"`
		Waiting   int64   `json:"waiting_bytes"`
		Error     *string `json:"error"`
	} `json:"workspaces"`
	Freed   int64 `json:"freed_bytes"`
	Waiting int64 `json:"waiting_bytes"`
	DryRun  bool  `json:"dry_run"`
}

func (v *verb) collect(ctx context.Context, body map[string]any) error {
	bar := showProgress("gc", v.stderr)
	var done collected
	raw, err := v.client.Work(ctx, client.Request{Method: http.MethodPost, Path: client.Path("upkeep", "gc"), Body: body}, func(p client.Progress) {
		if bar.tell != nil {
			bar.tell(int(p.Done), int(p.All))
		}
	}, &done)
	bar.done()
	if err != nil {
		return err
	}
	if v.json {
		err = v.printJSON(raw)
	} else {
		err = v.print(false, func(o *term.Output) error {
			writeCollected(o, &done)
			return nil
		})
	}
	for _, w := range done.Workspaces {
		if err == nil && w.Error != nil {
			err = exitError{exitFailed}
		}
	}
	return err
}

func writeCollected(o *term.Output, done *collected) {
	for _, w := range done.Workspaces {
		name := w.Workspace
		if w.Root != nil {
			name += "  " + term.Name(*w.Root)
		}
		if w.Error != nil {
			o.Printf("%s  %s: %s\n", o.Paint(term.Removed, "bad"), name, *w.Error)
			continue
		}
		would := ""
		if done.DryRun {
			would = " would be"
		}
		o.Printf("%s: %s%s dropped", name, count(int(w.Commits), "commit", "commits"), would)
		if w.Tasks+w.Cut > 0 {
			o.Printf(" (%s wholly, %s in part)", count(w.Tasks, "task", "tasks"), count(w.Cut, "task", "tasks"))
		}
		o.Printf(", %s\n", freedText(w.Freed, w.Waiting, done.DryRun))
	}
	if len(done.Workspaces) != 1 {
		o.Printf("%s in all\n", freedText(done.Freed, done.Waiting, done.DryRun))
	}
}

func freedText(freed, waiting int64, dry bool) string {
	switch {
	case dry:
		return bytesText(waiting) + " would be freed"
	case waiting > 0 && freed == 0:
		return bytesText(waiting) + " of superseded packs go when their grace ends"
	case waiting > 0:
		return bytesText(freed) + " freed, " + bytesText(waiting) + " of superseded packs go when their grace ends"
	}
	return bytesText(freed) + " freed"
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
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar(&by, "by", "", "show it by `task` too")
	v.connection.flags(cmd.Flags())
	v.outputFlags(cmd.Flags())
	cmd.RunE = v.action(func(ctx context.Context, args []string) error {
		query := url.Values{}
		if by != "" {
			query.Set("by", by)
		}
		if len(args) > 0 {
			w, err := v.findWorkspace(ctx, args[0])
			if err != nil {
				return err
			}
			query.Set("workspace", w.ID)
		}
		var told diskUse
		raw, err := v.client.JSON(ctx, client.Request{Path: "/upkeep/du", Query: query}, &told)
		if err != nil {
			return err
		}
		if v.json {
			return v.printJSON(raw)
		}
		return v.print(false, func(o *term.Output) error {
			writeDiskUse(o, &told)
			return nil
		})
	})
	return cmd
}

type diskUse struct {
	Workspaces []struct {
		Workspace string  `json:"workspace"`
		Root      *string `json:"root"`
		DiskBytes int64   `json:"disk_bytes"`
		TaskBytes int64   `json:"task_files_bytes"`
		Other     *int64  `json:"other_bytes"`
		Tasks     []struct {
			TaskID    string `json:"task_id"`
			Bytes     int64  `json:"bytes"`
			Scratch   int64  `json:"scratch_bytes"`
			Artifacts int64  `json:"artifacts_bytes"`
		} `json:"tasks"`
	} `json:"workspaces"`
	DiskBytes int64 `json:"disk_bytes"`
	TaskBytes int64 `json:"task_files_bytes"`
}

func writeDiskUse(o *term.Output, told *diskUse) {
	rows := [][]string{{"HISTORY", "TASKS' FILES", "WORKSPACE", "ROOT"}}
	for _, w := range told.Workspaces {
		root := "(virtual)"
		if w.Root != nil {
			root = term.Name(*w.Root)
		}
		rows = append(rows, []string{bytesText(w.DiskBytes), bytesText(w.TaskBytes), w.Workspace, root})
		for _, t := range w.Tasks {
			rows = append(rows, []string{"  " + bytesText(t.Bytes), bytesText(t.Scratch + t.Artifacts), "  " + t.TaskID, ""})
		}
		if w.Other != nil {
			rows = append(rows, []string{"  " + bytesText(*w.Other), "", "  (no task)", ""})
		}
	}
	rows = append(rows, []string{bytesText(told.DiskBytes), bytesText(told.TaskBytes), "in all", ""})
	o.Table(rows)
}

// retentionOf starts what drops old history.
func retentionOf(cfg config.Config, s *services, log *slog.Logger, d *deps) *retention.Service {
	kept := retention.New(retention.Options{Workspaces: s.workspaces, Tasks: s.tasks, Age: cfg.Retention.Age, Bytes: int64(cfg.Retention.Bytes),
		Interval: cfg.Retention.Interval, Log: log})
	d.closers = append(d.closers, func(context.Context) error { kept.Close(); return nil })
	return kept
}
