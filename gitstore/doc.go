// Package gitstore is the commit engine: one bare git repository a workspace,
// written without git, readable by every git.
//
// A Store owns one workspace directory of the data directory:
//
//	repo.git/   the bare repository that people and CI read (contract: git.md)
//	journal/    packs being written: the write-ahead log
//	refs        the note: our refs as we last set them
//	records     a cache: one fixed-size record a commit, by sequence number
//
// # The commit pipeline
//
// Callers prepare blobs (hash, compress) in their own goroutines and hand a
// Draft to Commit. One committer a store takes everything that queued while the
// last group was being made durable. For each draft in order it rewrites the
// trees on the written paths, makes the commit, and appends objects to the
// group's buffer; a draft that fails leaves the group. The buffer goes to the
// open journal with one write and one fdatasync; then the tip moves and the
// members are answered.
//
// A journal is a git pack whose count and trailer are not there yet. Publish
// closes it: count and trailer, an index next to it, both hard-linked into
// objects/pack under a .keep, then the refs by git's lock protocol (tasks'
// first), then the note, and only then the journal's own name goes.
//
// # Invariants
//
//   - What Commit and PutTask answered survives a power cut.
//   - Every object that our refs reach is in a journal or in one of our packs with
//     a .keep, never loose. Objects that users put into the
//     repository are never relied upon.
//   - A pack of the store is closed under reachability together with older ones: so
//     an object found in one needs no further look at what it refers to.
//   - A file whose write or sync failed is never written or synced again.
//   - Nothing on the write path checks packs, or costs more with more commits.
//
// # Its packages
//
// This one has what changes a store: commits, publication, and when upkeep runs.
// Package repo has one workspace's history as it is, on disk and in memory, and
// everything that reads it; collect, purge, verify and repair do the upkeep, on what
// a small interface lends them; journal, pack, packset, refs, records and object are the
// files, each alone; sink and remote are the seam to a service that holds the history.
// docs/ARCHITECTURE.md, Layers, lists them all, and internal/archtest/layers.txt says
// which may import which.
package gitstore
