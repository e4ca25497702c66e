package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"umbra/tests/bench/measure"
)

// Names of what is compared where a history is read by git.
const (
	NameCloneHTTP  = "git clone from umbra, over HTTP"
	NameCloneFile  = "git clone file://, the same repository"
	NameReplay     = "umbra replay, every tree proven"
	NameEachCommit = "git checkout of each commit"
)

// Clone has stock git clone a URL, without a checkout, into a new folder, and
// gives the time that it took.
func Clone(ctx context.Context, env *measure.Env, url string, more ...string) (took time.Duration, err error) {
	dir, err := env.Dir("clone")
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	_, err = plainGit(ctx, dir, append(append([]string{"clone", "-q", "--no-checkout"}, more...), url, dir)...)
	return time.Since(begin), err
}

// Replay has the program replay a task and gives the time of the whole run and
// the number of steps, all of them proven.
func Replay(ctx context.Context, env *measure.Env, from string, t Task) (took time.Duration, steps int, err error) {
	begin := time.Now()
	out, err := exec.CommandContext(ctx, env.Umbra, "replay", "--json", "--from", from, "--task", t.ID).Output()
	took = time.Since(begin)
	if err != nil {
		return 0, 0, fmt.Errorf("umbra replay: %w", err)
	}
	var report struct {
		OK     bool              `json:"ok"`
		Proven bool              `json:"proven"`
		Steps  []json.RawMessage `json:"steps"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return 0, 0, err
	}
	if !report.OK || !report.Proven {
		return 0, 0, fmt.Errorf("the history is not as recorded")
	}
	return took, len(report.Steps), nil
}

// CheckoutEach has git check out the last commits of a history one after the
// other, oldest first.
func CheckoutEach(ctx context.Context, env *measure.Env, repo string, commits int) (took time.Duration, err error) {
	dir, err := env.Dir("checkout")
	if err != nil {
		return 0, err
	}
	if _, err := plainGit(ctx, dir, "clone", "-q", "file://"+repo, dir); err != nil {
		return 0, err
	}
	out, err := plainGit(ctx, dir, "rev-list", "--reverse", fmt.Sprintf("--max-count=%d", commits), "HEAD")
	if err != nil {
		return 0, err
	}
	list := strings.Fields(out)
	if _, err := plainGit(ctx, dir, "checkout", "-q", "--detach", list[0]); err != nil {
		return 0, err
	}
	begin := time.Now()
	for _, id := range list {
		if _, err := plainGit(ctx, dir, "checkout", "-q", "--detach", id); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// plainGit runs stock git as anybody without settings would.
func plainGit(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull, "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return string(out), nil
}
