package doctor

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"umbra/internal/gitcmd"
)

// The git that everything here works with (protocol v2, bundle and fetch of the
// server's refs), and the oldest that still serves clones and fetches.
const (
	goodMajor, goodMinor = 2, 30
	lastMajor, lastMinor = 2, 26
)

var gitVersion = regexp.MustCompile(`git version ([0-9]+)\.([0-9]+)(\S*)`)

const installGit = "install git 2.30 or newer, where the server's PATH finds it"

func (r *report) git(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd, err := gitcmd.Command(ctx, ".", "version")
	if errors.Is(err, gitcmd.ErrMissing) {
		r.add("git", Hurts, "", installGit, "git is not on this machine: clones are served plainly and whole, bundles, patches, exports and replays not at all")
		return
	}
	var out []byte
	if err == nil {
		out, err = cmd.Output()
	}
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, e.Stderr)
		}
		r.add("git", Hurts, "", installGit, "git does not run: %v", err)
		return
	}
	r.judgeGit(string(out), cmd.Path)
}

// judgeGit judges what git says of itself.
func (r *report) judgeGit(text, path string) {
	m := gitVersion.FindStringSubmatch(text)
	if m == nil {
		r.add("git", Hurts, path, installGit, "what is called git says %q of itself", text)
		return
	}
	major, _ := strconv.Atoi(m[1]) // digits, by the pattern
	minor, _ := strconv.Atoi(m[2])
	older := func(a, b int) bool { return major < a || major == a && minor < b }
	version := m[1] + "." + m[2] + m[3]
	switch {
	case older(lastMajor, lastMinor):
		r.add("git", Hurts, path, installGit, "git is %s: too old for the protocol that clones and fetches use", version)
	case older(goodMajor, goodMinor):
		r.add("git", Note, path, installGit, "git is %s: it works, newer ones are what is tested", version)
	default:
		r.ok("git", path, "git is %s", version)
	}
}
