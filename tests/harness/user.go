package harness

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// becomeUser makes a command run as Options.User, in folders that are that user's.
// The program is copied to where the user can reach it.
func (s *Server) becomeUser(cmd *exec.Cmd) {
	s.t.Helper()
	if s.program == "" {
		s.program = filepath.Join(s.t.TempDir(), "umbra")
		if err := copyProgram(s.program, cmd.Path); err != nil {
			s.t.Fatal(err)
		}
	}
	cmd.Path = s.program
	folders := []string{s.program, cmd.Dir}
	for _, kv := range cmd.Env {
		if name, dir, _ := strings.Cut(kv, "="); name == "HOME" || name == "TMPDIR" {
			folders = append(folders, dir)
		}
	}
	for i, arg := range cmd.Args {
		if arg == "--config" {
			folders = append(folders, cmd.Args[i+1])
		}
	}
	for _, name := range append(folders, filepath.Dir(s.DataDir)) {
		s.Give(name)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.opts.User, Gid: s.opts.User, NoSetGroups: true}}
}

// AsUser is the program with arguments, in a clean environment and as Options.User, not
// started.
func (s *Server) AsUser(args ...string) *exec.Cmd {
	s.t.Helper()
	cmd := Command(s.t, nil, args...)
	s.becomeUser(cmd)
	return cmd
}

// Give makes a file or folder in a temporary folder of the test the server's
// user's, and the way to it passable.
func (s *Server) Give(name string) {
	s.t.Helper()
	if err := os.Lchown(name, int(s.opts.User), int(s.opts.User)); err != nil {
		s.t.Fatal(err)
	}
	top := os.TempDir()
	for dir := filepath.Dir(name); strings.HasPrefix(dir, top+string(filepath.Separator)); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil {
			err = os.Chmod(dir, info.Mode().Perm()|0o011)
			if err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

func copyProgram(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}
