package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/render"
	"umbra/internal/term"
	"umbra/internal/turns"
)

// undoFlags are those of umbra undo and redo.
type undoFlags struct {
	count         int
	agent         string
	session       string
	call          string
	includeShared bool
	yes, dryRun   bool
}

// defaultTurns is how many turns are shown where --limit does not say.
const defaultTurns = 100

func turnsCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "turns",
		Short: "List what agents did, prompt by prompt",
		Long: `List the turns of agents in the workspace of this directory, newest first: agent,
session, prompt, when, files, and how surely the files are the agent's (exact,
declared, window or shared).`,
		Example: `  umbra turns
  umbra turns --json`,
		Args: cli.NoArgs,
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	v.PagerFlag(cmd.Flags())
	limit := -1
	cmd.Flags().IntVarP(&limit, "limit", "n", -1, "the newest `N` turns, 0: all (default 100; with --json all)")
	cmd.Flags().Lookup("limit").DefValue = "0" // no second default in the help
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if limit < 0 && cmd.Flags().Changed("limit") {
			return exitcode.Usage(fmt.Errorf("--limit must be 0 or more, not %d", limit))
		}
		return nil
	}
	cmd.RunE = v.Action(func(ctx context.Context, _ []string) error {
		w, err := v.HereWorkspace(ctx)
		if errors.Is(err, cli.ErrNoWorkspace) {
			return v.noTurns()
		}
		if err != nil {
			return err
		}
		n := limit
		if n < 0 {
			if n = defaultTurns; v.JSON {
				n = 0
			}
		}
		h, more, err := turns.Load(ctx, v.Client, w.ID, n)
		if err != nil {
			return err
		}
		if v.JSON {
			if h.Turns == nil {
				h.Turns = []*turns.Turn{}
			}
			raw, err := json.Marshal(h.Turns)
			if err != nil {
				return err
			}
			return v.PrintJSON(raw)
		}
		return v.Print(true, func(o *term.Output) error {
			render.Turns(o, h.Turns)
			if more {
				o.Printf("%s\n", o.Paint(term.Meta, fmt.Sprintf("older turns are not shown: --limit is %d; 0 shows all", n)))
			}
			return nil
		})
	})
	return cmd
}

// noTurns answers umbra turns where no workspace is: no agent has worked there.
func (v *verb) noTurns() error {
	return v.Answer([]any{}, func(o *term.Output) { o.Printf("no turns: this directory is in no workspace\n") })
}

func undoCommand() *cobra.Command {
	v, u := &verb{}, &undoFlags{}
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Take back an agent's last turn",
		Long: `Take back the last turn of an agent in the workspace of this directory that is not
undone yet, after a preview and a question. Later work of others stays: what cannot
be merged is listed as a conflict, nothing of that turn is changed, and the exit
status is 1. Without a terminal, --yes is needed (else exit status 2).

What several agents may have changed is left unless --include-shared is given.
umbra redo undoes an undo.`,
		Example: `  umbra undo
  umbra undo --agent codex --turns 3 --yes
  umbra undo --call codex-45dd74768ed9-call_4 --dry-run`,
		Args: cli.NoArgs,
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	f := cmd.Flags()
	f.IntVar(&u.count, "turns", 1, "take back the last `N` turns")
	f.StringVar(&u.agent, "agent", "", "only turns of the agent `A`")
	f.StringVar(&u.session, "session", "", "only turns of the agent's session `X`")
	f.StringVar(&u.call, "call", "", "take back one call, by its `ID`")
	f.BoolVar(&u.includeShared, "include-shared", false, "also take back what several agents may have changed")
	u.flags(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case u.count < 1:
			return exitcode.Usage(errors.New("--turns is at least 1"))
		case u.call != "" && (u.agent != "" || u.session != "" || u.count != 1):
			return exitcode.Usage(errors.New("--call excludes --turns, --agent and --session"))
		}
		for _, name := range []string{"agent", "session", "call"} { // of a script's unset variable, maybe
			if f.Changed(name) && f.Lookup(name).Value.String() == "" {
				return exitcode.Usage(fmt.Errorf("--%s must not be empty", name))
			}
		}
		return nil
	}
	cmd.RunE = v.Action(func(ctx context.Context, _ []string) error { return v.undo(ctx, u, cmd.InOrStdin()) })
	return cmd
}

