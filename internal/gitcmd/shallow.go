package gitcmd

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// PinShallow has a command, and what it runs, see the repository's shallow
// commits as they are now, however they change before it ends. The caller calls
// done when the command has ended.
//
// An upload-pack sends the client the beginning of history, and the pack-objects that
// it starts reads it again (gitprotocol-pack(5), shallow.c): where history is
// dropped in between, the client gets fewer commits than were announced, and
// fails.
func PinShallow(cmd *exec.Cmd, gitDir string) (done func(), err error) {
	data, err := os.ReadFile(filepath.Join(gitDir, "shallow"))
	if errors.Is(err, fs.ErrNotExist) {
		// Git takes an empty name for a repository that is not shallow.
		cmd.Env = append(cmd.Env, "GIT_SHALLOW_FILE=")
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp("", "umbra-shallow-*")
	if err != nil {
		return nil, err
	}
	done = func() { _ = os.Remove(f.Name()) }
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		done()
		return nil, err
	}
	cmd.Env = append(cmd.Env, "GIT_SHALLOW_FILE="+f.Name())
	return done, nil
}
