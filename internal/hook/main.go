package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Limit is how long a hook may hold its agent up, from the start of the process.
const Limit = 1900 * time.Millisecond

// DefaultServer is where a server listens that keeps its address nowhere.
const DefaultServer = "http://127.0.0.1:8080"

// Invocation is one run of `umbra hook`.
type Invocation struct {
	Agent   string
	Event   string // --event
	Server  string // --server
	DataDir string // --data-dir, else the environment's
	Block   bool   // --on-failure=block
	Context bool   // --context=on
	// Autostart is whether a server is started where none runs.
	Autostart bool
	// Isolate has shells run in layers, where the agent lets a hook rewrite their
	// commands.
	Isolate bool

	serverFlag, dataDirFlag string // as given, before Complete
}

// ParseArgs reads the arguments of `umbra hook`, without the verb. ok is false
// if they are anything but an agent and flags that are surely right; the caller
// then parses them in full.
func ParseArgs(args []string) (v Invocation, ok bool) {
	v.Context = true
	for i := 0; i < len(args); i++ {
		name, value, has := strings.Cut(args[i], "=")
		if name == "--autostart" && !has {
			v.Autostart = true
			continue
		}
		if name == "--isolate" && !has {
			v.Isolate = true
			continue
		}
		if !strings.HasPrefix(name, "-") && v.Agent == "" {
			v.Agent = args[i]
			continue
		}
		if !has {
			if i++; i == len(args) || !strings.HasPrefix(name, "--") {
				return v, false
			}
			value = args[i]
		}
		if value == "" || !v.set(name, value) {
			return v, false
		}
	}
	return v.Complete()
}

// Complete fills from the environment what is not set. ok is false if the agent
// is unknown.
func (v Invocation) Complete() (_ Invocation, ok bool) {
	v.serverFlag, v.dataDirFlag = v.Server, v.DataDir
	v.environment()
	return v, v.Agent == Generic || kinds[v.Agent] != nil
}

func (v *Invocation) set(name, value string) bool {
	switch name {
	case "--event":
		v.Event = value
	case "--server":
		v.Server = value
	case "--data-dir":
		v.DataDir = value
	case "--on-failure":
		v.Block = value == "block"
		return value == "block" || value == "ignore"
	case "--context":
		v.Context = value == "on"
		return value == "on" || value == "off"
	default:
		return false
	}
	return true
}

// environment completes what no flag gives.
func (v *Invocation) environment() {
	if v.Server == "" {
		v.Server = os.Getenv("UMBRA_SERVER")
	}
	if v.DataDir == "" {
		v.DataDir = os.Getenv("UMBRA_DATA_DIR")
	}
	if v.DataDir == "" {
		v.DataDir = defaultDataDir()
	}
	if os.Getenv("UMBRA_HOOKS_CONTEXT") == "off" {
		v.Context = false
	}
}

// defaultDataDir is the configuration's default (XDG Base Directory
// Specification); empty without a home.
func defaultDataDir() string {
	if d := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "umbra")
	}
	if home := os.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "share", "umbra")
	}
	return ""
}

// Server is where to send calls.
type Server struct {
	Address string // http://HOST:PORT, https://… or unix:PATH
	Token   string // bearer token; may be empty
	Own     bool   // found in the data directory: called by a loopback name
	// Starting is true if the process that holds the data directory listens
	// nowhere yet.
	Starting bool
	// Guessed is true if nothing names a server, and Address is DefaultServer.
	Guessed bool
}

// Find returns the server: the one that is named, else the running one of the
// data directory, else DefaultServer.
func (v *Invocation) Find() Server {
	token := os.Getenv("UMBRA_TOKEN")
	if v.Server != "" {
		return Server{Address: v.Server, Token: token}
	}
	if address, alive := holder(v.DataDir); alive {
		if secret, err := os.ReadFile(filepath.Join(v.DataDir, "owner")); err == nil {
			token = strings.TrimSpace(string(secret))
		}
		return Server{Address: address, Token: token, Own: true, Starting: address == ""}
	}
	return Server{Address: DefaultServer, Token: token, Guessed: true}
}

// holder returns the address that the data directory's server keeps in its lock
// file. The lock itself is not tried: that could make a server fail that starts
// in this instant.
func holder(dir string) (address string, alive bool) {
	if dir == "" {
		return "", false
	}
	raw, err := os.ReadFile(filepath.Join(dir, "lock"))
	if err != nil {
		return "", false
	}
	var h struct {
		PID     int    `json:"pid"`
		Address string `json:"address"`
	}
	if json.Unmarshal(raw, &h) != nil || h.PID <= 0 {
		return "", false
	}
	if err := syscall.Kill(h.PID, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return "", false
	}
	return h.Address, true
}

// Sender is what sends requests to a server until a deadline; see Runner.Send.
type Sender func(s Server, deadline time.Time) func(method, path string, body []byte) (int, []byte, error)

