package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"umbra/config"
	"umbra/httpapi"
	"umbra/internal/audit"
	"umbra/internal/buildinfo"
	"umbra/internal/exitcode"
	"umbra/internal/state"
	"umbra/internal/strictjson"
	"umbra/internal/tlscert"
)

// closePatience is the least that is left of a stop's ten seconds for what lies below
// the server, after httpapi.Server.Stop.
const closePatience = 900 * time.Millisecond

// stopPatience is how long a stop takes at most. Its parts have deadlines that are counted
// from its beginning: what one does not need, those after it have.
const stopPatience = 10*time.Second - logPatience

// stopTimes are the deadlines of a stop.
type stopTimes struct {
	left     time.Time // a node of a cluster has handed its workspaces over
	requests time.Time // those that were accepted have ended
	closed   time.Time // what lies below the server is closed
}

// stopFrom returns the deadlines of a stop that begins now. A node leaves its cluster after
// all is closed, which may take closePatience.
func stopFrom(now time.Time, node bool) (t stopTimes) {
	t.left, t.closed = now.Add(leavePatience), now.Add(stopPatience)
	if node {
		t.closed = t.closed.Add(-closePatience)
	}
	t.requests = t.closed.Add(-closePatience)
	return t
}

// closeUntil is when what lies below the server must be closed: a stop that took little so
// far has its ten seconds, on a machine where syncs are slow too.
func (t stopTimes) closeUntil(now time.Time) time.Time {
	if least := now.Add(closePatience); t.closed.Before(least) {
		return least
	}
	return t.closed
}

// leavePatience is how long a node of a cluster has for handing its workspaces over
// while it still serves.
const leavePatience = 3 * time.Second

// bounded runs f, and returns an error when ctx ends before it has: f goes on by itself.
func bounded(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sayPatience is for how long a node that stops waits for others to know, and for the
// requests that they have sent it; refusePatience for those of its clients.
const (
	sayPatience    = 300 * time.Millisecond
	refusePatience = 300 * time.Millisecond
)

// logPatience is for a log whose reader has stopped reading.
const logPatience = 100 * time.Millisecond

// Options are those of one start, besides the settings.
type Options struct {
	Folder  string        // to be opened as a workspace before the server is ready; empty: none
	Idle    time.Duration // without a request after which it ends; 0: never
	AnyPort bool          // where the address is taken, another port will do
	Ready   func(Welcome) // called with the addresses; if nil, they are printed to stderr
}

// withRemedy adds to the error of a second server on one data directory what to do.
func withRemedy(err error) error {
	held, ok := errors.AsType[*state.HeldError](err)
	switch {
	case !ok || held.Holder.PID <= 0:
		return err
	case held.Holder.Address == "":
		return fmt.Errorf("%w; try again in a moment, or choose another directory with --data-dir", err)
	}
	return fmt.Errorf("%w; commands and agents find that server by themselves. To replace it, end it first (kill %d); for a second one choose another directory with --data-dir", err, held.Holder.PID)
}

// Serve runs the server until a signal comes or ctx ends.
func Serve(ctx context.Context, cfg config.Config, o Options, stdout, stderr io.Writer) (err error) {
	// Before the ready line goes out: a signal sent on seeing it must find us.
	ctx, stopSignals := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stopSignals()
	CloseInheritedOnExec()
	sink, log := newLogger(cfg.Log, stderr)
	defer sink.Close(logPatience)

	dir, err := state.Acquire(cfg.DataDir)
	if err != nil {
		return withRemedy(err)
	}
	defer func() { err = errors.Join(err, dir.Release()) }()
	warnOfMode(log, dir.Path)
	warnOfVariables(log, os.Environ())
	if err := checkReach(ctx, cfg, dir, log); err != nil {
		return err
	}

	l, address, err := httpapi.Listen(cfg.Listen)
	if o.AnyPort && errors.Is(err, syscall.EADDRINUSE) {
		l, address, err = httpapi.Listen("127.0.0.1:0")
	}
	if err != nil {
		return exitcode.Usage(cannotListen(cfg.Listen, err))
	}
	defer l.Close()

	if o.Folder != "" && len(cfg.MCP.Mounts) == 0 {
		cfg.MCP.Mounts = ownMount(o.Folder, log)
	}
	secure, err := openTLS(cfg, log)
	if err != nil {
		return err
	}
	if secure != nil {
		address = "https://" + strings.TrimPrefix(address, "http://")
	}
	var waiting *lobby
	if cfg.Cluster.On() {
		waiting = openLobby(l, secure)
	}
	member, err := joinCluster(ctx, cfg, dir, address, log)
	if err != nil {
		return err
	}
	defer member.leave(log)
	deps, err := build(cfg, dir, member.node(), log)
	if err != nil {
		return err
	}
	deps.Resume()
	hello := Welcome{Address: address, tokens: deps.tokens.On()}
	if o.Folder != "" {
		if hello.id, hello.folder, err = openAtOnce(audit.Into(ctx, log, ""), deps.workspaces, o.Folder, stderr); err != nil {
			return errors.Join(err, deps.Close(context.Background()))
		}
	}
	if err := dir.Announce(address); err != nil {
		return errors.Join(err, deps.Close(ctx))
	}
	deps.workspaces.ResumeRestored()
	if deps.node != nil {
		deps.node.Start()
	}

	var memory sync.WaitGroup
	memory.Go(func() { giveMemoryBack(ctx) })
	defer memory.Wait() // stopSignals ends it
	if err := waiting.leave(); err != nil {
		return errors.Join(err, deps.Close(context.Background()))
	}
	served := make(chan error, 1)
	go func() {
		if secure != nil {
			served <- deps.Server.ServeTLS(l, secure)
		} else {
			served <- deps.Server.Serve(l)
		}
	}()
	if _, err := fmt.Fprintf(stdout, "umbra listening on %s\n", address); err != nil {
		log.Warn("the ready line could not be written", "error", err)
	}
	switch {
	case o.Ready != nil:
		o.Ready(hello)
	case cfg.Log.Format == config.FormatJSON:
		hello.log(log)
	default:
		_, _ = sink.Write([]byte(hello.text())) // never fails
	}
	log.Info("listening", "address", address, "data_dir", dir.Path, "version", buildinfo.Version(), "pid", os.Getpid())

	quiet, stopQuiet := context.WithCancel(ctx)
	defer stopQuiet()
	select {
	case <-ctx.Done():
		log.Info("stopping")
	case <-idleFor(quiet, o.Idle, deps.Server.Quiet):
		log.Info("stopping: no request came", "idle_exit", o.Idle)
	case err = <-served:
		log.Error("the listener failed", "error", err)
	}
	times := stopFrom(time.Now(), deps.node != nil)
	// A second signal ends the program at once, as the system does it.
	stopSignals()
	if err := dir.Announce(""); err != nil {
		log.Warn("the lock file could not be written", "error", err)
	}
	if deps.node != nil {
		// What was begun ends while its workspace is here: later it would wait for the next
		// owner, and the stop for it.
		saying, cancel := context.WithTimeout(context.Background(), sayPatience)
		deps.sayLeft(saying)
		cancel()
		deps.Server.Refuse(refusePatience)
		leaving, cancel := context.WithDeadline(context.Background(), times.left)
		if left := deps.node.Leave(leaving); len(left) > 0 {
			log.Warn("some workspaces were not released in time", "workspaces", len(left))
		}
		cancel()
	}
	if !deps.Server.StopWithin(time.Until(times.requests)) {
		log.Warn("some requests did not end in time")
	}
	closing, cancel := context.WithDeadline(context.Background(), times.closeUntil(time.Now()))
	defer cancel()
	if deps.node == nil {
		err = errors.Join(err, deps.Close(closing))
	} else if failed := bounded(closing, func() error { return deps.Close(closing) }); errors.Is(failed, context.DeadlineExceeded) {
		log.Warn("the server was not closed in time", "error", failed) // others have its workspaces once it has left
	} else {
		err = errors.Join(err, failed)
	}
	log.Info("stopped")
	return err
}

// openTLS returns what HTTPS needs, nil where the address is served by plain HTTP.
func openTLS(cfg config.Config, log *slog.Logger) (*tls.Config, error) {
	if _, isUnix := config.UnixSocket(cfg.Listen); isUnix || cfg.TLS.Cert == "" {
		return nil, nil
	}
	source, err := tlscert.Open(cfg.TLS.Cert, cfg.TLS.Key, log)
	if err != nil {
		return nil, exitcode.Usage(fmt.Errorf("tls: %w", err))
	}
	return source.Config(), nil
}

// cannotListen says why an address could not be listened on, and what to do.
func cannotListen(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use by another program; choose another address, as in --listen 127.0.0.1:0 (any free port)", address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this machine (--listen)", address)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to listen on %s; ports below 1024 usually need root (--listen)", address)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*os.SyscallError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("cannot listen on %s: %w", address, err)
}

