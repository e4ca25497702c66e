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
	"runtime/debug"
	"strings"

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
	if len(args) > 0 && (args[0] == "exec" || args[0] == "in") {
		debug.SetGCPercent(400) // a collection would come just before the command, and take a sixth of what these take
	}
	root := command(stdout, stderr)
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		return exitcode.Of(err, stderr)
	}
	return exitcode.Done
}

// command returns the program's command with all verbs.
func command(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "umbra",
		Short: "A workspace server for AI agents that keeps every change in git",
		Long: `umbra records every change that AI agents make to a directory, and undoes one agent's
work without touching anyone else's.`,
		Example: `  umbra init --autostart   # add hooks to the coding agents on this machine
  umbra undo               # take an agent's last turn back
  umbra demo               # see it at work on a small project`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exitcode.Usage(cli.UnknownCommand(cmd, args[0]))
			}
			return nil
		},
	}
	root.SuggestionsMinimumDistance = 2
	// Not Command.Version: its template can call any method of what it prints, so that
	// the linker keeps every method of every type in the program.
	showVersion := root.Flags().BoolP("version", "v", false, "version for umbra")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *showVersion {
			_, err := io.WriteString(cmd.OutOrStdout(), buildinfo.Line())
			return err
		}
		return cmd.Help()
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return exitcode.Usage(flagtext.Error(cmd.Flags(), err)) })
	root.SetOut(stdout) // of help that was asked for, and of completions
	root.SetErr(stderr)
	root.AddCommand(serveCommand(stdout, stderr), demoCommand(stdout, stderr), versionCommand(stdout), licensesCommand(stdout), replayCommand(stdout, stderr))
	root.AddCommand(verbs(stdout, stderr)...)
	root.AddCommand(completionCommand(root, stdout), manCommand(root))
	group(root)
	cli.CompleteIDs(root)
	plainFlags(root)
	return root
}

// plainFlags has help show a flag that needs no value without the values that it may
// have.
func plainFlags(root *cobra.Command) {
	const values = "[=true|false]"
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		var text strings.Builder
		out := cmd.OutOrStdout()
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		_, _ = io.WriteString(out, strings.ReplaceAll(text.String(), values, strings.Repeat(" ", len(values))))
	})
}

// groups are the parts of the program's help, with their verbs.
var groups = []struct{ id, title, verbs string }{
	{"start", "Start:", "init serve demo mcp task"},
	{"look", "See what was changed, and by whom:", "turns log show diff summary blame why tasks workspaces"},
	{"undo", "Undo, accept, reject:", "undo redo revert restore review"},
	{"forks", "Try in a copy:", "fork forks in merge race exec"},
	{"git", "Use it with git and in CI:", "git export replay"},
	{"keep", "Look after a server:", "doctor verify backup du gc purge token policy cluster"},
	{"other", "Other:", "hook completion licenses version help"},
}

// group sorts the verbs into groups.
func group(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, name := range strings.Fields(g.verbs) {
			if cmd, _, err := root.Find([]string{name}); err == nil {
				cmd.GroupID = g.id
			}
		}
	}
	help, _, err := root.Find([]string{"help"})
	if err == nil {
		help.Short, help.Long = "Show the help of a command", "Show the help of a command."
		help.Args = func(_ *cobra.Command, args []string) error {
			cmd, rest, _ := root.Find(args)
			if len(rest) == 0 || !cmd.HasSubCommands() {
				return nil
			}
			return exitcode.Usage(cli.UnknownCommand(cmd, rest[0]))
		}
		help.Example = "  umbra help undo\n  umbra help task start"
	}
}
