//go:build !linux

package layer

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Grace is the time between SIGTERM and SIGKILL for what a command leaves running.
const Grace = 2 * time.Second

// Command is a command to be run; only Linux has layers (run_linux.go).
type Command struct {
	Root, Upper, Work string
	Over, Below       string
	Dir               string
	Args              []string
	Env               []string
	Files             [3]*os.File
	Started           func(pid int)
	Linger            bool
	Stop              <-chan struct{}
	Group             bool
}

// Read returns ErrUnsupported.
func Read(context.Context, string, func(Entry) (bool, error)) error { return ErrUnsupported }

// ReadOpening reports ErrUnsupported.
func ReadOpening(context.Context, string, func(string, uint32) error, func(Entry) (bool, error)) error {
	return ErrUnsupported
}

// Strip does nothing: there is no overlay whose attributes could be left.
func Strip(string) error { return nil }

// Remove removes a layer's directory.
func Remove(dir string) error { return os.RemoveAll(dir) }

// Unlock does nothing.
func Unlock(string) {}

// CopyData copies a file.
func CopyData(dst, src *os.File, _ int64) error {
	_, err := io.Copy(dst, src)
	return err
}

// MakeWhiteout returns ErrUnsupported.
func MakeWhiteout(string) error { return ErrUnsupported }

// SetOpaque returns ErrUnsupported.
func SetOpaque(string, bool) error { return ErrUnsupported }

// IsOpaque returns ErrUnsupported.
func IsOpaque(string) (bool, error) { return false, ErrUnsupported }

// Probe returns ErrUnsupported.
func Probe(string) error { return ErrUnsupported }

// SweepProbes does nothing.
func SweepProbes(string) error { return nil }

// Supported returns ErrUnsupported.
func Supported() error { return ErrUnsupported }

// Covers returns ErrUnsupported.
func Covers(string) error { return ErrUnsupported }

// Run runs a command without a layer; with one it returns ErrUnsupported. What
// the command leaves running is left alone, but Stop ends its process group.
func Run(c Command) (Exit, error) {
	if c.Root != "" {
		return Exit{}, ErrUnsupported
	}
	path, err := find(&c)
	if err != nil {
		return Exit{Status: 127, Failure: c.Args[0] + ": not found"}, nil
	}
	p, err := os.StartProcess(path, c.Args, &os.ProcAttr{Dir: c.Dir, Env: c.Env, Files: c.Files[:], Sys: &syscall.SysProcAttr{Setpgid: c.Group}})
	if err != nil {
		return Exit{Status: 126, Failure: c.Args[0] + ": " + err.Error()}, nil
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	defer signal.Stop(signals)
	done := make(chan struct{})
	defer close(done)
	var stopped atomic.Bool
	go func() {
		for stop := c.Stop; ; {
			select {
			case s := <-signals:
				if s != syscall.SIGINT || c.Group {
					_ = p.Signal(s)
				}
			case <-stop:
				stop = nil
				stopped.Store(true)
				_ = syscall.Kill(-p.Pid, syscall.SIGTERM)
				time.AfterFunc(Grace, func() { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) })
			case <-done:
				return
			}
		}
	}()
	state, err := p.Wait()
	if err != nil {
		return Exit{}, err
	}
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return Exit{Status: 128 + int(w.Signal()), Stopped: stopped.Load()}, nil
	}
	return Exit{Status: state.ExitCode(), Stopped: stopped.Load()}, nil
}

// find looks a command up as the directory where it runs has it.
func find(c *Command) (string, error) {
	if strings.Contains(c.Args[0], "/") {
		if filepath.IsAbs(c.Args[0]) {
			return c.Args[0], nil
		}
		return filepath.Join(c.Dir, c.Args[0]), nil
	}
	return exec.LookPath(c.Args[0])
}

// Mount is an overlay that all processes see; only Linux has them (mount_linux.go).
type Mount struct{ Name, Point, Root, Over, Upper, Work string }

// ErrOccupied is returned where a mount would hide files.
var ErrOccupied = errors.New("the directory is not empty")

// Mounted reports false.
func (m Mount) Mounted() (bool, error) { return false, nil }

// Mount returns ErrUnsupported.
func (m Mount) Mount() error { return ErrUnsupported }

// Unmount does nothing.
func (m Mount) Unmount(bool) error { return nil }

// Refresh does nothing.
func (m Mount) Refresh() error { return nil }

// RefreshAll does nothing here.
func RefreshAll(string) error { return nil }

// Own returns ErrUnsupported.
func (m Mount) Own(context.Context, func(int64) error) error { return ErrUnsupported }

// MayMount returns ErrUnsupported.
func MayMount(string) error { return ErrUnsupported }

// Decides returns ErrUnsupported.
func Decides(string, string) (bool, error) { return false, ErrUnsupported }

// EndOrphans does nothing.
func EndOrphans(string) error { return nil }
