package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/hunkwise"
	"umbra/internal/render"
	"umbra/internal/term"
)

// reviewedHunk is a hunk as the server lists it.
type reviewedHunk struct {
	ID           string         `json:"id"`
	Path         string         `json:"path"`
	Subtasks     []string       `json:"subtasks"`
	Mixed        bool           `json:"mixed"`
	Held         bool           `json:"held"`
	Status       string         `json:"status"`
	Text         string         `json:"text"`
	TextEncoding string         `json:"text_encoding"`
	Parts        []reviewedHunk `json:"parts"`
}

// hunksPage is how many hunks are asked for at once.
const hunksPage = 1000

// reviewFlags are those of umbra review.
type reviewFlags struct {
	accept, reject         []string
	acceptRest, rejectRest bool
	message                string
	dryRun                 bool
}

func (f *reviewFlags) decides() bool {
	return len(f.accept)+len(f.reject) > 0 || f.acceptRest || f.rejectRest
}

func reviewCommand() *cobra.Command {
	v, f := &verb{}, &reviewFlags{}
	cmd := &cobra.Command{
		Use:   "review [PATH]",
		Short: "Accept and reject the hunks of a task",
		Long: `Show the open hunks of the difference that a task makes now, one by one, and ask what
to do with each, as 'git add -p' does: y accepts, n rejects, ? lists the keys. What
was decided is done at the end, by one commit: rejected lines are taken back, others'
later lines stay. If a hunk changed meanwhile nothing is done, and the exit status
is 1.

For programs: --json lists the hunks, and --accept, --reject, --accept-rest and
--reject-rest decide without a question; the answer is the server's.`,
		Example: `  umbra review
  umbra review --task fix-login --subtask tests src
  umbra review --task fix-login --json
  umbra review --task fix-login --reject 1f3a9c2b00112233 --accept-rest`,
		Args: cli.Args(0, 1),
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.TaskFlags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	fs := cmd.Flags()
	fs.StringArrayVar(&f.accept, "accept", nil, "accept the hunk `ID`; may be repeated")
	fs.StringArrayVar(&f.reject, "reject", nil, "reject the hunk `ID`; may be repeated")
	fs.BoolVar(&f.acceptRest, "accept-rest", false, "accept all open hunks that are not named")
	fs.BoolVar(&f.rejectRest, "reject-rest", false, "reject all open hunks that are not named")
	fs.StringVarP(&f.message, "message", "m", "", "the `TEXT` that the agent gets for rejected hunks")
	fs.BoolVar(&f.dryRun, "dry-run", false, "only show what would be done")
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		switch {
		case f.acceptRest && f.rejectRest:
			return exitcode.Usage(errors.New("--accept-rest excludes --reject-rest"))
		case f.decides() && (len(args) > 0 || v.Subtask != ""):
			return exitcode.Usage(errors.New("--accept, --reject, --accept-rest and --reject-rest take no PATH and no --subtask"))
		}
		return nil
	}
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error { return v.review(ctx, f, args, cmd.InOrStdin()) })
	return cmd
}

func (v *verb) review(ctx context.Context, f *reviewFlags, args []string, in io.Reader) error {
	w, err := v.PickWorkspace(ctx)
	if err != nil {
		return err
	}
	task, err := v.PickTask(ctx, w)
	if err != nil {
		return err
	}
	if f.decides() {
		return v.decide(ctx, task, f)
	}
	q := url.Values{}
	if len(args) > 0 {
		path, err := cli.OnePath(w, args)
		if err != nil {
			return err
		}
		q.Set("path", path)
	}
	if v.Subtask != "" {
		q.Set("subtask", v.Subtask)
	}
	if v.JSON {
		return v.PrintList("hunks", func(yield func(json.RawMessage, error) bool) {
			for item, err := range client.Pages[json.RawMessage](ctx, v.Client, client.Path("tasks", task, "hunks"), "hunks", q, hunksPage) {
				if !yield(item.Value, err) {
					return
				}
			}
		})
	}
	q.Set("status", "open")
	var list []hunkwise.Hunk
	for item, err := range client.Pages[reviewedHunk](ctx, v.Client, client.Path("tasks", task, "hunks"), "hunks", q, hunksPage) {
		if err != nil {
			return err
		}
		if !item.Value.Held {
			list = append(list, item.Value.open()...)
		}
	}
	if len(list) == 0 {
		fmt.Fprintln(v.Stdout, "Nothing is open.")
		return nil
	}
	o := term.Open(v.Stdout, term.Options{Color: term.Color(v.Color)})
	answers, err := hunkwise.Ask(cli.Input(ctx, in), v.Stdout, list, func(text string) error {
		if err := o.Diff(strings.NewReader(text)); err != nil {
			return err
		}
		return o.Flush()
	})
	if err = errors.Join(err, o.Close()); err != nil {
		return err
	}
	f.accept, f.reject = answers.Accept, answers.Reject
	if !f.decides() {
		return nil
	}
	return v.decide(ctx, task, f)
}

