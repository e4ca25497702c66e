package retire

import (
	"log/slog"
	"sync"

	"umbra/internal/rootfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// Keeper keeps the displaced files of one workspace until their bytes are in history
// and no process writes to them any more, and removes them then. Its methods may be
// called from any goroutine.
type Keeper struct {
	Disk  *disk.Disk
	Rec   *record.Recorder
	Locks *pathlock.Table
	Log   *slog.Logger
	Warn  func(format string, args ...any) // what the owner should know
	// Go runs work next to requests; nil: not yet.
	Go func(func())

	settling   sync.Mutex   // held to settle lingers, before lmu
	dropMu     sync.RWMutex // held shared to take and remove files of toDrop, before lmu
	lmu        sync.Mutex
	lingers    []lingering
	toDrop     []lingering // aside
	dropping   bool        // toDrop will be checked again
	lingerWake chan struct{}
}

// New returns a keeper of what a recorder's workspace displaces.
func New(rec *record.Recorder, locks *pathlock.Table, log *slog.Logger, warn func(format string, args ...any)) *Keeper {
	return &Keeper{Disk: rec.Disk, Rec: rec, Locks: locks, Log: log, Warn: warn, lingerWake: make(chan struct{}, 1)}
}

// Waits receives when a displaced file begins to wait.
func (k *Keeper) Waits() <-chan struct{} { return k.lingerWake }

// DropLater removes a displaced or prepared file that could not be removed yet.
func (k *Keeper) DropLater(out *rootfs.Displaced) { k.lingerOn(lingering{out: out, done: true}) }

// Finish removes what a change set displaced at a path, or has it wait.
func (k *Keeper) Finish(p wspath.Path, out *rootfs.Displaced) {
	if out.IsAside() {
		k.dropSoon(lingering{path: p, out: out})
	} else if l := (lingering{path: p, out: out}); !k.lateComer(l) {
		k.drop(l)
	}
}
