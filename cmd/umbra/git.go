package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/term"
)

func gitCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "git WS -- ARGS…",
		Short: "Run git on a workspace's repository",
		Long: `Run this machine's git on the shadow repository of the workspace WS (its id or its
directory), after everything recorded so far was made visible to it. No user's git
configuration is read: no aliases, no hooks of yours, no filters.

The exit status is git's.`,
		Example: `  umbra git . -- log --oneline -5
  umbra git my-project-1a2b3c4d -- show head:src/app.ts
  umbra git . -- fsck --strict`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) < 1 || at == 0 || at > 1 {
				return exitcode.Usage(errors.New("usage: umbra git WS -- ARGS…"))
			}
			return nil
		},
	}
	v.Connection.Flags(cmd.Flags())
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		w, err := v.FindWorkspace(ctx, args[0])
		if err != nil {
			return err
		}
		if err := v.publish(ctx, w); err != nil {
			return err
		}
		// Git may run for long: the data directory is for others meanwhile.
		if err := v.HangUp(); err != nil {
			return err
		}
		return v.git(w.GitDir, args[1:])
	})
	return cmd
}

// publish makes all commits visible to stock git. A failure to publish the newest
// ones is reported, and the caller continues with the older ones.
func (v *verb) publish(ctx context.Context, w client.Workspace) error {
	_, err := v.Client.JSON(ctx, client.Request{Method: http.MethodPost, Path: client.Path("workspaces", w.ID, "sync")}, nil)
	switch client.CodeOf(err) {
	case "workspace_missing", "ref_locked", "forbidden":
		fmt.Fprintln(v.Stderr, "umbra: the newest changes may not be seen:", err)
		return nil
	}
	return err
}

func (v *verb) git(gitDir string, args []string) error {
	if _, err := os.Stat(gitDir); err != nil {
		return fmt.Errorf("the repository is not on this machine: %s", term.Name(gitDir))
	}
	path, err := exec.LookPath("git")
	if err != nil {
		return errors.New("git is not installed")
	}
	env := cli.GitEnvironment(os.Environ(), gitDir)
	if err := cli.NoAlias(path, env, args); err != nil {
		return err
	}
	cmd := exec.Command(path, append(slices.Clone(cli.GitConfig), args...)...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, v.Stdout, v.Stderr
	// An interrupt from the terminal goes to git too, which knows what to do; we
	// go on waiting for it.
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return exitcode.With(128 + int(status.Signal()))
		}
		return exitcode.With(exit.ExitCode())
	}
	return err
}
