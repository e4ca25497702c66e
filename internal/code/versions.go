package code

import (
	"context"
	"strings"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
)

// Version is one commit through us that changed a program's bytes.
type Version struct {
	Version int
	Commit  object.ID
	Blob    object.ID
	Size    int64
	When    time.Time
	// Author and Description are the save's metadata, empty where it had none.
	Author, Description string

	seq uint64
}

// versions numbers the saves of each program. It is read from history once and
// then follows it; nothing of it is kept on disk.
type versions struct {
	mu        sync.Mutex
	workspace string // whose history it is
	seq       uint64 // read up to here
	byID      map[string][]Version
}

// history is what versions knew at one time.
type history struct{ v *versions }

// of brings the numbers up to what is durable in a workspace.
func (v *versions) of(ctx context.Context, w *workspace.Workspace) (history, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.workspace != w.ID() {
		v.workspace, v.seq, v.byID = w.ID(), 0, map[string][]Version{}
	}
	tip := w.Store().Tip().Seq
	if v.seq >= tip {
		return history{v}, nil
	}
	err := w.Store().Records(ctx, v.seq+1, tip, func(r gitstore.Record) error {
		if err := v.add(ctx, w, r); err != nil {
			return err
		}
		v.seq = r.Seq
		return nil
	})
	return history{v}, err
}

// add takes one commit in. An external change is not a version.
func (v *versions) add(ctx context.Context, w *workspace.Workspace, r gitstore.Record) error {
	switch r.Source {
	case message.External, message.Baseline, message.Rollback:
		return nil
	}
	c, err := w.Store().ReadCommit(ctx, r.Commit)
	if err != nil {
		return err
	}
	entries, err := w.EntriesOf(ctx, c)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Path
		if e.NewPath != "" {
			name = e.NewPath
		}
		id, ok := strings.CutSuffix(name, extension)
		if !ok || !wellFormed(id) || e.After.IsZero() || e.After == e.Before && e.NewPath == "" {
			continue
		}
		size, err := w.Store().BlobSize(ctx, e.After)
		if err != nil {
			return err
		}
		list := v.byID[id]
		v.byID[id] = append(list, Version{Version: len(list) + 1, Commit: c.ID, Blob: e.After, Size: size, When: c.When,
			Author: c.Message.Author, Description: c.Message.Description, seq: r.Seq})
	}
	return nil
}

// list gives a program's versions, oldest first.
func (h history) list(id string) []Version {
	h.v.mu.Lock()
	defer h.v.mu.Unlock()
	list := h.v.byID[id]
	return list[:len(list):len(list)]
}

// at gives the number that a program has after a save, and the commit if that
// save changed it.
func (h history) at(id string, res *workspace.Result) (int, object.ID) {
	list := h.list(id)
	if !res.Commit.IsZero() {
		for i := len(list) - 1; i >= 0; i-- {
			if list[i].seq == res.Seq {
				return list[i].Version, res.Commit
			}
		}
	}
	return len(list), object.Zero
}
