package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"umbra/internal/client"
	"umbra/internal/term"
)

func summaryCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "summary [PATH]",
		Short: "Show the net changes of a task, by file",
		Long: `Show what a task's work comes to, file by file: A added, M modified, D deleted,
R renamed, with the lines added and removed. A file that is as it was before is
not listed; "mixed" marks one that others changed in between.

Without --task it is the workspace's only task. With --json: the server's
changed-files summary.`,
		Example: `  umbra summary --task a1b2c3d4
  umbra summary --task a1b2c3d4 --subtask add-types src/`,
		Args: cobraArgs(0, 1),
	}
	v.connection.flags(cmd.Flags())
	v.workspaceFlag(cmd.Flags())
	v.taskFlags(cmd.Flags())
	v.outputFlags(cmd.Flags())
	v.pagerFlag(cmd.Flags())
	cmd.RunE = v.action(func(ctx context.Context, args []string) error {
		_, task, p, err := v.pickFiles(ctx, args)
		if err != nil {
			return err
		}
		sum, raw, err := v.summary(ctx, task)
		if err != nil {
			return err
		}
		if v.json {
			if p != "" {
				if raw, err = narrow(raw, p); err != nil {
					return err
				}
			}
			return v.printJSON(raw)
		}
		return v.print(true, func(o *term.Output) error {
			writeSummary(o, under(sum.Files, p))
			return nil
		})
	})
	return cmd
}

// pickFiles settles the workspace, the task and the path of a verb that takes
// them.
func (v *verb) pickFiles(ctx context.Context, args []string) (w place, task, p string, err error) {
	if w, err = v.pickWorkspace(ctx); err != nil {
		return
	}
	if task, err = v.pickTask(ctx, w); err != nil {
		return
	}
	p, err = onePath(w, args)
	return
}

// summary reads a task's summary, or that of the one subtask.
func (v *verb) summary(ctx context.Context, task string) (sum client.Summary, raw []byte, err error) {
	q := url.Values{}
	if v.subtask != "" {
		q.Set("subtask_id", v.subtask)
	}
	raw, err = v.client.JSON(ctx, client.Request{Path: client.Path("tasks", task, "files"), Query: q}, &sum)
	return sum, raw, err
}

// under gives the files at or under a path, by either name.
func under(files []client.SummaryFile, p string) []client.SummaryFile {
	var out []client.SummaryFile
	for _, f := range files {
		if within(f.Path, p) || f.From != "" && within(f.From, p) {
			out = append(out, f)
		}
	}
	return out
}

// narrow leaves in a summary what is at or under a path.
func narrow(raw []byte, p string) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	filter := func(list string, wanted func(json.RawMessage) bool) {
		var items []json.RawMessage
		if json.Unmarshal(all[list], &items) != nil {
			return
		}
		kept := []json.RawMessage{}
		for _, item := range items {
			if wanted(item) {
				kept = append(kept, item)
			}
		}
		all[list], _ = json.Marshal(kept) // raw JSON, which is valid
	}
	// The lists hold names as they travel; the files tell their encoding.
	names := map[string]bool{}
	filter("files", func(item json.RawMessage) bool {
		var f client.SummaryFile
		var wire struct {
			Path string `json:"path"`
		}
		if json.Unmarshal(item, &f) != nil || json.Unmarshal(item, &wire) != nil || len(under([]client.SummaryFile{f}, p)) == 0 {
			return false
		}
		names[wire.Path] = true
		return true
	})
	for _, list := range []string{"created", "modified", "deleted"} {
		filter(list, func(item json.RawMessage) bool {
			var name string
			return json.Unmarshal(item, &name) == nil && names[name]
		})
	}
	filter("renamed", func(item json.RawMessage) bool {
		var r struct {
			To string `json:"to"`
		}
		return json.Unmarshal(item, &r) == nil && names[r.To]
	})
	return json.Marshal(all)
}

// letters are git's (git-diff(1), --name-status).
var letters = map[string]struct {
	letter string
	style  term.Style
}{
	"created":  {"A", term.Added},
	"modified": {"M", term.Plain},
	"deleted":  {"D", term.Removed},
	"renamed":  {"R", term.Frag},
}

func writeSummary(o *term.Output, files []client.SummaryFile) {
	width := 0
	for _, f := range files {
		width = max(width, len([]rune(fileName(f))))
	}
	added, removed := 0, 0
	for _, f := range files {
		l := letters[f.Status]
		if l.letter == "" {
			l.letter = "?"
		}
		counts := o.Paint(term.Added, fmt.Sprintf("+%d", f.Additions)) + " " + o.Paint(term.Removed, fmt.Sprintf("-%d", f.Deletions))
		if f.Binary {
			counts = "binary"
		}
		name := fileName(f)
		o.Printf("%s  %s%s  %s", o.Paint(l.style, l.letter), name, strings.Repeat(" ", width-len([]rune(name))), counts)
		if f.Mixed {
			o.Printf("  mixed")
		}
		if len(f.Subtasks) > 0 {
			o.Printf("  %s", o.Paint(term.Dim, strings.Join(f.Subtasks, ", ")))
		}
		o.Printf("\n")
		added += f.Additions
		removed += f.Deletions
	}
	if len(files) == 0 {
		o.Printf("no files changed\n")
		return
	}
	o.Printf("%s changed, %d added and %d removed\n", count(len(files), "file", "files"), added, removed)
}

func fileName(f client.SummaryFile) string {
	if f.From != "" {
		return moved(f.From, f.Path)
	}
	return term.Name(f.Path)
}

// count is "1 file", "2 files".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
