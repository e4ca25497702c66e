// Package cli is what the verbs share: the connection to a server, picking a
// workspace, task or path, printing, and completion of ids.
package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/client"
	"umbra/internal/datadir"
	"umbra/internal/render"
	"umbra/internal/state"
	"umbra/internal/term"
)

// completePatience is how long a shell waits for ids at most: a user holds a
// key down.
const completePatience = 800 * time.Millisecond

// maxCompleted bounds how many ids are offered.
const maxCompleted = 50

// CompleteIDs makes the flags and arguments of a verb that are ids, and words of
// a fixed set, complete.
func CompleteIDs(root *cobra.Command) {
	words := map[string][]string{
		"color":       {"auto", "always", "never"},
		"on-conflict": {"fail", "skip", "force"},
		"squash":      {"task", "subtask", "none"},
		"status":      {"executing", "paused", "completed", "failed", "cancelled"},
	}
	ids := map[string]func(context.Context, *client.Client, *cobra.Command) []string{
		"task": taskIDs, "workspace": workspaceIDs, "subtask": subtaskIDs,
	}
	for _, cmd := range root.Commands() {
		for name, list := range words {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
			}
		}
		for name, list := range ids {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, fromServer(list))
			}
		}
	}
	arguments := map[string]func(context.Context, *client.Client, *cobra.Command) []string{
		"git": workspaceIDs, "verify": workspaceIDs,
		"export": func(ctx context.Context, c *client.Client, cmd *cobra.Command) []string {
			return append(workspaceIDs(ctx, c, cmd), taskIDs(ctx, c, cmd)...)
		},
	}
	for _, cmd := range root.Commands() {
		if list := arguments[cmd.Name()]; list != nil && cmd.ValidArgsFunction == nil {
			complete := fromServer(list)
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return complete(cmd, args, prefix)
			}
		}
	}
}

// fromServer asks the server that the command line means, if one runs: no server
// is started for a completion.
func fromServer(list func(context.Context, *client.Client, *cobra.Command) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completePatience)
		defer cancel()
		c := runningServer(cmd)
		if c == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		var fits []string
		for _, id := range list(ctx, c, cmd) {
			if strings.HasPrefix(id, prefix) {
				fits = append(fits, id)
			}
		}
		return fits, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// runningServer gives a client of the server that is named, or holds the data
// directory; nil where there is none.
func runningServer(cmd *cobra.Command) *client.Client {
	text := func(name string) string {
		if f := cmd.Flags().Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	o := client.Options{Address: text("server"), Token: text("token")}
	if o.Address == "" {
		cfg, err := config.Load(cmd.Flags())
		if err != nil {
			return nil
		}
		holder, held, err := state.FindHolder(cfg.DataDir)
		if err != nil || !held || holder.Address == "" {
			return nil
		}
		o.Address, o.Own = holder.Address, true
		o.Token, _ = datadir.ReadOwner(cfg.DataDir) // without one it may still answer
	}
	c, err := client.New(o)
	if err != nil {
		return nil
	}
	return c
}

// described is an id with the description that a shell shows next to it.
func described(id, what string) string { return id + "\t" + term.Cut(term.Line(what), 60) }

func taskIDs(ctx context.Context, c *client.Client, _ *cobra.Command) []string {
	var ids []string
	for item, err := range client.Pages[client.Task](ctx, c, "/tasks", "tasks", nil, maxCompleted) {
		if err != nil || len(ids) == maxCompleted {
			break
		}
		ids = append(ids, described(item.Value.ID, item.Value.Status+": "+item.Value.Goal))
	}
	return ids
}

func workspaceIDs(ctx context.Context, c *client.Client, _ *cobra.Command) []string {
	list, _, err := c.Workspaces(ctx)
	if err != nil {
		return nil
	}
	var ids []string
	for _, w := range list[:min(len(list), maxCompleted)] {
		root := "(" + w.Kind + ")"
		if w.Root != nil {
			root = *w.Root
		}
		ids = append(ids, described(w.ID, root))
	}
	return ids
}

// subtaskIDs are those of the task that the command line names.
func subtaskIDs(ctx context.Context, c *client.Client, cmd *cobra.Command) []string {
	task, err := cmd.Flags().GetString("task")
	if err != nil || task == "" {
		return nil
	}
	var t struct {
		Subtasks []json.RawMessage `json:"subtasks"`
	}
	if _, err := c.JSON(ctx, client.Request{Path: client.Path("tasks", task), Query: url.Values{}}, &t); err != nil {
		return nil
	}
	var ids []string
	for _, raw := range t.Subtasks {
		var s struct {
			ID      string `json:"id"`
			Changes int    `json:"changes"`
		}
		if json.Unmarshal(raw, &s) == nil && s.ID != "" {
			ids = append(ids, described(s.ID, render.Count(s.Changes, "change", "changes")))
		}
	}
	return ids
}
