package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/render"
	"umbra/internal/term"
)

func showCommand() *cobra.Command {
	v := &verb{}
	d := &diffRange{context: -1}
	cmd := &cobra.Command{
		Use:   "show [N|COMMIT] [PATH]",
		Short: "Show one change with its patch",
		Long: `Show one change: whose it is, and its patch. N is the number of a change in its
task (--task, else the workspace's only one); COMMIT is the id of a commit, which
may be cut short to four digits, or head. Without either it is the newest change
that --task, --subtask and PATH leave. A PATH that looks like a number or an id is
written with "./" before it.

With --json: the commit with its entries, and the patch as "diff".`,
		Example: `  umbra show --task a1b2c3d4 4
  umbra show 0a1b2c3d4e5f
  umbra show --task a1b2c3d4 --subtask add-types src/app.ts`,
		Args: cli.Args(0, 2),
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.TaskFlags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	v.PagerFlag(cmd.Flags())
	d.contextFlag(cmd)
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		q, err := d.query()
		if err != nil {
			return err
		}
		w, err := v.PickWorkspace(ctx)
		if err != nil {
			return err
		}
		commit, filter, err := v.pickChange(ctx, w, args)
		if err != nil {
			return err
		}
		route := client.Path("workspaces", w.ID, "commits", commit)
		var c client.Commit
		raw, err := v.Client.JSON(ctx, client.Request{Path: route, Query: filter}, &c)
		if err != nil {
			return err
		}
		maps.Copy(q, filter)
		if v.JSON {
			return v.showJSON(ctx, route+"/diff", q, raw)
		}
		return v.Print(true, func(o *term.Output) error {
			render.Commit(o, &c)
			return v.patch(ctx, o, route+"/diff", q, "")
		})
	})
	return cmd
}

var (
	numberForm = regexp.MustCompile(`^[0-9]{1,19}$`)
	commitForm = regexp.MustCompile(`^([0-9a-fA-F]{4,40}|head)$`)
)

// pickChange finds the commit that the arguments name, and what of it is
// wanted.
func (v *verb) pickChange(ctx context.Context, w cli.Place, args []string) (commit string, filter url.Values, err error) {
	name := ""
	if len(args) > 0 && (numberForm.MatchString(args[0]) || commitForm.MatchString(args[0])) {
		name, args = args[0], args[1:]
	}
	if len(args) > 1 {
		return "", nil, exitcode.Usage(fmt.Errorf("%q is neither the number of a change nor a commit", args[0]))
	}
	p, err := cli.OnePath(w, args)
	if err != nil {
		return "", nil, err
	}
	filter = url.Values{}
	if p != "" {
		filter.Set("path", p)
	}
	switch {
	case name == "":
		for item, err := range v.entries(ctx, w, p, 1) {
			return item.Value.Commit, filter, err
		}
		return "", nil, fmt.Errorf("change not found on workspace %s", w.ID)
	case numberForm.MatchString(name):
		n, err := strconv.ParseUint(name, 10, 63)
		if err != nil {
			return "", nil, exitcode.Usage(fmt.Errorf("%s is not a change number", name))
		}
		commit, err := v.commitOfChange(ctx, w, n)
		if isNoChange(err) && len(name) >= shortestCommit {
			return name, filter, nil // a commit whose abbreviation has digits alone
		}
		filter.Set("change_id", name)
		return commit, filter, err
	}
	return name, filter, nil
}

// shortestCommit is the length from which digits alone may be a commit: what
// 'umbra log' prints is longer.
const shortestCommit = 7

// noChange says that a task has no change of a number.
type noChange struct{ text string }

func (e noChange) Error() string { return e.text }

func isNoChange(err error) bool {
	_, ok := errors.AsType[noChange](err)
	return ok
}

// commitOfChange gives the commit of a task's n-th change.
func (v *verb) commitOfChange(ctx context.Context, w cli.Place, n uint64) (string, error) {
	task, err := v.PickTask(ctx, w)
	if err != nil {
		return "", err
	}
	var page struct {
		Entries []client.Entry `json:"entries"`
	}
	if n > 0 {
		q := url.Values{"after": {strconv.FormatUint(n-1, 10)}, "limit": {"1"}}
		if _, err := v.Client.JSON(ctx, client.Request{Path: client.Path("tasks", task, "changes"), Query: q}, &page); err != nil {
			return "", err
		}
	}
	if len(page.Entries) == 0 || page.Entries[0].ID == nil || *page.Entries[0].ID != n {
		return "", noChange{fmt.Sprintf("task %s has no change %d", task, n)}
	}
	return page.Entries[0].Commit, nil
}

// showJSON prints the commit with its patch in it.
func (v *verb) showJSON(ctx context.Context, route string, q url.Values, commit []byte) error {
	all, patch := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := json.Unmarshal(commit, &all); err != nil {
		return err
	}
	if _, err := v.Client.JSON(ctx, client.Request{Path: route, Query: q}, &patch); err != nil {
		return err
	}
	maps.Copy(all, patch)
	raw, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return v.PrintJSON(raw)
}
