package main

import (
	"io"

	"github.com/spf13/cobra"

	"umbra/internal/buildinfo"
	"umbra/internal/cli"
)

func versionCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the program's version",
		Args:  cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(stdout, buildinfo.Line())
			return err
		},
	}
}
