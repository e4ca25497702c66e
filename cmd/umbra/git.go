package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

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
folder), after everything recorded so far was made visible to it. Nobody's git
configuration is read: no aliases, no hooks of yours, no filters.

The exit status is git's.`,
		Example: `  umbra git . -- log --oneline -5
  umbra git my-project-1a2b3c4d -- show head:src/app.ts
  umbra git . -- fsck --strict`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) < 1 || at == 0 || at > 1 {
				return exitcode.Usage(errors.New("it is umbra git WS -- ARGS…"))
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

// publish lets stock git see everything. What keeps it from seeing the newest
// is told, and no reason not to look at the rest.
func (v *verb) publish(ctx context.Context, w client.Workspace) error {
	_, err := v.Client.JSON(ctx, client.Request{Method: http.MethodPost, Path: client.Path("workspaces", w.ID, "sync")}, nil)
	switch client.CodeOf(err) {
	case "workspace_missing", "ref_locked", "forbidden":
		fmt.Fprintln(v.Stderr, "umbra: the newest changes may not be seen:", err)
		return nil
	}
	return err
}

// keptVariables are those of git's that change how it shows things, not what
// it reads or runs on.
var keptVariables = []string{"GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_TERMINAL_PROMPT", "GIT_ASKPASS", "GIT_PROGRESS_DELAY",
	"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE",
	"GIT_SSH", "GIT_SSH_COMMAND", "GIT_LITERAL_PATHSPECS", "GIT_TRACE", "GIT_TRACE2"}

// gitEnvironment is the caller's without what leads git to another repository
// or to anybody's configuration (git(1), "Environment Variables").
func gitEnvironment(env []string, gitDir string) []string {
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "GIT_") || slices.Contains(keptVariables, name) {
			out = append(out, e)
		}
	}
	if os.Getenv("GIT_PAGER") == "" {
		// Before any pager that the repository's configuration names.
		out = append(out, "GIT_PAGER="+cmp.Or(os.Getenv("PAGER"), "less"))
	}
	return append(out, "GIT_DIR="+gitDir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM="+os.DevNull, "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_ATTR_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0")
}

// ownConfig is what the repository's configuration does not decide: no program
// that it names runs. The user's own attributes would be read whatever the
// configuration is.
var ownConfig = []string{"-c", "core.attributesFile=" + os.DevNull, "-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false",
	"-c", "diff.external=", "-c", "protocol.ext.allow=never"}

// noAlias refuses a command that is an alias of the repository's configuration.
func noAlias(path string, env, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	cmd := exec.Command(path, "config", "--get", "alias."+args[0])
	cmd.Env = env
	if out, err := cmd.Output(); err == nil && len(out) > 0 {
		return exitcode.Usage(fmt.Errorf("%s is an alias of the repository's configuration, which is not run", term.Name(args[0])))
	}
	return nil // git knows it, or says that it does not
}

func (v *verb) git(gitDir string, args []string) error {
	if _, err := os.Stat(gitDir); err != nil {
		return fmt.Errorf("the repository is not on this machine: %s", term.Name(gitDir))
	}
	path, err := exec.LookPath("git")
	if err != nil {
		return errors.New("git is not installed")
	}
	env := gitEnvironment(os.Environ(), gitDir)
	if err := noAlias(path, env, args); err != nil {
		return err
	}
	cmd := exec.Command(path, append(slices.Clone(ownConfig), args...)...)
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
