package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"umbra/internal/buildinfo"
	"umbra/internal/cli"
	"umbra/internal/exitcode"
)

// manCommand writes the manual's pages, one a verb. It is for those who package
// the program.
func manCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the manual pages into a directory",
		Hidden:  true,
		Example: `  umbra man /usr/local/share/man/man1`,
		Args:    cli.Args(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			info, err := os.Stat(args[0])
			if err != nil || !info.IsDir() {
				return exitcode.Usage(fmt.Errorf("%s is not a directory", args[0]))
			}
			forEverybody(root)
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, manHeader(), args[0])
		},
	}
}

// manHeader dates the pages by the commit that the program was built from: the
// same program makes the same pages. Where that is not known it is
// $SOURCE_DATE_EPOCH, else today.
func manHeader() *doc.GenManHeader {
	h := &doc.GenManHeader{Section: "1", Source: "umbra " + buildinfo.Version(), Manual: "umbra"}
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return h
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			if day, err := time.Parse(time.RFC3339, s.Value); err == nil {
				h.Date = &day
			}
		}
	}
	return h
}

// forEverybody takes this machine's folders out of what the flags' help says.
func forEverybody(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if f := cmd.Flags().Lookup("data-dir"); f != nil {
			f.DefValue = "~/.local/share/umbra"
		}
		forEverybody(cmd)
	}
}
