package js

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// Verb is the hidden argument by which the binary is started as a child.
const Verb = "__run"

// The environment by which the server bounds a child: the program's memory in
// bytes, and whether a child must refuse to run without all of its walls.
const (
	memoryVariable  = "PROGRAM_MEMORY"
	requireVariable = "PROGRAM_WALLS"
)

// maxStack bounds a goroutine's stack in the child, so that a program whose
// text is nested beyond measure ends its parser, not the machine's memory.
const maxStack = 256 << 20

// Main is the child: it makes itself ready, gives its rights away, does one job
// and returns the exit status. in and out are the pipes to the server.
func Main(in io.Reader, out io.Writer) int {
	debug.SetMaxStack(maxStack)
	c := &child{wire: newWire(in, out), replies: make(chan []byte), over: make(chan struct{})}
	kind, prelude, err := c.wire.read()
	if err != nil || kind != framePrelude {
		return 1
	}
	e, err := newEngine(c, prelude)
	if err != nil {
		return 1
	}
	memory, _ := strconv.ParseInt(os.Getenv(memoryVariable), 10, 64) // none: 0, no bound
	if missing := harden(memory); len(missing) > 0 && os.Getenv(requireVariable) != "" {
		fmt.Fprintln(os.Stderr, "walls that the kernel refused:", strings.Join(missing, ", "))
		return 1
	}
	if c.wire.write(frameReady) != nil {
		return 1
	}
	kind, payload, err := c.wire.read()
	if err != nil || kind != frameJob {
		return 0 // no job any more
	}
	var t task
	if json.Unmarshal(payload, &t) != nil {
		return 1
	}
	c.limit = t.Output
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			kind, payload, err := c.wire.read()
			if err != nil || kind != frameReply {
				return // the server is gone
			}
			c.replies <- payload
		}
	}()
	go c.work(e, &t)
	select {
	case <-c.over:
	case <-gone:
	}
	return 0
}

// child is the program's outside within its process: everything goes to the
// server.
type child struct {
	wire    *wire
	replies chan []byte
	limit   int64

	once sync.Once
	over chan struct{}

	// The program's own goroutine uses the rest.
	taken  int64
	fd     int
	buffer []byte
}

// bufferSize is how much output waits to be sent together.
const bufferSize = 32 << 10

func (c *child) work(e *engine, t *task) {
	k := compiler{entry: t.Name, code: t.Code, read: locked(c.read), builtins: e.builtins, shallow: t.Check}
	done := k.compile()
	if t.Check {
		c.finish(result{Diagnostics: done.faults})
		return
	}
	for _, d := range done.faults {
		if d.Severity == SeverityError {
			c.finish(result{Exit: 1, Failure: FailedCompile, Message: d.String(), Diagnostics: done.faults})
			return
		}
	}
	if t.Memory > 0 {
		go e.watchMemory(t.Memory, func() { c.end(result{Exit: 1, Failure: FailedMemory}) })
	}
	c.finish(e.run(t, done, c.flush))
}

// locked lets esbuild's goroutines ask one at a time.
func locked(read source) source {
	var mu sync.Mutex
	return func(name string) ([]byte, string) {
		mu.Lock()
		defer mu.Unlock()
		return read(name)
	}
}

// finish reports how the job ended; it is the last message to the server.
func (c *child) finish(r result) {
	c.flush()
	c.end(r)
}

// end is finish for a goroutine that is not the program's: output that waits
// to be sent is lost.
func (c *child) end(r result) {
	c.once.Do(func() {
		_ = c.wire.writeJSON(frameResult, r) // a server that is gone needs no answer
		close(c.over)
	})
}

// exit ends the program from inside of it.
func (c *child) exit(code int) {
	r := result{Exit: code & 0xff}
	if r.Exit != 0 {
		r.Failure = FailedExit
	}
	c.finish(r)
	select {} // no line of the program runs any more
}

func (c *child) write(fd int, text string) {
	if c.taken += int64(len(text)); c.limit > 0 && c.taken > c.limit {
		c.finish(result{Exit: 1, Failure: FailedOutput})
		select {}
	}
	if fd != c.fd {
		c.flush()
		c.fd = fd
	}
	c.buffer = append(c.buffer, text...)
	if len(c.buffer) >= bufferSize {
		c.flush()
	}
}

func (c *child) flush() {
	if len(c.buffer) == 0 {
		return
	}
	kind := byte(frameOut)
	if c.fd == 2 {
		kind = frameErr
	}
	_ = c.wire.write(kind, c.buffer) // the server's end is this process's end
	c.buffer = c.buffer[:0]
}

func (c *child) ask(a ask, content ...[]byte) (rest []byte, fault string, err error) {
	if err := c.wire.writeJSON(frameAsk, a, content...); err != nil {
		return nil, "", err
	}
	var r reply
	rest, err = cutJSON(<-c.replies, &r)
	return rest, r.Fault, err
}

func (c *child) read(name string) ([]byte, string) {
	data, fault, err := c.ask(ask{Op: "read", Name: name})
	if err != nil {
		return nil, "EIO"
	}
	return data, fault
}

func (c *child) save(name string, content []byte) (path, fault string) {
	at, fault, err := c.ask(ask{Op: "save", Name: name}, content)
	if err != nil {
		fault = errors.New("the file could not be saved").Error()
	}
	return string(at), fault
}
