package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/render"
	"umbra/internal/term"
)

// patchType is what a server calls a patch.
const patchType = "text/x-diff"

func diffCommand() *cobra.Command {
	v := &verb{}
	d := &diffRange{context: -1}
	cmd := &cobra.Command{
		Use:   "diff [PATH]",
		Short: "Show what a task changed, as a patch",
		Long: `Show what a task did to the files, as a patch that git apply takes. Where others
changed the same files in between, their changes are taken out.

With --from and --to it is the task's files as they are in two states, no matter who
changed them: base, head, the number of a change, or a commit's full id.

Without --task it is the workspace's only task. With --json: the server's diff,
for a directory {"files":[…]} of them.`,
		Example: `  umbra diff --task a1b2c3d4
  umbra diff --task a1b2c3d4 src/app.ts
  umbra diff --task a1b2c3d4 | git apply -R
  umbra diff --task a1b2c3d4 --from 4 --to head`,
		Args: cli.Args(0, 1),
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.TaskFlags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	v.PagerFlag(cmd.Flags())
	d.flags(cmd)
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		if v.Subtask != "" && (d.from != "" || d.to != "") {
			return exitcode.Usage(errors.New("--subtask has a range of its own: not with --from or --to"))
		}
		_, task, p, err := v.PickFiles(ctx, args)
		if err != nil {
			return err
		}
		q, err := d.query()
		if err != nil {
			return err
		}
		if v.Subtask != "" {
			q.Set("subtask_id", v.Subtask)
		}
		paths, err := v.diffed(ctx, task, p, d)
		if err != nil {
			return err
		}
		route := client.Path("tasks", task, "diff")
		if v.JSON {
			return v.diffJSON(ctx, route, q, p, paths)
		}
		return v.Print(true, func(o *term.Output) error {
			for _, p := range paths {
				if err := v.patch(ctx, o, route, q, p); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return cmd
}

// diffRange is what is compared, and how.
type diffRange struct {
	from, to string
	context  int
}

func (d *diffRange) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.from, "from", "", "the state to begin at (`REV`)")
	cmd.Flags().StringVar(&d.to, "to", "", "the state to end at (`REV`)")
	d.contextFlag(cmd)
}

func (d *diffRange) contextFlag(cmd *cobra.Command) {
	cmd.Flags().IntVarP(&d.context, "unified", "U", -1, "`N` lines of context")
	cmd.Flags().Lookup("unified").DefValue = "3"
}

func (d *diffRange) query() (url.Values, error) {
	q := url.Values{}
	if d.from != "" {
		q.Set("from", d.from)
	}
	if d.to != "" {
		q.Set("to", d.to)
	}
	if d.context >= 0 {
		q.Set("context", strconv.Itoa(d.context))
	} else if d.context != -1 {
		return nil, exitcode.Usage(fmt.Errorf("--unified must be 0 or more, not %d", d.context))
	}
	return q, nil
}

// diffed gives the paths to be asked for, one by one; empty represents all. A
// folder is the files in it that the task changed.
func (v *verb) diffed(ctx context.Context, task, p string, d *diffRange) ([]string, error) {
	if p == "" || d.from != "" || d.to != "" {
		return []string{p}, nil
	}
	sum, _, err := v.summary(ctx, task)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, f := range sum.Files {
		if f.Path == p {
			return []string{p}, nil
		}
		if render.Within(f.Path, p) || f.From != "" && render.Within(f.From, p) {
			paths = append(paths, f.Path)
		}
	}
	if len(paths) == 0 {
		return []string{p}, nil // nothing, or a file that does not exist: the server reports which
	}
	return paths, nil
}

func withPath(q url.Values, p string) url.Values {
	if p == "" {
		return q
	}
	out := url.Values{"path": {p}}
	maps.Copy(out, q)
	return out
}

// patch copies one patch.
func (v *verb) patch(ctx context.Context, o *term.Output, route string, q url.Values, p string) error {
	res, err := v.Client.Do(ctx, client.Request{Path: route, Query: withPath(q, p), Accept: patchType})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return o.Diff(res.Body)
}

func (v *verb) diffJSON(ctx context.Context, route string, q url.Values, asked string, paths []string) error {
	if len(paths) == 1 && paths[0] == asked {
		raw, err := v.Client.JSON(ctx, client.Request{Path: route, Query: withPath(q, asked)}, nil)
		if err != nil {
			return err
		}
		return v.PrintJSON(raw)
	}
	return v.PrintList("files", func(yield func(json.RawMessage, error) bool) {
		for _, p := range paths {
			raw, err := v.Client.JSON(ctx, client.Request{Path: route, Query: withPath(q, p)}, nil)
			if !yield(raw, err) || err != nil {
				return
			}
		}
	})
}