// Main handles one event and returns the exit status. It takes until Limit after
// started at most. start, if not nil, starts a server in the background.
func (v *Invocation) Main(stdin io.Reader, stdout, stderr io.Writer, started time.Time, sender Sender, start func(dataDir string) error) int {
	deadline := started.Add(Limit)
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	longer := make(chan time.Time, 1)
	var passes atomic.Bool
	dir := v.home()
	go func() {
		out, err := v.run(stdin, dir, deadline, longer, &passes, sender, start)
		done <- result{out, err}
	}()
	var res result
	timer := time.NewTimer(time.Until(deadline))
	for waits := true; waits; {
		select {
		case res = <-done:
			waits = false
		case until := <-longer: // a worktree: without it, the agent has no directory
			v.Block = true
			timer.Reset(time.Until(until))
		case <-timer.C:
			res.err = errors.New("no answer in time")
			waits = false
		}
	}
	select {
	case <-longer: // it came with the result
		v.Block = true
	default:
	}
	if res.err == nil {
		if _, err := stdout.Write(res.out); err == nil {
			return 0
		}
		res.err = errors.New("standard output is closed")
	}
	return v.fail(stderr, dir, res.err, passes.Load())
}

// refused is the status that has an agent not run a tool. After a prompt or at an
// agent's stop it would have the prompt dropped, or the agent go on for ever: such an
// event gets failed, which agents show and do not obey.
const (
	failed  = 1
	refused = 2
)

// fail logs why the event was not handled. passes is whether the event is of no tool.
func (v *Invocation) fail(stderr io.Writer, dir string, err error, passes bool) int {
	text := strings.Join(strings.Fields(err.Error()), " ")
	logLine(dir, fmt.Sprintf("%s %s: %s\n", time.Now().UTC().Format(time.RFC3339), v.Agent, text))
	if !v.Block {
		return 0
	}
	fmt.Fprintf(stderr, "umbra: hook: %s\n", text)
	if passes {
		return failed
	}
	return refused
}

func (v *Invocation) run(stdin io.Reader, dir string, deadline time.Time, longer chan<- time.Time, passes *atomic.Bool, sender Sender, start func(string) error) ([]byte, error) {
	input, err := ReadInput(stdin)
	if err != nil {
		return nil, err
	}
	if v.Block {
		passes.Store(!ofTool(v.Agent, v.Event, input))
	}
	tree := worktreeOf(v.Agent, input)
	if tree != nil {
		deadline = time.Now().Add(worktreeLimit)
		longer <- deadline
	}
	r := &Runner{Agent: v.Agent, Event: v.Event, Context: v.Context, Now: time.Now}
	if dir != "" {
		r.State = filepath.Join(dir, "hooks")
	}
	if v.Isolate {
		r.Exec = v.execCommand()
	}
	var send func(method, path string, body []byte) (int, []byte, error)
	r.Send = func(method, path string, body []byte) (int, []byte, error) {
		if send == nil { // events that need no server do not look for one
			s, err := v.reach(deadline, start)
			if err != nil {
				return 0, nil, err
			}
			send = sender(s, deadline)
		}
		status, answer, err := send(method, path, body)
		if errors.Is(err, ErrUnreachable) && v.Autostart && start != nil && v.Server == "" {
			s, startErr := v.started(deadline, start)
			if startErr != nil {
				return 0, nil, errors.Join(err, startErr)
			}
			send = sender(s, deadline)
			return send(method, path, body)
		}
		return status, answer, err
	}
	if tree != nil {
		return tree.run(r)
	}
	return r.Run(input)
}

// reach finds the server, and waits for one that is starting.
func (v *Invocation) reach(deadline time.Time, start func(string) error) (Server, error) {
	s := v.Find()
	if s.Guessed && v.Autostart && start != nil {
		return v.started(deadline, start)
	}
	return v.await(s, deadline)
}

// started starts a server and waits for its address.
func (v *Invocation) started(deadline time.Time, start func(string) error) (Server, error) {
	if err := start(v.DataDir); err != nil {
		return Server{}, fmt.Errorf("%w: it cannot be started: %w", ErrUnreachable, err)
	}
	s := v.Find()
	if s.Guessed {
		s.Starting = true
	}
	return v.await(s, deadline)
}

func (v *Invocation) await(s Server, deadline time.Time) (Server, error) {
	for s.Starting {
		if time.Now().After(deadline) {
			return s, fmt.Errorf("%w: it is still starting", ErrUnreachable)
		}
		time.Sleep(5 * time.Millisecond)
		next := v.Find()
		if s.Guessed && next.Guessed {
			continue // the process that was started has not taken the directory yet
		}
		s = next
	}
	return s, nil
}

// home is the directory for the log and the open calls: the data directory,
// else ~/.local/state/umbra where that cannot be written; empty if neither can.
func (v *Invocation) home() string {
	for _, dir := range []string{v.DataDir, v.fallback()} {
		if !filepath.IsAbs(dir) {
			if dir == "" {
				continue
			}
			var err error
			if dir, err = filepath.Abs(dir); err != nil {
				continue
			}
		}
		if writable(dir) {
			return dir
		}
	}
	return ""
}

// fallback is where the log is if the data directory cannot be written; empty
// without a home.
func (v *Invocation) fallback() string {
	home := os.Getenv("HOME")
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".local", "state", "umbra")
}

// writable reports whether files can be made in dir; it is made if absent.
func writable(dir string) bool {
	const wx = 2 | 1 // access(2): W_OK, X_OK
	if syscall.Access(dir, wx) == nil {
		return true
	}
	return os.MkdirAll(dir, 0o700) == nil && syscall.Access(dir, wx) == nil
}

// maxLog is the size at which the log is set aside as hooks.log.1, in bytes.
const maxLog = 1 << 20

func logLine(dir, text string) {
	if dir == "" {
		return
	}
	name := filepath.Join(dir, "hooks.log")
	if info, err := os.Stat(name); err == nil && info.Size() > maxLog {
		_ = os.Rename(name, name+".1")
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(text)
	_ = f.Close()
}