func redoCommand() *cobra.Command {
	v, u := &verb{}, &undoFlags{}
	cmd := &cobra.Command{
		Use:   "redo",
		Short: "Undo the last umbra undo",
		Long: `Undo the last umbra undo in the workspace of this directory that was not redone
yet. Later work of others stays, as in every revert.`,
		Example: `  umbra redo
  umbra redo --dry-run`,
		Args: cli.NoArgs,
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	u.flags(cmd)
	cmd.RunE = v.Action(func(ctx context.Context, _ []string) error { return v.redo(ctx, u) })
	return cmd
}

func (u *undoFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&u.yes, "yes", "y", false, "do it without a question")
	cmd.Flags().BoolVar(&u.dryRun, "dry-run", false, "only show what would happen")
}

// undoStep is one turn or call that is taken back, or one undo that is redone.
type undoStep struct {
	Turn   *turns.Turn     `json:"turn,omitempty"`
	Call   string          `json:"call_id,omitempty"`
	Undo   string          `json:"undo,omitempty"`
	Result json.RawMessage `json:"result"` // the server's answer to the last request

	routes  []string
	owners  []string // the task that each revert belongs to; nil: the route says
	reverts []client.Reverted
	failed  bool // there are conflicts, and nothing was changed
}

// name describes a step to the user.
func (s *undoStep) name() string {
	switch {
	case s.Call != "":
		return "call " + s.Call
	case s.Turn == nil:
		return "the undo of " + undoTime(s.Undo)
	}
	name := "turn of " + render.Text(s.Turn.Agent)
	if s.Turn.Prompt != nil {
		name += ", prompt " + render.Text(s.Turn.Prompt)
	}
	return name + ", " + s.Turn.Began.Local().Format("2006-01-02 15:04:05")
}

// undoTime is when an undo was made.
func undoTime(name string) string {
	if at, ok := turns.UndoneAt(name); ok {
		return at.Local().Format("2006-01-02 15:04:05")
	}
	return term.Line(name)
}

// run sends the step's requests, in order; it stops at the first that conflicts.
func (s *undoStep) run(ctx context.Context, v *verb, u *undoFlags, dryRun bool, mark string) error {
	s.reverts, s.failed = nil, false
	for i, route := range s.routes {
		body := map[string]any{"dry_run": dryRun}
		if s.owners != nil && s.owners[i] != "" {
			body["task_id"] = s.owners[i]
		}
		if u.includeShared {
			body["include_shared"] = true
		}
		var done client.Reverted
		raw, err := v.Client.JSON(ctx, client.Request{Method: http.MethodPost, Path: route, Body: body, Subtask: mark}, &done)
		if e, ok := errors.AsType[*client.Error](err); ok && e.Code == "revert_conflict" {
			s.failed = true
			raw = e.Body
			err = json.Unmarshal(e.Body, &done)
		}
		if err != nil {
			return err
		}
		s.Result = raw
		s.reverts = append(s.reverts, done)
		s.failed = s.failed || len(done.Conflicts) > 0
		if s.failed {
			break
		}
	}
	return nil
}

// empty reports whether the step has nothing to take back.
func (s *undoStep) empty() bool {
	for _, r := range s.reverts {
		if r.Entries > 0 || len(r.Conflicts) > 0 {
			return false
		}
	}
	return true
}

func (s *undoStep) write(o *term.Output) {
	o.Printf("%s\n", o.Paint(term.Meta, s.name()))
	for i := range s.reverts {
		if s.Undo != "" {
			render.Redone(o, &s.reverts[i])
		} else {
			render.Reverted(o, &s.reverts[i])
		}
	}
}

