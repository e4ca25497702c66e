// Command umbra is the server and its owner's verbs, one file a verb.
//
// A verb's file has its flags and its help. The server is put together in
// internal/server; what the verbs share is in internal/cli, and what they print
// in internal/render.
//
// Exit status: 0 done, 1 it did not work or something was found, 2 wrong use
// (flags, settings, an address that cannot be listened on).
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"umbra/internal/buildinfo"
	"umbra/internal/cli"
	execserve "umbra/internal/exec/serve"
	"umbra/internal/exitcode"
	"umbra/internal/flagtext"
	"umbra/internal/sandbox/js"
)

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
		Version:       buildinfo.Version(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exitcode.Usage(cli.UnknownCommand(cmd, args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate(buildinfo.Line())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return exitcode.Usage(flagtext.Error(cmd.Flags(), err)) })
	root.SetArgs(args)
	root.SetOut(stdout) // of help that was asked for, and of completions
	root.SetErr(stderr)
	root.AddCommand(serveCommand(stdout, stderr), demoCommand(stdout, stderr), versionCommand(stdout), licensesCommand(stdout), replayCommand(stdout, stderr))
	root.AddCommand(verbs(stdout, stderr)...)
	root.AddCommand(completionCommand(root, stdout), manCommand(root))
	cli.CompleteIDs(root)
	if err := root.ExecuteContext(ctx); err != nil {
		return exitcode.Of(err, stderr)
	}
	return exitcode.Done
}
