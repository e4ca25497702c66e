package progress

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"sync"
	"sync/atomic"

	"umbra/internal/errs"
	"umbra/internal/moves"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// The files next to the repository that record how far the disk follows history.
const (
	CheckpointFile = "checkpoint"
	progressFile   = "progress"
)

// Checkpoint is what is known to be on stable storage: everything up to Seq is
// materialised and synced. Epoch names the boot and the mounts under which that
// was so; Clean that nothing was left over.
type Checkpoint struct {
	Seq   uint64 `json:"seq"`
	Epoch string `json:"epoch"`
	Clean bool   `json:"clean"`
	Moves bool   `json:"moves,omitempty"` // since then, renames of directories are recorded (package moves)
}

// Progress is the watermark of settled commits. Commits of different paths
// settle in any order; the watermark is the highest number up to which all are.
//
// The number is also written to a small file that is never synced: it survives
// a kill, which keeps the page cache, but no power cut. The checkpoint survives
// both.
type Progress struct {
	files vfs.FS // the workspace's folder in the data directory
	epoch string

	mu      sync.Mutex
	settled uint64
	ahead   map[uint64]bool
	paths   map[wspath.Path]struct{} // materialised or recorded since the last Checkpoint
	syncing map[wspath.Path]struct{} // those that a Checkpoint syncs
	first   bool                     // no Checkpoint of this run has synced anything yet
	moved   chan struct{}            // closed and renewed when settled grows
	file    vfs.File

	ckmu sync.Mutex // one checkpoint at a time
	last Checkpoint

	synced atomic.Uint64 // last.Seq, for who does not wait

	renames atomic.Bool // records of package moves may exist that the checkpoint covers
}

// progressSize is the file's size: magic, epoch's hash, number, checksum.
const progressSize = 4 + 32 + 8 + 4

func Open(files vfs.FS, epoch string) (*Progress, error) {
	f, err := files.OpenFile(progressFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	g := &Progress{files: files, epoch: epoch, file: f, ahead: make(map[uint64]bool), paths: make(map[wspath.Path]struct{}), moved: make(chan struct{})}
	g.renames.Store(true)
	return g, nil
}

// Read gives the number in the file, if it was written in this epoch.
func (g *Progress) Read() (uint64, bool) {
	var b [progressSize]byte
	if n, _ := g.file.ReadAt(b[:], 0); n < len(b) {
		return 0, false
	}
	h := sha256.Sum256([]byte(g.epoch))
	if string(b[:4]) != "UPRG" || [32]byte(b[4:36]) != h || crc32.ChecksumIEEE(b[:44]) != binary.BigEndian.Uint32(b[44:]) {
		return 0, false
	}
	return binary.BigEndian.Uint64(b[36:]), true
}

// write notes the number; mu is held. An error does not matter: a start then
// checks more than it has to.
func (g *Progress) write() {
	var b [progressSize]byte
	copy(b[:], "UPRG")
	h := sha256.Sum256([]byte(g.epoch))
	copy(b[4:], h[:])
	binary.BigEndian.PutUint64(b[36:], g.settled)
	binary.BigEndian.PutUint32(b[44:], crc32.ChecksumIEEE(b[:44]))
	_, _ = g.file.WriteAt(b[:], 0)
}

// Begin sets the watermark at a start.
func (g *Progress) Begin(seq uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled, g.first = seq, true
	g.write()
}

// Dirty notes paths whose files and folders the next checkpoint has to sync.
// It is called before the commit that touched them is settled.
func (g *Progress) Dirty(paths []wspath.Path) {
	if len(paths) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range paths {
		g.paths[p] = struct{}{}
	}
}

// Follow records that a directory was renamed: what has to be synced in it is under
// the new name, or still under the old one where that is undone.
func (g *Progress) Follow(from, to wspath.Path) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var moved []wspath.Path
	for p := range g.paths {
		if rel, ok := p.Rel(from); ok {
			moved = append(moved, to.Join(string(rel)))
		}
	}
	for _, p := range moved {
		g.paths[p] = struct{}{}
	}
}