// ask is the hunk as it is shown.
func (h *reviewedHunk) ask() hunkwise.Hunk {
	out := hunkwise.Hunk{ID: h.ID, Path: term.Name(h.Path), Text: h.Text, By: term.Line(strings.Join(h.Subtasks, ", ")), Mixed: h.Mixed}
	if h.TextEncoding != "" {
		if text, err := url.PathUnescape(h.Text); err == nil {
			out.Text = text
		}
	}
	for i := range h.Parts {
		out.Parts = append(out.Parts, h.Parts[i].ask())
	}
	return out
}

// open returns the hunk, or those parts of it that are open, where others are
// accepted.
func (h *reviewedHunk) open() []hunkwise.Hunk {
	whole := h.ask()
	var open []hunkwise.Hunk
	for i := range h.Parts {
		if h.Parts[i].Status == "open" {
			part := whole.Parts[i]
			part.Path, part.By, part.Mixed = whole.Path, whole.By, whole.Mixed
			open = append(open, part)
		}
	}
	if len(open) == len(h.Parts) {
		return []hunkwise.Hunk{whole}
	}
	return open
}

// decide carries out what was decided.
func (v *verb) decide(ctx context.Context, task string, f *reviewFlags) error {
	body := map[string]any{"accept": f.accept, "reject": f.reject, "accept_rest": f.acceptRest, "reject_rest": f.rejectRest, "dry_run": f.dryRun}
	if f.message != "" {
		body["message"] = f.message
	}
	for _, name := range []string{"accept", "reject"} {
		if list := body[name].([]string); list == nil {
			body[name] = []string{}
		}
	}
	var done struct {
		Commit   *string  `json:"commit"`
		Accepted []string `json:"accepted"`
		Rejected []string `json:"rejected"`
		Files    []string `json:"files"`
		Held     int      `json:"held"`
	}
	raw, err := v.Client.JSON(ctx, client.Request{Method: http.MethodPost, Path: client.Path("tasks", task, "review"), Body: body}, &done)
	if err != nil {
		if client.CodeOf(err) == "hunk_changed" {
			return fmt.Errorf("%w; run umbra review again", err)
		}
		return err
	}
	if v.JSON {
		return v.PrintJSON(raw)
	}
	would := ""
	if f.dryRun {
		would = "would be "
	}
	fmt.Fprintf(v.Stdout, "%d %saccepted, %d %srejected", len(done.Accepted), would, len(done.Rejected), would)
	if done.Held > 0 {
		fmt.Fprintf(v.Stdout, ", %d wait until the agent's calls have ended", done.Held)
	}
	if done.Commit != nil {
		fmt.Fprintf(v.Stdout, " (%s)", (*done.Commit)[:min(12, len(*done.Commit))])
	}
	fmt.Fprintln(v.Stdout)
	return nil
}

// refusedPath is a path that the policy would refuse.
type refusedPath struct {
	Path   string `json:"path"`
	Rule   string `json:"rule"`
	Detail string `json:"detail"`
	Secret string `json:"secret"`
	Line   int    `json:"line"`
}

func policyCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "policy",
		Short: "Show what the policy refuses",
		Long: `Show what the policy of the server's settings refuses: protected paths, files that are
too large, and secrets.`,
		Example: `  umbra policy check`,
	}, policyCheckCommand())
}

func policyCheckCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "Check which files a request could not write",
		Long: `Check files, all files in directories, and names at which there is nothing yet against
the policy: those that a request could not write as they are. Without a PATH all files
of the workspace are checked. Every secret counts, also one that was there before. With
--task the task's own rules count too.

The exit status is 0 if nothing would be refused, 1 if something would, and 2 for wrong
use.`,
		Example: `  umbra policy check
  umbra policy check --task docs src .env`,
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	cmd.Flags().StringVarP(&v.Task, "task", "t", "", "the rules of the task `T` count too")
	v.OutputFlags(cmd.Flags())
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		w, err := v.PickWorkspace(ctx)
		if err != nil {
			return err
		}
		body := map[string]any{}
		if len(args) > 0 {
			paths := make([]string, len(args))
			for i, a := range args {
				if paths[i], err = cli.PathIn(w, a); err != nil {
					return err
				}
			}
			body["paths"] = paths
		}
		if v.Task != "" {
			body["task_id"] = v.Task
		}
		var out struct {
			Checked int           `json:"checked"`
			Refused []refusedPath `json:"refused"`
			More    int           `json:"more"`
		}
		raw, err := v.Client.JSON(ctx, client.Request{Method: http.MethodPost, Path: client.Path("workspaces", w.ID, "policy", "check"), Body: body}, &out)
		if err != nil {
			return err
		}
		switch {
		case v.JSON:
			err = v.PrintJSON(raw)
		case len(out.Refused) == 0:
			fmt.Fprintf(v.Stdout, "nothing of %s would be refused\n", render.Count(out.Checked, "file", "files"))
		default:
			err = v.Print(false, func(o *term.Output) error {
				for _, x := range out.Refused {
					where := term.Name(x.Path)
					if x.Line > 0 {
						where += fmt.Sprintf(":%d", x.Line)
					}
					o.Printf("%s: %s: %s\n", where, x.Rule, term.Line(cmp.Or(x.Detail, x.Secret)))
				}
				if out.More > 0 {
					o.Printf("and %d more\n", out.More)
				}
				return nil
			})
		}
		if err == nil && len(out.Refused) > 0 {
			return exitcode.With(exitcode.Failed)
		}
		return err
	})
	return cmd
}
