package main

import (
	"encoding/json"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"umbra/internal/buildinfo"
	"umbra/internal/cli"
)

func versionCommand(stdout io.Writer) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the program's version",
		Long: `Print the version of the program, of Go, and the system that it was built for.
umbra --version prints the same.

With --json: {"version","go","os","arch"}.`,
		Example: `  umbra version
  umbra version --json`,
		Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return json.NewEncoder(stdout).Encode(map[string]string{
					"version": buildinfo.Version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			}
			_, err := io.WriteString(stdout, buildinfo.Line())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
