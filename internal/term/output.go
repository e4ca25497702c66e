package term

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Output is what a verb writes to. Write errors are kept and returned by
// Close: a verb checks Err where it could go on for long.
type Output struct {
	w     *bufio.Writer
	color bool
	pager *exec.Cmd
	pipe  io.Closer
	err   error
}

// Options of an Output.
type Options struct {
	Color Color
	// Page lets a pager show the output, if it goes to a terminal.
	Page bool
	// Env gives an environment variable; nil: os.Getenv.
	Env func(string) string
}

// Open makes an output on w. Close must be called.
func Open(w io.Writer, o Options) *Output {
	if o.Env == nil {
		o.Env = os.Getenv
	}
	out := &Output{color: o.Color.Wanted(w)}
	if o.Page && IsTerminal(w) {
		if p := startPager(w, o.Env); p != nil {
			out.pager, out.pipe, w = p.cmd, p.pipe, p.pipe
		}
	}
	out.w = bufio.NewWriterSize(w, 32<<10)
	return out
}

// PagerCommand is the command line of the pager, empty for none: git's order,
// with our own variable first.
func PagerCommand(env func(string) string) string {
	for _, name := range []string{"UMBRA_PAGER", "GIT_PAGER", "PAGER"} {
		if v := env(name); v != "" {
			if v == "cat" {
				return ""
			}
			return v
		}
	}
	return "less"
}

type pager struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// startPager gives nil where there is none, or it does not start: then the
// output goes where it would have gone.
func startPager(w io.Writer, env func(string) string) *pager {
	command := PagerCommand(env)
	if command == "" {
		return nil
	}
	// As git does it: the variable may hold arguments, quotes and all.
	cmd := exec.Command("sh", "-c", command)
	if strings.IndexByte(command, ' ') < 0 {
		if _, err := exec.LookPath(command); err != nil {
			return nil
		}
		cmd = exec.Command(command)
	}
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	cmd.Env = os.Environ()
	for name, value := range map[string]string{"LESS": "FRX", "LV": "-c"} {
		if env(name) == "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil
	}
	if err := cmd.Start(); err != nil {
		return nil
	}
	return &pager{cmd, pipe}
}

// Write writes bytes as they are.
func (o *Output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	o.err = err
	return n, err
}

// Printf writes formatted text.
func (o *Output) Printf(format string, args ...any) { fmt.Fprintf(o, format, args...) }

// Flush sends out what is written so far.
func (o *Output) Flush() error {
	if o.err == nil {
		o.err = o.w.Flush()
	}
	return o.err
}

// Err is the first error of writing.
func (o *Output) Err() error { return o.err }

// Closed reports whether an error means that the reader has seen enough: it
// left, and that is no failure.
func Closed(err error) bool { return errors.Is(err, syscall.EPIPE) }

// Close writes out the rest and waits for the pager to be left. A reader that
// disappeared is no error.
func (o *Output) Close() error {
	err := o.Flush()
	if o.pager != nil {
		o.pipe.Close()
		_ = o.pager.Wait() // the pager's exit status has no meaning here
	}
	if Closed(err) {
		return nil
	}
	return err
}
