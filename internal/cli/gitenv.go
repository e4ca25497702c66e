package cli

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"umbra/internal/exitcode"
	"umbra/internal/term"
)

// keptVariables are those of git's that change how it shows things, not what
// it reads or runs on.
var keptVariables = []string{"GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_TERMINAL_PROMPT", "GIT_ASKPASS", "GIT_PROGRESS_DELAY",
	"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE",
	"GIT_SSH", "GIT_SSH_COMMAND", "GIT_LITERAL_PATHSPECS", "GIT_TRACE", "GIT_TRACE2"}

// GitEnvironment is the caller's without what leads git to another repository
// or to anybody's configuration (git(1), "Environment Variables").
func GitEnvironment(env []string, gitDir string) []string {
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

// GitConfig is what the repository's configuration does not decide: no program
// that it names runs. The user's own attributes would be read whatever the
// configuration is.
var GitConfig = []string{"-c", "core.attributesFile=" + os.DevNull, "-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false",
	"-c", "diff.external=", "-c", "protocol.ext.allow=never"}

// NoAlias refuses a command that is an alias of the repository's configuration.
func NoAlias(path string, env, args []string) error {
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
