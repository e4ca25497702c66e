// Package doctor checks the machine that the server runs on (git, watches, file
// systems, rights, clock and free space), and reports problems and fixes.
//
// It changes nothing that stays: in directories it makes files for a moment, under
// names that are the server's own (wspath.TempName), or without one.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Level says how bad something is.
type Level string

// The levels. Only what hurts is to be mended; a note is worth knowing.
const (
	OK    Level = "ok"
	Note  Level = "note"
	Hurts Level = "hurts"
)

// Finding is what a check found.
type Finding struct {
	Check  string `json:"check"` // git, watches, data, workspace, clock, room, descriptors, server; engine, replication, blobs, cluster
	Level  Level  `json:"level"`
	About  string `json:"about,omitempty"` // a folder
	Detail string `json:"detail"`
	Do     string `json:"do,omitempty"` // what to do about it
}

// Options say where to look.
type Options struct {
	DataDir    string
	Workspaces []string // their folders, canonical
	// FreeFloor is the room that is to be left free: bytes, or room.Auto; 0: none.
	FreeFloor int64
	// MaxWatches is how many watches the settings allow; 0: as many as the system.
	MaxWatches int
	Now        func() time.Time // default: time.Now
	// More, if set, makes further checks.
	More func(context.Context) []Finding
}

// report gathers what is found.
type report struct{ list []Finding }

func (r *report) add(check string, level Level, about, do, format string, args ...any) {
	r.list = append(r.list, Finding{Check: check, Level: level, About: about, Detail: fmt.Sprintf(format, args...), Do: do})
}

func (r *report) ok(check, about, format string, args ...any) {
	r.add(check, OK, about, "", format, args...)
}

// Run makes all checks; a failed check is a finding too. It ends early
// with ctx.
func Run(ctx context.Context, o Options) []Finding {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &report{}
	r.git(ctx)
	r.data(ctx, o)
	r.room(o)
	for _, dir := range o.Workspaces {
		if ctx.Err() != nil {
			break
		}
		r.workspace(dir)
	}
	r.watches(ctx, o)
	r.descriptors(len(o.Workspaces))
	if o.More != nil && ctx.Err() == nil {
		r.list = append(r.list, o.More(ctx)...)
	}
	return r.list
}

// Hurt reports whether anything hurts.
func Hurt(list []Finding) bool {
	return slices.ContainsFunc(list, func(f Finding) bool { return f.Level == Hurts })
}
