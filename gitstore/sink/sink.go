// Package sink is the seam between a store and a service that holds its history:
// the log of one workspace, its manifest, and the objects that the manifest names.
//
// A store that has a Sink answers a commit when the sink says that its group is
// durable, and its directory is a cache. Without one the directory is the history,
// as ever. internal/cluster implements Sink over PostgreSQL and an object store;
// gitstore/sink/sinktest has one in memory, and the tests that every Sink must pass.
//
// Words: a group is what one Append makes durable; its position is its number in
// the workspace's log, from 1 without gaps. The manifest is the workspace up to the
// position Manifest.Base; the tail is the groups after it. A seal is a Swap to a
// manifest with a higher Base. An owner is who may append, under an epoch that the
// Sink knows and the store does not.
package sink

import (
	"context"
	"io"
)

// Sink is the log of one workspace in the hands of one owner: made after a claim,
// for one epoch and one store, and of no use once a method returned ErrFenced. The
// store never closes it; its maker releases the claim after Store.Close.
//
// Append, Put, Swap and Fetch may run at the same time. A store runs one Append at
// a time and one Swap at a time, and calls Tail once, before all others.
type Sink interface {
	// Tail returns the manifest and the groups after it, as of the claim: all that
	// was ever acknowledged under any epoch is in it, replicated. It is called by
	// gitstore.Open. Errors fail the Open.
	Tail(ctx context.Context) (*Tail, error)

	// Append makes a group durable at g.Pos, and its records in the same
	// transaction: both or none. Positions of a store ascend by one from
	// Tail.Next; a position whose Append was refused is used again, for another
	// group. The committer calls it, while every writer of the workspace waits:
	// it has no context and must return in bounded time (cluster.wait). g and what
	// it refers to are the callee's to read until Append returns, not longer.
	//
	//   - nil: durable as far as this service promises anything. The members are
	//     answered.
	//   - ErrRefused: the group is not in the log and never will be. The members
	//     get the *errs.Error in its chain (Unavailable, BlobsUnavailable), the
	//     store stays open, and the next group has the same position.
	//   - ErrStale and ErrRefused: g names a pack that was put too long ago to be
	//     safe from the sweeper. The store puts its packs again and appends once
	//     more.
	//   - ErrFenced: another owner has the workspace, or the owner's life is over.
	//     Without ErrRefused the group may be in the log: members get
	//     outcome_unknown, with it owner_moving. The store stops (below).
	//   - any other error, ErrUnknown among them: the group may be in the log, now
	//     or later. Members get outcome_unknown, and the store takes no more
	//     writes; it still answers reads of what was acknowledged until it is
	//     closed. A store that is opened again learns the outcome by its claim.
	//
	// A callee must not return ErrRefused unless no resend, retry or delayed packet
	// of its own can put the group into the log any more.
	Append(g *Group) error

	// Put stores an object and returns a name for it that was never used before;
	// it can be read from then on by Fetch. r is read from any place, more than
	// once where the callee retries, and not after Put has returned. An object that
	// no group and no manifest names within a day is removed by the sweeper: a
	// store calls Put, then names it by Append or Swap. After an error the object
	// may exist, under an unknown name. Errors are BlobsUnavailable,
	// ErrFenced, or that of ctx; after ErrFenced the store stops.
	Put(ctx context.Context, r io.ReaderAt, size int64) (name string, err error)

	// Swap replaces the manifest by s.Manifest, removes the groups up to its Base
	// from the log, and hands the objects in s.Drop to the sweeper, in one
	// transaction. Manifest.Version is one more than that of the manifest it
	// replaces. Swap is idempotent: where the log's manifest has that version
	// already, it is this one (only this store swaps), and the result is nil.
	//
	//   - nil: done.
	//   - ErrRefused: not done, and it never will be; the store goes on, and swaps
	//     later, possibly something else.
	//   - ErrStale and ErrRefused: as with Append.
	//   - ErrFenced: the store stops.
	//   - any other error: it may have been done. The store calls Swap with the same
	//     Switch again until the outcome is known, and no other before.
	Swap(ctx context.Context, s *Switch) error

	// Fetch reads n bytes of an object from off; n < 0: to its end. The reader
	// fails with io.ErrUnexpectedEOF where fewer bytes came than the object, or n,
	// has. ErrMissing (which is a BlobsUnavailable too): there is no such object;
	// the store was perhaps deposed and does not know it yet. Errors else:
	// BlobsUnavailable, or that of ctx. None of them stops the store: the read
	// that needed the bytes fails.
	Fetch(ctx context.Context, name string, off, n int64) (io.ReadCloser, error)
}

// Tail is what a claim found.
type Tail struct {
	// Manifest is nil for a workspace that never had one: all groups from 1 on are
	// in Groups. The callee's from then on.
	Manifest *Manifest
	// Groups are those after Manifest.Base, by position and without gaps. A row of
	// a claim is a group without Data.
	Groups []Group
}

// Next returns the position of the next group.
func (t *Tail) Next() uint64 {
	if n := len(t.Groups); n > 0 {
		return t.Groups[n-1].Pos + 1
	}
	if t.Manifest != nil {
		return t.Manifest.Base + 1
	}
	return 1
}

// Switch is one change of the manifest.
type Switch struct {
	Manifest *Manifest
	// Drop are the objects that Manifest does not name, but the one before it or a
	// group up to its Base.
	Drop []string
	// Purge says that what is dropped holds bytes that must not exist any more: the
	// sweeper removes it as soon as no reader can be at it, not after the usual
	// grace.
	Purge bool
	// Last says that the claim is about to be released, and the store calls Swap no more:
	// it may be made by the release then. Where that fails the log has all of it.
	Last bool
}

// Record is a row next to the log that exists exactly if its group does: an answer
// kept for an idempotency key, a task's entry in the index. Stores pass records on
// and know nothing of their content.
type Record struct {
	Bucket string
	Key    []byte
	Value  []byte // nil: the row is removed
}
