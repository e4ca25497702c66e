package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"umbra/gitstore/message"
	"umbra/internal/cli"
	"umbra/internal/exitcode"
	"umbra/internal/progress"
	"umbra/internal/render"
	"umbra/internal/replay"
)

func replayCommand(stdout, stderr io.Writer) *cobra.Command {
	var o replay.Options
	var asJSON bool
	var reports []string
	cmd := &cobra.Command{
		Use:   "replay --from URL|REPO|BUNDLE --task T",
		Short: "Apply a task's commits again, one by one, and verify each",
		Long: `Apply a task's recorded commits one at a time, in order, onto a fresh checkout
of its base, and prove after every step that the tree is the recorded one, hash
for hash. Commits of others in between are applied too, and proven, but are no
steps; --only leaves them out, and texts are merged three-way.

With --onto the task is put onto another state: a directory, or a commit of a
repository. That is copied, never written to; --commit writes the result as
ordinary commits on a new branch of the repository.

--exec runs a command in the checkout after every step, with UMBRA_STEP,
UMBRA_COMMIT, UMBRA_TASK_ID, UMBRA_SUBTASK_ID and UMBRA_PATH set; the report says
which step broke it.

With --resume the finished steps are noted in a file, and the next run continues an
interrupted replay: their changes are applied and proven again, their commands are not
run again. The file is removed when the replay ends, whatever its result.

No server is needed, and the source of the history is never written to. The exit status
is 1 if a step differs, there is a conflict, or a command failed.`,
		Example: `  umbra replay --from http://127.0.0.1:8080/git/app-1a2b3c4d.git --task t1 --exec 'make test' --report out.xml
  umbra replay --from t1.bundle --task t1 --onto ~/project@main --commit agent/t1`,
		Args: cli.NoArgs,
	}
	fs := cmd.Flags()
	fs.StringVar(&o.From, "from", "", "take the history `FROM` a URL, a repository or a bundle")
	fs.StringVarP(&o.Task, "task", "t", "", "the task `T`")
	fs.StringVarP(&o.Subtask, "subtask", "s", "", "only commits of the subtask `S` are steps")
	fs.StringVar(&o.Onto, "onto", "", "another state to begin at: `DIR|REPO[@REV]`")
	fs.BoolVar(&o.Only, "only", false, "leave the commits of others out")
	fs.StringVar(&o.Exec, "exec", "", "a command `CMD` to run after each step, by sh -c")
	fs.BoolVar(&o.StopOnFail, "stop-on-fail", false, "stop at the first step that is not ok")
	fs.StringArrayVar(&reports, "report", nil, "write a report to `FILE`.json or FILE.xml (JUnit)")
	fs.StringVar(&o.Branch, "commit", "", "write the result as commits on a new `BRANCH` of the repository that --onto names")
	fs.StringVar(&o.Resume, "resume", "", "note finished steps in `FILE`, and continue after them if interrupted")
	fs.BoolVar(&asJSON, "json", false, "print the report as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkReplay(&o, reports); err != nil {
			return exitcode.Usage(err)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		bar := progress.Show("replay", stderr)
		o.Progress = bar.Set
		rep, err := replay.Run(ctx, o)
		bar.Done()
		if err != nil {
			return cli.Misused(err)
		}
		for _, name := range reports {
			if err := writeReport(rep, name); err != nil {
				return err
			}
		}
		if asJSON {
			e := json.NewEncoder(stdout)
			e.SetIndent("", "  ")
			e.SetEscapeHTML(false)
			err = e.Encode(rep)
		} else {
			err = render.Replay(rep, stdout)
		}
		if err == nil && !rep.OK {
			err = exitcode.With(exitcode.Failed)
		}
		return err
	}
	return cmd
}

func checkReplay(o *replay.Options, reports []string) error {
	switch {
	case o.From == "":
		return errors.New("--from is missing")
	case o.Task == "":
		return errors.New("--task is missing")
	case !message.ValidTaskID(o.Task):
		return fmt.Errorf("--task: %q is not a task ID", o.Task)
	case o.Branch != "" && o.Onto == "":
		return errors.New("--commit needs --onto with a repository")
	}
	for _, name := range reports {
		switch strings.ToLower(filepath.Ext(name)) {
		case ".json", ".xml":
		default:
			return fmt.Errorf("--report: %q ends neither in .json nor in .xml", name)
		}
	}
	return nil
}

func writeReport(rep *replay.Report, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if strings.EqualFold(filepath.Ext(name), ".xml") {
		err = rep.WriteJUnit(f)
	} else {
		e := json.NewEncoder(f)
		e.SetIndent("", "  ")
		err = e.Encode(rep)
	}
	return errors.Join(err, f.Close())
}
