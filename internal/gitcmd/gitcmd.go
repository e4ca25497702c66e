// Package gitcmd runs the machine's git where git is the contract: serving
// clones, bundles, patches. Only the repository's own configuration is read, no
// hook runs, and git asks nothing on a terminal.
package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// ErrMissing is returned where the machine has no git.
var ErrMissing = errors.New("git is not installed on this machine")

// patience is how long a git that was asked to end may take.
const patience = 2 * time.Second

// Command prepares a git command on a bare repository (its directory). A
// cancelled ctx ends it.
func Command(ctx context.Context, gitDir string, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath("git")
	if err != nil {
		return nil, ErrMissing
	}
	// The command line is protected configuration: it may say that the
	// repository is ours, no matter who owns the files.
	base := []string{"-c", "safe.directory=*", "-c", "core.attributesFile=" + os.DevNull, "-c", "core.hooksPath=" + os.DevNull,
		"-c", "diff.external=", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never"}
	cmd := exec.CommandContext(ctx, path, append(base, args...)...)
	cmd.Env = append(environment(), "GIT_DIR="+gitDir)
	cmd.Dir = gitDir
	cmd.WaitDelay = patience
	return cmd, nil
}

// environment is the least that git needs: no variable of the server's leads
// it anywhere. GIT_ALLOW_PROTOCOL overrides a protocol.<name>.allow of the
// repository, which would override protocol.allow: a lazy fetch of a missing
// object runs no program that the repository's config names.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.DevNull, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=" + os.DevNull,
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0",
		"GIT_ALLOW_PROTOCOL=none"}
}

// AllowTransports lifts the ban of the environment for a command whose job is
// to fetch. The caller names what is allowed by -c protocol.allow.
func AllowTransports(cmd *exec.Cmd) {
	cmd.Env = slices.DeleteFunc(cmd.Env, func(e string) bool { return strings.HasPrefix(e, "GIT_ALLOW_PROTOCOL=") })
}

// maxComplaint bounds what is kept of a failed command's error output.
const maxComplaint = 4 << 10

// Run runs a prepared command to its end; the error contains what git printed to stderr.
func Run(cmd *exec.Cmd) error {
	var said bytes.Buffer
	if cmd.Stderr == nil {
		cmd.Stderr = &limited{w: &said, left: maxComplaint}
	}
	if err := cmd.Run(); err != nil {
		text, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n\n") // advice follows
		if text == "" {
			return fmt.Errorf("git: %w", err)
		}
		return &failed{text: "git: " + strings.TrimPrefix(strings.ReplaceAll(text, "\nfatal: ", "\n"), "fatal: "), err: err}
	}
	return nil
}

// failed is the error of a git that printed why.
type failed struct {
	text string
	err  error // of the process
}

func (e *failed) Error() string { return e.text }
func (e *failed) Unwrap() error { return e.err }

// limited drops what goes beyond a number of bytes.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	if _, err := l.w.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}
