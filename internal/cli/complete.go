// Package cli is what the verbs share: the connection to a server, picking a
// workspace, task or path, printing, and completion of ids.
package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"umbra/config"
	"umbra/internal/agentconf"
	"umbra/internal/client"
	"umbra/internal/datadir"
	"umbra/internal/hook"
	"umbra/internal/render"
	"umbra/internal/state"
	"umbra/internal/term"
)

// completePatience is how long a shell waits for ids at most: a user holds a
// key down.
const completePatience = 800 * time.Millisecond

// maxCompleted bounds how many ids are offered.
const maxCompleted = 50

// lister returns what a running server has for a flag or an argument.
type lister func(context.Context, *client.Client, *cobra.Command) []string

// CompleteIDs makes the flags and arguments of a verb that are ids, and words of
// a fixed set, complete. A key is a flag, or one of a verb, which comes first.
func CompleteIDs(root *cobra.Command) {
	words := map[string][]string{
		"agent":             agentconf.Names(),
		"merge as":          {"replay", "squash"},
		"du by":             {"task"},
		"color":             {"auto", "always", "never"},
		"hook context":      {"on", "off"},
		"fork ignored":      {"share", "copy", "none"},
		"fork kind":         {"layer", "copy", "virtual"},
		"on-conflict":       {"fail", "skip", "force"},
		"hook on-failure":   {"ignore", "block"},
		"token add scope":   {"read", "write", "exec"},
		"squash":            {"task", "subtask", "none"},
		"status":            {"executing", "paused", "completed", "failed", "cancelled"},
		"merge on-conflict": {"refuse", "skip"},
		"race merge":        {"best", "none"},
		"task end status":   {"completed", "failed", "cancelled"},
	}
	ids := map[string]lister{"task": taskIDs, "workspace": workspaceIDs, "subtask": subtaskIDs}
	arguments := map[string]lister{
		"du": workspaceIDs, "gc": workspaceIDs, "git": workspaceIDs, "purge": workspaceIDs, "verify": workspaceIDs,
		"in": forkIDs, "merge": forkIDs, "task end": taskIDs, "token remove": tokenNames,
		"export": func(ctx context.Context, c *client.Client, cmd *cobra.Command) []string {
			return append(workspaceIDs(ctx, c, cmd), taskIDs(ctx, c, cmd)...)
		},
	}
	asked := len(os.Args) > 1 && strings.HasPrefix(os.Args[1], cobra.ShellCompRequestCmd)
	each(root, func(cmd *cobra.Command) {
		_, verb, _ := strings.Cut(cmd.CommandPath(), " ")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if asked { // a shell shows the text as it is
				f.Usage = strings.ReplaceAll(f.Usage, "`", "")
			}
			list, ok := words[verb+" "+f.Name]
			if !ok {
				list, ok = words[f.Name]
			}
			if ok {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
			} else if list, ok := ids[f.Name]; ok {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, fromServer(list))
			}
		})
		if verb == "hook" {
			cmd.ValidArgsFunction = cobra.FixedCompletions(hook.Agents(), cobra.ShellCompDirectiveNoFileComp)
		} else if list, ok := arguments[verb]; ok {
			rest := cobra.ShellCompDirectiveNoFileComp
			if verb == "in" || verb == "purge" {
				rest = cobra.ShellCompDirectiveDefault
			}
			cmd.ValidArgsFunction = completed(fromServer(list), rest)
		}
	})
}

// each calls do for every command below one.
func each(root *cobra.Command, do func(*cobra.Command)) {
	for _, cmd := range root.Commands() {
		do(cmd)
		each(cmd, do)
	}
}

// completed completes the first argument of a verb by a list, or as a directory where a
// path is begun; the later ones are those of a command, or files, where rest says so.
func completed(list cobra.CompletionFunc, rest cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) > 0:
			return nil, rest
		case strings.HasPrefix(prefix, ".") || strings.ContainsRune(prefix, '/'):
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return list(cmd, args, prefix)
	}
}

// fromServer asks the server that the command line means, if one runs: no server
// is started for a completion.
func fromServer(list lister) cobra.CompletionFunc {
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

func forkIDs(ctx context.Context, c *client.Client, _ *cobra.Command) []string {
	list, _, err := c.Workspaces(ctx)
	if err != nil {
		return nil
	}
	var ids []string
	for _, w := range list {
		if w.ForkOf != "" && len(ids) < maxCompleted {
			ids = append(ids, described(w.ID, "of "+w.ForkOf))
		}
	}
	return ids
}

func tokenNames(ctx context.Context, c *client.Client, _ *cobra.Command) []string {
	var list struct {
		Tokens []render.Token `json:"tokens"`
	}
	if _, err := c.JSON(ctx, client.Request{Path: "/upkeep/tokens"}, &list); err != nil {
		return nil
	}
	var names []string
	for _, t := range list.Tokens {
		names = append(names, described(t.Name, t.Scope))
	}
	return names
}