// Unsynced reports whether what a user left at a path may not be on stable storage: no
// Checkpoint has synced it since it was recorded. What the first commit holds, or a server
// before this one recorded, is with the first Checkpoint that syncs anything: ext4 and xfs
// write the names of files in the order in which they were made. No clock decides: the
// system's can be set at any time.
func (g *Progress) Unsynced(p wspath.Path) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, dirty := g.paths[p]
	_, syncing := g.syncing[p]
	return dirty || syncing || g.first
}

// Settle records that the disk agrees with commits, or that they are taken back
// by others of the list.
func (g *Progress) Settle(seqs ...uint64) {
	if len(seqs) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range seqs {
		if s > g.settled {
			g.ahead[s] = true
		}
	}
	before := g.settled
	for g.ahead[g.settled+1] {
		g.settled++
		delete(g.ahead, g.settled)
	}
	if g.settled == before {
		return
	}
	g.write()
	close(g.moved)
	g.moved = make(chan struct{})
}

// Seq gives the watermark, and a channel that is closed when it grows.
func (g *Progress) Seq() (uint64, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.settled, g.moved
}

func ReadCheckpoint(files vfs.FS) (c Checkpoint, found bool, err error) {
	data, err := vfs.ReadFile(files, CheckpointFile)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, errs.Wrap(err, "")
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return Checkpoint{}, false, nil // torn: as if there were none
	}
	return c, true, nil
}

// save writes a checkpoint durably.
func (g *Progress) save(c Checkpoint) error {
	data, err := json.Marshal(c)
	if err != nil {
		return errs.Wrap(err, "")
	}
	const temp = CheckpointFile + ".new"
	f, err := g.files.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errs.Wrap(err, "")
	}
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		if err = g.files.Rename(temp, CheckpointFile); err == nil {
			err = g.files.SyncDir(".")
		}
	}
	if err == nil {
		g.last = c
		g.synced.Store(c.Seq)
	}
	return errs.Wrap(err, "")
}

// Checkpoint calls sync with what was materialized since the last Checkpoint, and
// writes one that covers it. What sync returns as held could not be synced: then
// the sequence number of before stays, and these files are tried again with the
// next checkpoint.
func (g *Progress) Checkpoint(clean bool, sync func(paths map[wspath.Path]struct{}) (held []wspath.Path, err error)) error {
	g.ckmu.Lock()
	defer g.ckmu.Unlock()
	g.mu.Lock()
	c := Checkpoint{Seq: g.settled, Epoch: g.epoch, Clean: clean, Moves: true}
	paths := g.paths
	g.paths, g.syncing = make(map[wspath.Path]struct{}), paths
	g.mu.Unlock()
	if len(paths) == 0 && c == g.last {
		return nil
	}
	held, err := sync(paths)
	if err == nil && len(held) > 0 {
		g.Dirty(held)
		c.Seq, c.Clean = g.last.Seq, false
	}
	if err == nil && c != g.last {
		if err = g.save(c); err == nil && g.renames.Swap(false) {
			moves.Drop(g.files, c.Seq)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.syncing = nil
	if err != nil {
		maps.Copy(g.paths, paths)
	} else if len(paths) > 0 {
		g.first = false
	}
	return err
}

// Resume sets the watermark at a start, after the checkpoint that was found.
func (g *Progress) Resume(seq uint64, last Checkpoint) {
	g.Begin(seq)
	g.last = last
	g.synced.Store(last.Seq)
}

// Through is the sequence number of the last Checkpoint.
func (g *Progress) Through() uint64 {
	g.ckmu.Lock()
	defer g.ckmu.Unlock()
	return g.last.Seq
}

// Renaming notes that directories are being renamed, of which package moves has
// records until a checkpoint covers them.
func (g *Progress) Renaming() { g.renames.Store(true) }

// Close closes the file.
func (g *Progress) Close() error { return g.file.Close() }

// SyncedTo is through for who does not wait for a checkpoint that is being made.
func (g *Progress) SyncedTo() uint64 { return g.synced.Load() }
