package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"umbra/internal/exitcode"
)

// completionCommand prints what a shell reads to complete the program's command
// lines.
func completionCommand(root *cobra.Command, stdout io.Writer) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print completions for a shell",
		Long: `Print completions for a shell: verbs, flags and, where a server runs, the ids of
tasks and workspaces.`,
		Example: `  umbra completion bash > ~/.local/share/bash-completion/completions/umbra
  umbra completion zsh > "${fpath[1]}/_umbra"
  umbra completion fish > ~/.config/fish/completions/umbra.fish`,
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return exitcode.Usage(fmt.Errorf("name one shell: %s", strings.Join(shells, ", ")))
			case !slices.Contains(shells, args[0]):
				return exitcode.Usage(fmt.Errorf("unknown shell %q; it is one of %s", args[0], strings.Join(shells, ", ")))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "zsh":
				return root.GenZshCompletion(stdout)
			case "fish":
				return root.GenFishCompletion(stdout, true)
			}
			return root.GenBashCompletionV2(stdout, true)
		},
	}
}
