package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/render"
	"umbra/internal/term"
)

func blameCommand() *cobra.Command {
	v := &verb{}
	var lines, at string
	porcelain, whitespace := false, false
	cmd := &cobra.Command{
		Use:   "blame FILE",
		Short: "Show which commit and agent wrote each line of a file",
		Long: `Show which commit and agent wrote each line of a file. Renames are followed as they
were recorded. A line that a revert brought back belongs to the commit that first
wrote it. Lines that were there before umbra have the commits of the project's own
git. Changes on disk are recorded first.

With --json: {"path","at","lines","ranges"}. --porcelain prints what 'git blame
--porcelain' prints.`,
		Example: `  umbra blame src/app.ts
  umbra blame -L 10,30 src/app.ts`,
		Args: cli.Args(1, 1),
	}
	fs := cmd.Flags()
	v.Connection.Flags(fs)
	v.WorkspaceFlag(fs)
	v.OutputFlags(fs)
	v.PagerFlag(fs)
	fs.StringVarP(&lines, "lines", "L", "", "only lines `FROM,TO`, counted from 1")
	fs.StringVar(&at, "at", "", "the file as of this `COMMIT`")
	fs.BoolVar(&porcelain, "porcelain", false, "print the porcelain format of git blame")
	fs.BoolVar(&whitespace, "ignore-whitespace", false, "look through changes of white space")
	do := v.Action(func(ctx context.Context, args []string) error {
		w, err := v.PickWorkspace(ctx)
		if err != nil {
			return err
		}
		p, err := cli.OnePath(w, args)
		if err != nil {
			return err
		}
		q := url.Values{"path": {p}}
		if lines != "" {
			q.Set("lines", strings.Replace(lines, ",", "-", 1))
		}
		if at != "" {
			q.Set("at", at)
		}
		if whitespace {
			q.Set("ignore_whitespace", "true")
		}
		route := client.Path("workspaces", w.ID, "blame")
		if v.JSON && !porcelain {
			raw, _, _, err := v.blamed(ctx, route, q)
			if err != nil {
				return err
			}
			return v.PrintJSON(raw)
		}
		return v.Print(true, func(o *term.Output) error {
			if porcelain {
				return v.porcelain(ctx, o, route, q)
			}
			return v.blameTable(ctx, o, route, q)
		})
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if lines != "" && !linesForm.MatchString(lines) {
			return exitcode.Usage(fmt.Errorf("-L is FROM,TO, not %q", lines))
		}
		return do(cmd, args)
	}
	return cmd
}

var linesForm = regexp.MustCompile(`^[1-9][0-9]{0,8}([,-]([1-9][0-9]{0,8})?)?$`)

// blamed reads all pages, and returns them as one answer.
func (v *verb) blamed(ctx context.Context, route string, q url.Values) (raw []byte, ranges []render.Blamed, at string, err error) {
	var out struct {
		Path         string            `json:"path"`
		PathEncoding string            `json:"path_encoding,omitempty"`
		At           string            `json:"at"`
		Lines        int               `json:"lines"`
		Ranges       []json.RawMessage `json:"ranges"`
		Next         string            `json:"next,omitempty"`
	}
	all := []json.RawMessage{}
	for page := (url.Values{}); ; {
		maps.Copy(page, q)
		out.Next = ""
		if _, err := v.Client.JSON(ctx, client.Request{Path: route, Query: page}, &out); err != nil {
			return nil, nil, "", err
		}
		all = append(all, out.Ranges...)
		if out.Next == "" {
			break
		}
		page.Set("after", out.Next)
		out.Ranges = nil
	}
	ranges = make([]render.Blamed, len(all))
	for i := range all {
		if err := json.Unmarshal(all[i], &ranges[i]); err != nil {
			return nil, nil, "", err
		}
	}
	out.Ranges = all
	raw, err = json.Marshal(out)
	return raw, ranges, out.At, err
}

func (v *verb) porcelain(ctx context.Context, o *term.Output, route string, q url.Values) error {
	q.Set("format", "porcelain")
	res, err := v.Client.Do(ctx, client.Request{Path: route, Query: q, Accept: "text/plain"})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(o, res.Body)
	return err
}

// blameTable prints a line of the file a line. The text is of the same commit as
// the ranges, which the porcelain format has.
func (v *verb) blameTable(ctx context.Context, o *term.Output, route string, q url.Values) error {
	_, ranges, at, err := v.blamed(ctx, route, q)
	if err != nil || len(ranges) == 0 {
		return err
	}
	text, err := v.blamedText(ctx, route, q["path"], at, ranges)
	if err != nil {
		return err
	}
	width := 0
	for i := range ranges {
		width = max(width, len([]rune(term.Cut(term.Line(ranges[i].Who()), maxWho))))
	}
	digits := len(strconv.Itoa(ranges[len(ranges)-1].End))
	for i := range ranges {
		r := &ranges[i]
		commit, when := r.Commit, r.At
		if r.Project != nil {
			commit, when = r.Project.Commit, r.Project.At
		}
		mark := " "
		if r.Via != "" {
			mark = "<" // a revert brought it back
		}
		for n := r.Start; n <= r.End && n-ranges[0].Start < len(text); n++ {
			o.Printf("%s%s %-*s %s %*d  %s\n", o.Paint(term.Commit, render.Short(commit)), mark, width, term.Cut(term.Line(r.Who()), maxWho),
				o.Paint(term.Dim, render.Stamp(when)), digits, n, term.Line(text[n-ranges[0].Start]))
		}
	}
	return o.Err()
}

// maxWho bounds the column of authors.
const maxWho = 24

// blamedText reads the text of the lines that ranges are about.
func (v *verb) blamedText(ctx context.Context, route string, path []string, at string, ranges []render.Blamed) ([]string, error) {
	only := url.Values{"path": path, "at": {at}, "format": {"porcelain"}, "lines": {fmt.Sprintf("%d-%d", ranges[0].Start, ranges[len(ranges)-1].End)}}
	res, err := v.Client.Do(ctx, client.Request{Path: route, Query: only, Accept: "text/plain"})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var b strings.Builder
	if _, err := io.Copy(&b, res.Body); err != nil {
		return nil, err
	}
	var out []string
	for row := range strings.SplitSeq(b.String(), "\n") {
		if text, ok := strings.CutPrefix(row, "\t"); ok {
			out = append(out, strings.TrimSuffix(text, "\r"))
		}
	}
	return out, nil
}

func whyCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "why FILE:LINE",
		Short: "Show the change that wrote a line, with its agent, task and undo command",
		Long: `Show the change that wrote a line: its commit with the diff, the agent and its turn,
the task's goal, and the command that undoes it.

With --json: {"range","task","diff","undo"}.`,
		Example: `  umbra why src/app.ts:42`,
		Args:    cli.Args(1, 1),
	}
	v.Connection.Flags(cmd.Flags())
	v.WorkspaceFlag(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	v.PagerFlag(cmd.Flags())
	var file, line string
	do := v.Action(func(ctx context.Context, _ []string) error {
		w, err := v.PickWorkspace(ctx)
		if err != nil {
			return err
		}
		p, err := cli.OnePath(w, []string{file})
		if err != nil {
			return err
		}
		raw, ranges, _, err := v.blamed(ctx, client.Path("workspaces", w.ID, "blame"), url.Values{"path": {p}, "lines": {line}})
		if err != nil {
			return err
		}
		if len(ranges) != 1 {
			return fmt.Errorf("%s has no line %s", term.Name(p), line)
		}
		return v.why(ctx, w, raw, &ranges[0])
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		i := strings.LastIndexByte(args[0], ':')
		if i <= 0 || !numberForm.MatchString(args[0][i+1:]) || strings.TrimLeft(args[0][i+1:], "0") == "" {
			return exitcode.Usage(errors.New("usage: umbra why FILE:LINE"))
		}
		file, line = args[0][:i], strings.TrimLeft(args[0][i+1:], "0")
		return do(cmd, args)
	}
	return cmd
}

// why prints what is known of one line.
func (v *verb) why(ctx context.Context, w cli.Place, raw []byte, r *render.Blamed) error {
	var task *client.Task
	if r.TaskID != "" {
		t, err := v.Client.Task(ctx, r.TaskID)
		switch code := client.CodeOf(err); {
		case err == nil:
			task = &t
		case code != "task_not_found" && code != "history_dropped": // it may be deleted
			return err
		}
	}
	route := client.Path("workspaces", w.ID, "commits", r.Commit)
	if v.JSON {
		return v.whyJSON(ctx, route, raw, r)
	}
	return v.Print(true, func(o *term.Output) error {
		o.Printf("%s\n", o.Paint(term.Commit, "commit "+r.Commit))
		field := func(name, value string) {
			if value != "" {
				o.Printf("%-11s%s\n", name+":", term.Line(value))
			}
		}
		field("Agent", r.Agent)
		field("Model", r.Model)
		field("Tool", r.Tool)
		field("Turn", r.SubtaskID)
		field("Task", r.TaskID)
		if task != nil {
			field("Goal", task.Goal)
		}
		field("Actor", r.Actor)
		field("Source", r.Source)
		field("Certainty", r.Certainty)
		field("Date", render.Stamp(r.At)+r.At.Local().Format(" -0700"))
		if r.Via != "" {
			field("Via", "the revert "+render.Short(r.Via)+" brought it back")
		}
		if p := r.Project; p != nil {
			field("Project", render.Short(p.Commit)+" "+p.Author+" "+render.Stamp(p.At))
		}
		field("Undo", r.UndoCommand())
		if r.Source == "baseline" {
			return o.Err()
		}
		o.Printf("\n")
		return v.patch(ctx, o, route+"/diff", url.Values{}, r.OriginPath)
	})
}

func (v *verb) whyJSON(ctx context.Context, route string, raw []byte, r *render.Blamed) error {
	var answer struct {
		Ranges []json.RawMessage `json:"ranges"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return err
	}
	out := map[string]any{"range": answer.Ranges[0], "task": nil, "diff": nil, "undo": nil}
	if r.TaskID != "" {
		var task json.RawMessage
		if _, err := v.Client.JSON(ctx, client.Request{Path: client.Path("tasks", r.TaskID)}, &task); err == nil {
			out["task"] = task
		}
	}
	if r.Source != "baseline" {
		var patch struct {
			Diff string `json:"diff"`
		}
		if _, err := v.Client.JSON(ctx, client.Request{Path: route + "/diff", Query: withPath(url.Values{}, r.OriginPath)}, &patch); err != nil {
			return err
		}
		out["diff"], out["undo"] = patch.Diff, r.UndoCommand()
	}
	text, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return v.PrintJSON(text)
}
