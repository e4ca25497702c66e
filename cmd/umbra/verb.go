package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"umbra/internal/client"
	"umbra/internal/replay"
	"umbra/internal/term"
)

// verbs are the owner's: each talks to a server, or to one of its own in this
// process, over HTTP alike.
func verbs(stdout, stderr io.Writer) []*cobra.Command {
	list := []*cobra.Command{
		logCommand(), diffCommand(), showCommand(), blameCommand(), whyCommand(), summaryCommand(), revertCommand(),
		tasksCommand(), taskCommand(), workspacesCommand(), gitCommand(), verifyCommand(), exportCommand(), mcpCommand(), gcCommand(), duCommand(), tokenCommand(), doctorCommand(), hookCommand(), execCommand(), forkCommand(), forksCommand(), inCommand(), mergeCommand(), raceCommand(), initCommand(), turnsCommand(), undoCommand(), redoCommand(), purgeCommand(), backupCommand(), restoreCommand(),
	}
	for _, c := range list {
		c.SetOut(stdout)
		c.SetErr(stderr)
	}
	return list
}

// verb is what a run of one has in hand.
type verb struct {
	connection
	client *client.Client
	hangUp func() error // gives up the client; once is enough
	stdout io.Writer
	stderr io.Writer

	json    bool
	color   string
	noPager bool

	workspace, task, subtask string
}

// outputFlags are those of verbs that print for people.
func (v *verb) outputFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&v.json, "json", false, "print JSON, as the server answers it")
	fs.StringVar(&v.color, "color", string(term.Auto), "color the output: auto, always or never (`WHEN`)")
	fs.Lookup("color").NoOptDefVal = string(term.Always)
}

func (v *verb) pagerFlag(fs *pflag.FlagSet) {
	fs.BoolVar(&v.noPager, "no-pager", false, "do not page ($UMBRA_PAGER, $GIT_PAGER, $PAGER, else less, on a terminal)")
}

func (v *verb) workspaceFlag(fs *pflag.FlagSet) {
	fs.StringVarP(&v.workspace, "workspace", "w", "", "the workspace `WS`: its id or its directory; else the one around the current directory, else the only one")
}

func (v *verb) taskFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&v.task, "task", "t", "", "the task `T`")
	fs.StringVarP(&v.subtask, "subtask", "s", "", "only the subtask `S`")
}

// action makes a command's RunE of what it does: it connects, and settles how
// the end is told.
func (v *verb) action(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		if v.color != "" {
			if _, err := term.ParseColor(v.color); err != nil {
				return usageError{err}
			}
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		// A reader that leaves is an error of writing, not the end of a server that
		// works in this process.
		pipes := make(chan os.Signal, 1)
		signal.Notify(pipes, syscall.SIGPIPE)
		defer signal.Stop(pipes)
		v.stdout, v.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
		c, closer, err := v.open(ctx, cmd, v.stderr)
		if err != nil {
			return err
		}
		v.client = c
		v.hangUp = sync.OnceValue(closer)
		defer func() {
			// As it is where there is no second one: a status must be found in it.
			if failed := v.hangUp(); failed != nil {
				err = errors.Join(err, failed)
			}
		}()
		return misused(do(ctx, args))
	}
}

// misused tells wrong use from what did not work.
func misused(err error) error {
	if e, ok := errors.AsType[*client.Error](err); ok && (e.Status == http.StatusBadRequest || e.Status == http.StatusUnprocessableEntity) {
		return usageError{err}
	}
	if _, ok := errors.AsType[*replay.Misuse](err); ok {
		return usageError{err}
	}
	return err
}

// print writes for people: colored, paged if asked for.
func (v *verb) print(page bool, write func(o *term.Output) error) error {
	o := term.Open(v.stdout, term.Options{Color: term.Color(v.color), Page: page && !v.noPager})
	err := write(o)
	if err == nil {
		err = o.Flush()
	}
	if page {
		// All is read: a person may look at it for long, and the data directory is
		// for others meanwhile. An error is told at the end.
		_ = v.hangUp()
	}
	if failed := o.Close(); err == nil {
		err = failed
	}
	if term.Closed(err) {
		return nil // who read it has seen enough
	}
	return err
}

// printJSON writes an answer as it came.
func (v *verb) printJSON(raw []byte) error {
	if n := len(raw); n == 0 || raw[n-1] != '\n' {
		raw = append(raw, '\n')
	}
	return v.print(false, func(o *term.Output) error {
		_, err := o.Write(raw)
		return err
	})
}

// printList writes {"<name>":[…]} from elements as they came.
func (v *verb) printList(name string, items func(yield func(json.RawMessage, error) bool)) error {
	return v.print(false, func(o *term.Output) error {
		o.Printf("{%q:[", name)
		first := true
		for raw, err := range items {
			if err != nil {
				return err
			}
			if !first {
				o.Printf(",\n")
			}
			first = false
			if _, err := o.Write(raw); err != nil {
				return err
			}
		}
		o.Printf("]}\n")
		return nil
	})
}