// newLogger writes to standard error; standard output is for the ready line. The
// sink is what it writes to: closing it writes what still waits, and ends the
// logger.
func newLogger(cfg config.Log, w io.Writer) (sink *logSink, log *slog.Logger) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo // config has checked it
	}
	opts := &slog.HandlerOptions{Level: level}
	sink = newLogSink(w, func(lines int) { log.Warn("the log was read too slowly", "lines_dropped", lines) })
	if cfg.Format == config.FormatJSON {
		log = slog.New(slog.NewJSONHandler(sink, opts))
	} else {
		log = slog.New(slog.NewTextHandler(sink, opts))
	}
	return sink, log
}

// warnOfVariables names the variables that look like misspelled settings: one
// that is not known is otherwise silently without effect.
func warnOfVariables(log *slog.Logger, environ []string) {
	const prefix = "UMBRA_"
	known := config.Variables()
	for i := range known {
		known[i] = strings.TrimPrefix(known[i], prefix)
	}
	for _, entry := range environ {
		full, _, _ := strings.Cut(entry, "=")
		name, ours := strings.CutPrefix(full, prefix)
		if !ours || slices.Contains(known, name) {
			continue
		}
		if near := strictjson.Nearest(name, known); near != "" {
			log.Warn("an environment variable is not a known setting", "variable", full, "did_you_mean", prefix+near)
		}
	}
}

// warnOfMode warns of a data directory that others may read; one that the
// server makes is 0700.
func warnOfMode(log *slog.Logger, path string) {
	if st, err := os.Stat(path); err == nil && st.Mode().Perm()&0o077 != 0 {
		log.Warn("others may look into the data directory", "data_dir", path, "mode", fmt.Sprintf("%#o", st.Mode().Perm()))
	}
}

// idleFor returns a channel that is closed once quiet reports at least limit; nil
// if limit is 0.
func idleFor(ctx context.Context, limit time.Duration, quiet func() time.Duration) <-chan struct{} {
	if limit == 0 {
		return nil
	}
	over := make(chan struct{})
	go func() {
		for {
			left := limit - quiet()
			if left <= 0 {
				close(over)
				return
			}
			select {
			case <-time.After(left):
			case <-ctx.Done():
				return
			}
		}
	}()
	return over
}
