package vfs

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
)

// The operations as a Hook names them. Those that change or sync something:
const (
	OpCreate          = "create" // OpenFile with O_CREATE or O_TRUNC
	OpTmpfile         = "tmpfile"
	OpLinkFile        = "linkfile"
	OpMkdir           = "mkdir"
	OpSymlink         = "symlink"
	OpLink            = "link"
	OpRename          = "rename"
	OpRenameNoReplace = "rename-noreplace"
	OpExchange        = "exchange"
	OpRemove          = "remove"
	OpChmod           = "chmod"
	OpSyncDir         = "syncdir"
	OpWrite           = "write"
	OpTruncate        = "truncate"
	OpAllocate        = "allocate"
	OpSetMtime        = "setmtime"
	OpFsync           = "fsync"
	OpFdatasync       = "fdatasync"
	OpWriteout        = "writeout"
)

// Those that only look, seen if Hook.Reads is set:
const (
	OpOpen     = "open"
	OpSub      = "sub"
	OpLstat    = "lstat"
	OpStat     = "stat"
	OpReadlink = "readlink"
	OpReadDir  = "readdir"
	OpRead     = "read"
)

// Call is one call that a Hook sees.
type Call struct {
	N    int    // from 1, over all calls seen
	OpN  int    // from 1, over those of this Op
	Op   string // Op…
	Name string // from the top, also in a Sub; the new name where there are two
}

// Hook decides which calls of an injected FS fail. The fields are set before
// first use. One Hook may serve several FS; its methods may be called
// concurrently.
type Hook struct {
	// OnCall is asked before each call. An error is what the call returns,
	// undone; a bare errno is wrapped as the system would. OnCall may use the
	// FS below (to clone it at this moment), not the injected one.
	OnCall func(Call) error
	// Reads has calls that only look counted and asked about as well.
	Reads bool
	// NoLeases has no file say whether it is open for writing.
	NoLeases atomic.Bool

	mu      sync.Mutex
	n       int
	byOp    map[string]int
	stopAt  int // 0: never
	stopErr error
}

// Count returns how many calls were made: how many points there are to fail at.
func (h *Hook) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// CountOf returns how many calls of one operation were made.
func (h *Hook) CountOf(op string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byOp[op]
}

// StopAt makes call n and every one after it fail with err, reads as well, as
// if the process were killed there: nothing more reaches the disk. If err is
// Partial and call n a write, half of it does. Close still works.
func (h *Hook) StopAt(n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopAt, h.stopErr = n, err
}

// Stop is StopAt for the next call.
func (h *Hook) Stop(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopAt, h.stopErr = h.n+1, err
}

// Stopped reports whether calls fail because of Stop or StopAt.
func (h *Hook) Stopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopAt > 0 && h.n >= h.stopAt
}

// FailNth is an OnCall that fails the n-th call (from 1) of op with err, once.
func FailNth(op string, n int, err error) func(Call) error {
	return func(c Call) error {
		if c.Op == op && c.OpN == n {
			return err
		}
		return nil
	}
}

// FailFrom is FailNth for the n-th and all later ones: a disk that stays full.
func FailFrom(op string, n int, err error) func(Call) error {
	return func(c Call) error {
		if c.Op == op && c.OpN >= n {
			return err
		}
		return nil
	}
}

// Partial is an error for writes: half of the bytes are written before err is
// returned. For other calls it is err.
func Partial(err error) error { return &partialError{err} }

type partialError struct{ error }

func (p *partialError) Unwrap() error { return p.error }

// before is asked ahead of each call; half is for writes.
func (h *Hook) before(op, name string, reads bool) (half bool, err error) {
	h.mu.Lock()
	if reads && !h.Reads {
		stopped := h.stopAt > 0 && h.n >= h.stopAt
		err := h.stopErr
		h.mu.Unlock()
		if stopped {
			_, err = unpack(op, name, err)
			return false, err
		}
		return false, nil
	}
	h.n++
	if h.byOp == nil {
		h.byOp = map[string]int{}
	}
	h.byOp[op]++
	call := Call{N: h.n, OpN: h.byOp[op], Op: op, Name: name}
	first := h.n == h.stopAt
	if h.stopAt > 0 && h.n >= h.stopAt {
		err = h.stopErr
	}
	h.mu.Unlock()
	if err != nil {
		half, err = unpack(op, name, err)
		return half && first, err
	}
	if h.OnCall == nil {
		return false, nil
	}
	return unpack(op, name, h.OnCall(call))
}

func unpack(op, name string, err error) (half bool, _ error) {
	if p, ok := errors.AsType[*partialError](err); ok {
		half, err = op == OpWrite, p.error
	}
	if errno, ok := err.(syscall.Errno); ok {
		err = &fs.PathError{Op: op, Path: name, Err: errno}
	}
	return half, err
}
