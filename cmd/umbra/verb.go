package main

import (
	"io"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/fleet"
)

// verbs are the owner's: each talks to a server, or to one of its own in this
// process, over HTTP alike.
func verbs(stdout, stderr io.Writer) []*cobra.Command {
	list := []*cobra.Command{
		logCommand(), diffCommand(), showCommand(), blameCommand(), whyCommand(), reviewCommand(), policyCommand(), summaryCommand(), revertCommand(),
		tasksCommand(), taskCommand(), workspacesCommand(), gitCommand(), verifyCommand(), exportCommand(), mcpCommand(), gcCommand(), duCommand(), tokenCommand(), doctorCommand(), hookCommand(), execCommand(), forkCommand(), forksCommand(), inCommand(), mergeCommand(), raceCommand(), initCommand(), turnsCommand(), undoCommand(), redoCommand(), purgeCommand(), backupCommand(), restoreCommand(), fleet.Command(),
	}
	for _, c := range list {
		c.SetOut(stdout)
		c.SetErr(stderr)
	}
	return list
}

// verb is a run of one of the verbs.
type verb struct{ cli.Verb }
