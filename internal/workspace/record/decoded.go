package record

import (
	"context"
	"sync"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace/op"
)

// keptDecoded is how long the entries of a large commit stay after they were
// last asked for.
const keptDecoded = 10 * time.Second

// decoded holds the entries of the last large commit that was asked for, for a
// short time: who pages through them would have them made out of the trees again
// for each page.
type decoded struct {
	mu       sync.Mutex
	commit   object.ID
	rewrites uint64
	entries  []op.ChangeEntry // nil: none
	expiry   *time.Timer
}

// EntriesAt gives the changelog entries of a commit. The list is shared: it must
// not be changed.
func (r *Recorder) EntriesAt(ctx context.Context, commit object.ID) ([]op.ChangeEntry, error) {
	rewrites := r.Disk.Store.Rewrites()
	if entries := r.decoded.get(commit, rewrites); entries != nil {
		return entries, nil
	}
	c, err := r.Disk.Store.ReadCommit(ctx, commit)
	if err != nil {
		return nil, err
	}
	entries, err := r.EntriesOf(ctx, c)
	if err == nil && len(entries) > message.MaxListed {
		r.decoded.put(commit, rewrites, entries)
	}
	return entries, err
}

func (d *decoded) get(commit object.ID, rewrites uint64) []op.ChangeEntry {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.entries == nil || d.commit != commit || d.rewrites != rewrites {
		return nil
	}
	d.expiry.Reset(keptDecoded)
	return d.entries
}

func (d *decoded) put(commit object.ID, rewrites uint64, entries []op.ChangeEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.commit, d.rewrites, d.entries = commit, rewrites, entries
	if d.expiry == nil {
		d.expiry = time.AfterFunc(keptDecoded, d.drop)
	} else {
		d.expiry.Reset(keptDecoded)
	}
}

// Drop gives the memory back.
func (d *decoded) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = nil
	if d.expiry != nil {
		d.expiry.Stop()
	}
}
