// Package refs reads and moves the refs of one bare repository by git's own
// protocol (gitrepository-layout(5), git-pack-refs(1)), so that a person may
// run any git command there at the same time, and keeps the note of what the
// server last set.
//
// Invariants:
//
//   - A ref changes only under its lock, the file <ref>.lock made so that it
//     must not exist, after its value was read again under that lock: loose
//     first, then packed-refs.
//   - A value is on disk before it gets its name, and Update returns once the
//     names are on disk too. A crash leaves each ref old or new.
//   - A read that fails is an error. It never falls back on an older value.
//   - What another process set where one of our refs belongs is kept under
//     refs/foreign/ before ours is put back.
//
// Our lock is a hard link to one file, <repo>/umbra/lock, for as long as
// the repository lives: making the link is atomic and fails if the name is
// taken, and after a crash the inode distinguishes ours from a user's. One process
// owns a repository's folder, so one of our locks that this Store does not hold
// is a dead one.
package refs

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// The server's own refs.
const (
	HEAD          = "HEAD"
	ShadowRef     = "refs/heads/shadow" // the history, a real ref
	HeadRef       = "refs/umbra/head"   // symbolic to ShadowRef
	TasksPrefix   = "refs/umbra/tasks/" // <task>/{base,head,info}
	ForeignPrefix = "refs/foreign/"     // <n>: what others set in place of our refs
	// Boundary is a name of the ref log that is not a ref: the commit at which
	// history begins.
	Boundary = "refs/umbra/boundary"
)

const (
	packedName = "packed-refs"
	ownDir     = "umbra" // the marker and temporary files, in the repository
	markerName = ownDir + "/lock"
	tempPrefix = "tmp-"
)

// Options configure a Store.
type Options struct {
	FS   vfs.FS // the workspace's folder
	Repo string // the bare repository in it, "repo.git"
	// HasObject reports whether an object can be read. A foreign value that
	// cannot be is reported and not kept, or fsck would object for ever. Nil
	// means that all can.
	HasObject func(object.ID) bool
	// Peel gives what a tag object points at in the end; ok is false for any
	// other object. A ref whose object it has an error for is not packed.
	// Nil makes Pack refuse.
	Peel func(object.ID) (peeled object.ID, ok bool, err error)
	// HeldOpen reports which of these files a process has open. Nil looks into
	// /proc, where there is one.
	HeldOpen func(ctx context.Context, files []FileID) (map[FileID]bool, error)
	// Now is the clock that ages of locks are taken by. Nil is time.Now.
	Now func() time.Time
}

// FileID is a file's identity on this machine.
type FileID struct{ Dev, Ino uint64 }

// Store is the refs of one repository. Its methods may be called concurrently:
// those that change refs run one after the other.
type Store struct {
	fs   vfs.FS
	repo string
	opt  Options

	mu     sync.Mutex // serializes all that changes refs
	temps  uint64     // number of the last temporary file
	marker FileID
	// settled are the folders whose names, and entries as of the last Update,
	// are known to be on disk. What a killed process did is not.
	settled map[string]bool
	// packedPending is set while packed-refs may not be on disk as it reads.
	packedPending bool

	cache packedCache
}

// Open gives the refs of a repository that Init made. It makes the lock marker
// if it is not there, and removes what a killed process left in its own
// folder; locks are left to ClearStale.
func Open(opt Options) (*Store, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.HeldOpen == nil {
		opt.HeldOpen = heldOpen
	}
	s := &Store{fs: opt.FS, repo: opt.Repo, opt: opt, settled: make(map[string]bool), packedPending: true}
	if err := s.clearTemps(); err != nil {
		return nil, err
	}
	if err := s.ensureMarker(); err != nil {
		return nil, err
	}
	return s, s.fs.SyncDir(s.path(ownDir))
}

// path gives the name in s.fs of a file of the repository.
func (s *Store) path(name string) string { return s.repo + "/" + name }

func (s *Store) clearTemps() error {
	entries, err := s.fs.ReadDir(s.path(ownDir))
	if notExist(err) {
		return mkdirDurable(s.fs, s.path(ownDir))
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name, tempPrefix) {
			if err := s.fs.Remove(s.path(ownDir + "/" + e.Name)); err != nil && !notExist(err) {
				return err
			}
		}
	}
	return nil
}

func (s *Store) tempName() string {
	s.temps++
	return s.path(ownDir + "/" + tempPrefix + strconv.FormatUint(s.temps, 10))
}