// undoable finds what is to be undone and tries it without doing it. Turns
// without a change to take back are passed over.
func (v *verb) undoable(ctx context.Context, u *undoFlags) ([]*undoStep, error) {
	if u.call != "" {
		s := &undoStep{Call: u.call, routes: []string{client.Path("calls", u.call, "revert")}}
		if err := s.run(ctx, v, u, true, ""); err != nil || s.empty() {
			return nil, err
		}
		return []*undoStep{s}, nil
	}
	w, err := v.HereWorkspace(ctx)
	if err != nil {
		return nil, err
	}
	tried := map[string]*undoStep{} // by the turn's newest call
	l := turns.NewLoader(ctx, v.Client, w.ID)
	for n := 4 * u.count; ; n *= 2 {
		h, more, err := l.Turns(n)
		if err != nil {
			return nil, err
		}
		var steps []*undoStep
		for _, t := range h.Candidates(turns.Filter{Agent: u.agent, Session: u.session}) {
			s := tried[t.Calls[0]]
			if s == nil || !slices.Equal(s.routes, t.Routes()) {
				s = &undoStep{Turn: t, routes: t.Routes()}
				if err := s.run(ctx, v, u, true, ""); err != nil {
					return nil, err
				}
				tried[t.Calls[0]] = s
			}
			if s.Turn = t; s.empty() {
				continue
			}
			if steps = append(steps, s); len(steps) == u.count {
				return steps, nil
			}
		}
		if !more {
			return steps, nil
		}
	}
}

func (v *verb) undo(ctx context.Context, u *undoFlags, stdin io.Reader) error {
	steps, err := v.undoable(ctx, u)
	if errors.Is(err, cli.ErrNoWorkspace) { // no agent has worked here
		return v.undone(nil, u.dryRun, "nothing to undo: this directory is in no workspace")
	}
	if err != nil {
		return err
	}
	if len(steps) == 0 {
		return v.undone(nil, u.dryRun, "nothing to undo")
	}
	if u.dryRun {
		return v.undone(steps, true, "")
	}
	if !u.yes {
		if f, ok := stdin.(*os.File); !ok || !term.IsTerminal(f) || !term.IsTerminal(v.Stderr) {
			return exitcode.Usage(errors.New("nothing was undone: without a terminal, --yes is needed"))
		}
		o := term.Open(v.Stderr, term.Options{Color: term.Color(v.Color)})
		for _, s := range steps {
			s.write(o)
		}
		if err := o.Flush(); err != nil {
			return err
		}
		if !cli.Confirmed(cli.Input(ctx, stdin), v.Stderr, "Undo this? [y/N] ") {
			return v.undone(nil, false, "nothing was undone")
		}
	}
	return v.perform(ctx, u, steps, turns.NewUndo(time.Now()))
}

func (v *verb) redo(ctx context.Context, u *undoFlags) error {
	w, err := v.HereWorkspace(ctx)
	if errors.Is(err, cli.ErrNoWorkspace) {
		return v.undone(nil, u.dryRun, "nothing to redo: this directory is in no workspace")
	}
	if err != nil {
		return err
	}
	last, err := turns.LastUndo(ctx, v.Client, w.ID)
	if err != nil {
		return err
	}
	if last == nil {
		return v.undone(nil, u.dryRun, "nothing to redo")
	}
	s := &undoStep{Undo: last.Name, owners: last.Owners()}
	for _, commit := range last.Commits {
		s.routes = append(s.routes, client.Path("workspaces", w.ID, "commits", commit, "revert"))
	}
	u.includeShared = true // the undo's commits are meant, whatever they took back
	if u.dryRun {
		if err := s.run(ctx, v, u, true, ""); err != nil {
			return err
		}
		return v.undone([]*undoStep{s}, true, "")
	}
	return v.perform(ctx, u, []*undoStep{s}, "")
}

// perform does the steps, each after the one before; a conflict ends it.
func (v *verb) perform(ctx context.Context, u *undoFlags, steps []*undoStep, mark string) error {
	for i, s := range steps {
		if err := s.run(ctx, v, u, false, mark); err != nil {
			return err
		}
		if s.failed {
			steps = steps[:i+1]
			break
		}
	}
	return v.undone(steps, false, "")
}

// undone prints the steps, or a line where there are none.
func (v *verb) undone(steps []*undoStep, dryRun bool, line string) error {
	failed := false
	for _, s := range steps {
		failed = failed || s.failed
	}
	if steps == nil {
		steps = []*undoStep{}
	}
	err := v.Answer(map[string]any{"steps": steps, "dry_run": dryRun}, func(o *term.Output) {
		if line != "" {
			o.Printf("%s\n", line)
		}
		for _, s := range steps {
			s.write(o)
		}
	})
	if failed {
		if !v.JSON && !dryRun {
			fmt.Fprintln(v.Stderr, "umbra: a turn with conflicts was not undone; umbra revert has --on-conflict")
		}
		return errors.Join(err, exitcode.With(exitcode.Failed))
	}
	return err
}
