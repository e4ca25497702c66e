package toolset

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"umbra/internal/errs"
	"umbra/internal/toolset/mount"
)

// Record is what is kept of a toolset.
type Record struct {
	ID     string  `json:"id"`
	Mounts []Mount `json:"mounts"`
	// Task is the one that was given, empty if none was. Tasks has the task of
	// each mounted workspace, by the workspace's id; Own are those of them that
	// the toolset made.
	Task    string            `json:"task,omitempty"`
	Tasks   map[string]string `json:"tasks,omitempty"`
	Own     map[string]bool   `json:"own,omitempty"`
	Made    int               `json:"made,omitempty"` // own tasks so far, for their ids
	Created time.Time         `json:"created"`
	// Idle is the lease: unused for so long the toolset goes. 0: it stays.
	Idle time.Duration `json:"idle,omitempty"`
	// Until is the end of the lease as it is kept: a use moves it a little later.
	Until time.Time `json:"until,omitzero"`
	// Lazy: no task is made with the toolset; each client's is made at its first
	// change. Clients are those that have changed something, by Client.key.
	Lazy    bool              `json:"lazy,omitempty"`
	Clients map[string]Served `json:"clients,omitempty"`
	// Fixed is the default toolset: the configuration says what it mounts.
	Fixed bool `json:"fixed,omitempty"`
	// KeyHash is the idempotency key of the request that made the toolset.
	KeyHash string `json:"key_hash,omitempty"`
	// Loose are own tasks that no mount uses (yet, or any more), Loosened when one was
	// added last: a start completes them, or, where several servers share the records,
	// one of them a while later. Hidden: the toolset itself is being made, or goes.
	Loose    []string  `json:"loose,omitempty"`
	Loosened time.Time `json:"loosened,omitzero"`
	Hidden   bool      `json:"hidden,omitempty"`
}

// Mount is one line of the table, with its store.
type Mount struct {
	Prefix    string      `json:"prefix"`
	Scope     mount.Scope `json:"scope"`
	Kind      mount.Kind  `json:"kind"`
	Root      string      `json:"root,omitempty"` // of a physical one, as it was when it was mounted
	Namespace []string    `json:"namespace,omitempty"`
	Workspace string      `json:"workspace"` // the workspace's id
}

// newID makes a random id.
func newID() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// newTask gives the next id of an own task.
func (r *Record) newTask() string {
	r.Made++
	return fmt.Sprintf("toolset-%s-%d", r.ID, r.Made)
}

// loosen adds tasks to the loose ones.
func (r *Record) loosen(now time.Time, tasks ...string) {
	if len(tasks) > 0 {
		r.Loose, r.Loosened = append(slices.Clip(r.Loose), tasks...), now.UTC()
	}
}

// tighten takes tasks out of the loose ones.
func (r *Record) tighten(tasks []string) {
	r.Loose = slices.DeleteFunc(slices.Clone(r.Loose), func(id string) bool { return slices.Contains(tasks, id) })
	if len(r.Loose) == 0 {
		r.Loose, r.Loosened = nil, time.Time{}
	}
}

func sameMounts(a, b []Mount) bool {
	return slices.EqualFunc(a, b, func(a, b Mount) bool {
		return a.Prefix == b.Prefix && a.Scope == b.Scope && a.Kind == b.Kind && a.Workspace == b.Workspace
	})
}

func notFound() error {
	return errs.New(errs.NotFound, "toolset_not_found", "The toolset does not exist.")
}
