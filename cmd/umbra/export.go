package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/progress"
	"umbra/internal/render"
	"umbra/internal/replay"
	"umbra/internal/term"
)

func exportCommand() *cobra.Command {
	v := &verb{}
	var o replay.ExportOptions
	var squash string
	var formats []string
	cmd := &cobra.Command{
		Use:   "export WS|TASK --repo DIR --branch NAME",
		Short: "Write a task's work as commits on a new branch of your own repository",
		Long: `Write the history of a task, or of a whole workspace, as ordinary commits on a new
branch of your own repository. Its working tree, its index and the branch that is
checked out stay as they are.

The branch begins at the commit whose files are those that the work began with:
HEAD, or the newest one before it, else one of another branch. Where there is
none it begins at HEAD, and texts are merged three-way; so they are where others'
commits between the task's own are left out. After a conflict nothing is written,
and the exit status is 1.

--squash task makes one commit (of a workspace: one for each run of commits of one
task), subtask one for each run of commits of one subtask, none one for each. The
trailers stay; of what is squashed they are a list.

--notes annotates each exported commit with the lines that agents wrote in it:
git-ai writes an authorship log (authorship/3.0.0) to refs/notes/ai, agent-trace a
record (Agent Trace 0.1.0) to refs/notes/agent-trace. They name tasks, sessions and
models, and no text of a prompt. A commit that has a note already keeps it. Read
one with git notes --ref ai show BRANCH; git push pushes notes only by name.

WS is a workspace's id or directory; a task whose id is a workspace's too is not
found. With --json: {"ok","branch","base","same_base","squash","changes","commits",
"commit","conflicts","notes"}.`,
		Example: `  umbra export t1 --repo ~/project --branch agent/t1 --squash subtask
  umbra export . --repo . --branch history
  umbra export t1 --repo . --branch agent/t1 --notes git-ai`,
		Args: cli.One("usage: umbra export WS|TASK --repo DIR --branch NAME"),
	}
	fs := cmd.Flags()
	v.Connection.Flags(fs)
	v.OutputFlags(fs)
	fs.StringVar(&o.Repo, "repo", "", "your repository: a directory `DIR` in it")
	fs.StringVar(&o.Branch, "branch", "", "the new branch's `NAME`")
	fs.StringVar(&squash, "squash", string(replay.SquashNone), "what becomes one commit: task, subtask or none (`WHAT`)")
	fs.StringSliceVar(&formats, "notes", nil, "annotate the commits: git-ai, agent-trace (`FORMAT`; may be given twice)")
	do := v.Action(func(ctx context.Context, args []string) error {
		if err := v.exportFrom(ctx, args[0], &o); err != nil {
			return err
		}
		// The history is copied before it is worked on, but git may take long for
		// both: the data directory is for others meanwhile.
		if err := v.HangUp(); err != nil {
			return err
		}
		bar := progress.Show("export", v.Stderr)
		o.Progress = bar.Set
		out, err := replay.Export(ctx, o)
		bar.Done()
		if err != nil {
			return err
		}
		err = v.Answer(out, func(w *term.Output) { render.Export(w, out) })
		if err == nil && !out.OK {
			return exitcode.With(exitcode.Failed)
		}
		return err
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkExport(&o, squash, formats); err != nil {
			return exitcode.Usage(err)
		}
		return do(cmd, args)
	}
	return cmd
}

func checkExport(o *replay.ExportOptions, squash string, formats []string) error {
	for _, f := range formats {
		n := replay.Notes(f)
		if n != replay.NotesGitAI && n != replay.NotesAgentTrace {
			return fmt.Errorf("--notes is git-ai or agent-trace, not %q", f)
		}
		if !slices.Contains(o.Notes, n) {
			o.Notes = append(o.Notes, n)
		}
	}
	switch o.Squash = replay.Squash(squash); {
	case o.Repo == "":
		return errors.New("--repo is missing")
	case o.Branch == "":
		return errors.New("--branch is missing")
	case o.Squash != replay.SquashNone && o.Squash != replay.SquashSubtask && o.Squash != replay.SquashTask:
		return fmt.Errorf("--squash is task, subtask or none, not %q", squash)
	}
	if info, err := os.Stat(o.Repo); err != nil || !info.IsDir() {
		return fmt.Errorf("--repo: %s is not a directory", term.Name(o.Repo))
	}
	return nil
}

// exportFrom finds what the argument names, and where git gets its history:
// over HTTP from a server that --server names, else from the data directory,
// which is on this machine.
func (v *verb) exportFrom(ctx context.Context, name string, o *replay.ExportOptions) error {
	w, err := v.workspaceOrTask(ctx, name, &o.Task)
	if err != nil {
		return err
	}
	if strings.Contains(v.Server, "://") {
		o.From = strings.TrimSuffix(v.Server, "/") + "/git/" + w.ID + ".git"
		if o.Token = v.Token; o.Token == "" {
			o.Token = os.Getenv("UMBRA_TOKEN")
		}
		return nil
	}
	if err := v.publish(ctx, w); err != nil {
		return err
	}
	if _, err := os.Stat(w.GitDir); err != nil {
		return fmt.Errorf("the repository is not on this machine: %s", term.Name(w.GitDir))
	}
	o.From = w.GitDir
	return nil
}

// workspaceOrTask finds the workspace that is named, or that of a named task.
func (v *verb) workspaceOrTask(ctx context.Context, name string, task *string) (client.Workspace, error) {
	var w client.Workspace
	notFound := func(err error) bool {
		e, ok := errors.AsType[*client.Error](err)
		return ok && (e.Status == http.StatusNotFound || e.Status == http.StatusBadRequest)
	}
	if !strings.ContainsRune(name, '/') && name != "." && name != ".." {
		if _, err := v.Client.JSON(ctx, client.Request{Path: client.Path("workspaces", name)}, &w); !notFound(err) {
			return w, err
		}
		t, err := v.Client.Task(ctx, name)
		if err == nil {
			*task = t.ID
			_, err = v.Client.JSON(ctx, client.Request{Path: client.Path("workspaces", t.WorkspaceID)}, &w)
			return w, err
		}
		if !notFound(err) {
			return w, err
		}
	}
	w, err := v.FindWorkspace(ctx, name)
	if err != nil {
		return w, fmt.Errorf("no workspace or task %s", term.Name(name))
	}
	return w, nil
}
