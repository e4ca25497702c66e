package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"runtime"
	"syscall"
	"time"

	"umbra/internal/errs"
	"umbra/internal/layer"
)

// Verb is the program's argument that makes it the parent of one command: a process
// of its own, since it becomes the parent of all that the command leaves behind.
const Verb = "__exec"

// spec is what the parent process reads, one line of JSON on descriptor 3; the end
// of that descriptor stops the command.
type spec struct {
	Root, Upper, Work, Dir string
	Args, Env              []string
	// Temp is a directory that is removed after the command if the server has ended.
	Temp string
}

// told is what it writes on descriptor 4.
type told struct {
	Exit    layer.Exit
	NoLayer string // why there is none; the command did not run
	Error   string
}

// Main is the parent process.
func Main() int {
	in, out := os.NewFile(3, "spec"), os.NewFile(4, "result")
	if in == nil || out == nil {
		return 2
	}
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	syscall.CloseOnExec(5) // the layer's lock, where there is a layer
	d := json.NewDecoder(in)
	var s spec
	if err := d.Decode(&s); err != nil {
		return 2
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(stop)
	}()
	exit, err := layer.Run(layer.Command{Root: s.Root, Upper: s.Upper, Work: s.Work, Dir: s.Dir, Args: s.Args, Env: s.Env,
		Files: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, Stop: stop, Group: true})
	answer := told{Exit: exit}
	switch {
	case errors.Is(err, layer.ErrUnsupported):
		answer.NoLayer = err.Error()
	case err != nil:
		answer.Error = err.Error()
	}
	if json.NewEncoder(out).Encode(answer) != nil {
		if s.Temp != "" {
			_ = os.RemoveAll(s.Temp) // what stays is what a kill of this process leaves
		}
		return 2
	}
	return 0
}

// notRunError says why a command did not run.
type notRunError struct {
	error
	noLayer bool // the system gives no layer
}

func (e *notRunError) Unwrap() error { return e.error }

// drain is how long the output is awaited after the command and all that it left
// behind have ended: a slow reader must not lose any.
const drain = time.Minute

// run runs a command, and ends it with ctx. The parent process keeps lock, which may
// be nil, open until it ends, also after the server was killed. The error is a
// *notRunError where the command did not run.
func run(ctx context.Context, s spec, stdin io.Reader, stdout, stderr io.Writer, lock *os.File) (exit layer.Exit, err error) {
	notRun := func(err error) (layer.Exit, error) {
		return exit, &notRunError{error: errs.Wrap(err, "")}
	}
	self, err := os.Executable()
	if err != nil {
		return notRun(err)
	}
	specR, specW, err := os.Pipe()
	if err != nil {
		return notRun(err)
	}
	defer specW.Close()
	toldR, toldW, err := os.Pipe()
	if err != nil {
		return notRun(errors.Join(err, specR.Close()))
	}
	defer toldR.Close()
	cmd := osexec.Command(self, Verb)
	cmd.Env = []string{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.ExtraFiles = []*os.File{specR, toldW}
	if lock != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, lock)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cmd.WaitDelay = drain; runtime.GOOS != "linux" {
		cmd.WaitDelay = layer.Grace // what stays in the background there holds the output open
	}
	err = cmd.Start()
	specR.Close()
	toldW.Close()
	if err != nil {
		return notRun(err)
	}
	if err := json.NewEncoder(specW).Encode(s); err != nil {
		specW.Close()
		return exit, errors.Join(errs.Wrap(err, ""), cmd.Wait())
	}
	ended := context.AfterFunc(ctx, func() { specW.Close() })
	defer ended()
	// What heeds neither SIGTERM nor SIGKILL within that time is left to the system.
	hard := context.AfterFunc(ctx, func() {
		time.AfterFunc(5*layer.Grace, func() { _ = cmd.Process.Kill() })
	})
	defer hard()
	raw, _ := io.ReadAll(io.LimitReader(toldR, 1<<16))
	waited := cmd.Wait()
	var a told
	if err := json.Unmarshal(raw, &a); err != nil {
		return exit, errs.New(errs.Internal, "", "the command's parent process was lost: %v", waited)
	}
	switch {
	case a.NoLayer != "":
		return exit, &notRunError{errors.New(a.NoLayer), true}
	case a.Error != "":
		return exit, fmt.Errorf("run a command: %s", a.Error)
	}
	return a.Exit, nil
}
