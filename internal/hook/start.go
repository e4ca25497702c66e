package hook

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// IdleExit is after how long without a request a server that a hook started ends.
const IdleExit = "8h"

// StartServer starts a server of this program on a data directory, detached from
// the agent. Several hooks may call it at once: one starts the server, and the
// others return at once. It does not wait for the server to be ready.
func StartServer(dataDir string) error {
	if dataDir == "" {
		return errors.New("the data directory does not exist")
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return err
	}
	// The lock is held until this process ends: the server has taken the data
	// directory by then, or failed. So its descriptor is not that of an os.File,
	// which would be closed once it is not used.
	lock, err := syscall.Open(filepath.Join(dataDir, "start.lock"), syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = syscall.Close(lock)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil
		}
		return err
	}
	if _, alive := holder(dataDir); alive {
		return syscall.Close(lock)
	}
	return spawn(dataDir)
}

func spawn(dataDir string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	name := filepath.Join(dataDir, "server.log")
	if info, err := os.Stat(name); err == nil && info.Size() > maxLog {
		_ = os.Rename(name, name+".1")
	}
	log, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := os.StartProcess(program, []string{program, "serve", "--data-dir", dataDir, "--idle-exit", IdleExit}, &os.ProcAttr{
		Dir: dataDir, Env: os.Environ(), Files: []*os.File{null, null, log}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return err
	}
	return p.Release()
}
