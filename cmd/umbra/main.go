// Command umbra is the server and its owner's verbs, one file a verb.
//
// It wires the layers: settings from config, records and lock from
// internal/state, dialects from httpapi/*. Nothing else may import config.
//
// Exit status: 0 done, 1 it did not work or something was found, 2 wrong use
// (flags, settings, an address that cannot be listened on).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	execserve "umbra/internal/exec/serve"
	"umbra/internal/flagtext"
	"umbra/internal/sandbox/js"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is wrong use: exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitError ends with a status; what there is to say has been said.
type exitError struct{ status int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run does what the arguments say and gives the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == js.Verb {
		return js.Main(os.Stdin, os.Stdout)
	}
	if len(args) == 1 && args[0] == execserve.Verb {
		return execserve.Main()
	}
	root := &cobra.Command{
		Use:           "umbra",
		Short:         "A workspace server for AI agents that keeps every change in git",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       programVersion(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{unknownCommand(cmd, args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate(versionLine())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{flagtext.Error(cmd.Flags(), err)} })
	root.SetArgs(args)
	root.SetOut(stdout) // of help that was asked for, and of completions
	root.SetErr(stderr)
	root.AddCommand(serveCommand(stdout, stderr), demoCommand(stdout, stderr), versionCommand(stdout), replayCommand(stdout, stderr))
	root.AddCommand(verbs(stdout, stderr)...)
	root.AddCommand(completionCommand(root, stdout), manCommand(root))
	completeIDs(root)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if e, ok := errors.AsType[exitError](err); ok {
		return e.status
	}
	fmt.Fprintln(stderr, "umbra:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// unknownCommand is the error for a verb that does not exist; it names the ones
// that are spelled like it.
func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		return fmt.Errorf("unknown command %q; did you mean %s?", name, strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q; '%s --help' lists the commands", name, cmd.CommandPath())
}

// noArgs refuses arguments that a verb does not take.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}
