package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// The names of the ways to run a command that targets compare.
const (
	NamePlain   = "the command alone"
	NameExec    = "`umbra exec`"
	NameLive    = "`umbra exec --live`"
	NameOverlay = "`unshare` and `mount -t overlay`"
	// NameApplied is that, with its upper directory copied over the project.
	NameApplied = NameOverlay + ", then `cp -a`"
)

// Exec returns the command line by which umbra runs a command in a directory; flags
// are more of its own.
func (s *Server) Exec(folder string, flags []string, argv ...string) []string {
	all := []string{s.env.Umbra, "exec", "--data-dir", s.Data, "--agent", "bench", "--session", "exec", "--cwd", folder}
	return append(append(append(all, flags...), "--"), argv...)
}

// Overlay runs commands over a directory as a script would: in namespaces of their own,
// with an overlayfs mounted over it. Nothing is recorded.
type Overlay struct {
	lower, dir string
}

// NewOverlay makes one for a directory. ErrMissing: the system gives no overlay.
func NewOverlay(ctx context.Context, env *measure.Env, lower string) (*Overlay, error) {
	dir, err := env.Dir("overlay")
	if err != nil {
		return nil, err
	}
	o := &Overlay{lower: lower, dir: dir}
	if err := o.Clear(); err != nil {
		return nil, err
	}
	if _, err := Timed(ctx, lower, nil, nil, o.Argv("true")...); err != nil {
		return nil, errors.Join(ErrMissing, err)
	}
	return o, o.Clear()
}

// Clear empties the upper directory.
func (o *Overlay) Clear() error {
	for _, name := range []string{"upper", "work"} {
		if err := os.RemoveAll(filepath.Join(o.dir, name)); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(o.dir, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

const overlayScript = `mount -t overlay overlay -o "userxattr,lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$1" && cd "$1" && shift 2 && exec "$@"`

// Argv returns the command line for a command over the directory.
func (o *Overlay) Argv(argv ...string) []string {
	return append([]string{"unshare", "--user", "--map-root-user", "--mount", "sh", "-c", overlayScript, "sh", o.lower, o.dir}, argv...)
}

// Apply copies the upper directory over the lower one; what was deleted stays.
func (o *Overlay) Apply(ctx context.Context) error {
	return quietly(exec.CommandContext(ctx, "cp", "-a", filepath.Join(o.dir, "upper")+"/.", o.lower))
}

// EditVerb is what this program is called with to be the command that changes files.
const EditVerb = "edit-files"

// Ignored is the directory of a project whose files are ignored.
const Ignored = "node_modules"

// EditArgs are the arguments with which this program changes some of a project's
// recorded files and some below Ignored, which is removed first if renew is set.
func EditArgs(recorded, ignored int, version uint64, renew bool) []string {
	return []string{EditVerb, strconv.Itoa(recorded), strconv.Itoa(ignored), strconv.FormatUint(version, 10), strconv.FormatBool(renew)}
}

// Edit is that command, in the current directory.
func Edit(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("%s takes four arguments", EditVerb)
	}
	recorded, err1 := strconv.Atoi(args[0])
	ignored, err2 := strconv.Atoi(args[1])
	version, err3 := strconv.ParseUint(args[2], 10, 64)
	renew, err4 := strconv.ParseBool(args[3])
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	if renew {
		if err := os.RemoveAll(Ignored); err != nil {
			return err
		}
	}
	for _, x := range []struct {
		dir   string
		files int
	}{{".", recorded}, {Ignored, ignored}} {
		last := ""
		for i := range x.files {
			name := filepath.Join(x.dir, corpus.Path(i))
			if dir := filepath.Dir(name); dir != last {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
				last = dir
			}
			if err := os.WriteFile(name, corpus.Content(i, version), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// Settle has the kernel write what it holds, so that one subject does not pay for the
// bytes of another.
func Settle(ctx context.Context, dir string) error {
	_, err := Timed(ctx, dir, nil, nil, "sync", "-f", dir)
	return err
}
