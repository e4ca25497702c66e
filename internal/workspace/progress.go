package workspace

import (
	"context"
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
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/moves"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/wspath"
)

// The files beside the repository that tell how far the disk follows history.
const (
	checkpointFile = "checkpoint"
	progressFile   = "progress"
)

// checkpoint is what is known to be on stable storage: everything up to Seq is
// materialised and synced. Epoch names the boot and the mounts under which that
// was so; Clean that nothing was left over.
type checkpoint struct {
	Seq   uint64 `json:"seq"`
	Epoch string `json:"epoch"`
	Clean bool   `json:"clean"`
	Moves bool   `json:"moves,omitempty"` // since then, renames of directories are recorded (package moves)
}

// progress is the watermark of settled commits. Commits of different paths
// settle in any order; the watermark is the highest number up to which all are.
//
// The number is also written to a small file that is never synced: it survives
// a kill, which keeps the page cache, but no power cut. The checkpoint survives
// both.
type progress struct {
	files vfs.FS // the workspace's folder in the data directory
	epoch string

	mu      sync.Mutex
	settled uint64
	ahead   map[uint64]bool
	paths   map[wspath.Path]struct{} // materialised since the last checkpoint
	moved   chan struct{}            // closed and renewed when settled grows
	file    vfs.File

	ckmu sync.Mutex // one checkpoint at a time
	last checkpoint

	synced atomic.Uint64 // last.Seq, for who does not wait
	warned atomic.Bool   // of a file that cannot be opened for a sync

	renames atomic.Bool // records of package moves may exist that the checkpoint covers
}

// progressSize is the file's size: magic, epoch's hash, number, checksum.
const progressSize = 4 + 32 + 8 + 4

func openProgress(files vfs.FS, epoch string) (*progress, error) {
	f, err := files.OpenFile(progressFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	g := &progress{files: files, epoch: epoch, file: f, ahead: make(map[uint64]bool), paths: make(map[wspath.Path]struct{}), moved: make(chan struct{})}
	g.renames.Store(true)
	return g, nil
}

// read gives the number in the file, if it was written in this epoch.
func (g *progress) read() (uint64, bool) {
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
// looks at more than it has to.
func (g *progress) write() {
	var b [progressSize]byte
	copy(b[:], "UPRG")
	h := sha256.Sum256([]byte(g.epoch))
	copy(b[4:], h[:])
	binary.BigEndian.PutUint64(b[36:], g.settled)
	binary.BigEndian.PutUint32(b[44:], crc32.ChecksumIEEE(b[:44]))
	_, _ = g.file.WriteAt(b[:], 0)
}

// begin sets the watermark at a start.
func (g *progress) begin(seq uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled = seq
	g.write()
}

// dirty notes paths whose files and folders the next checkpoint has to sync.
// It is called before the commit that touched them is settled.
func (g *progress) dirty(paths []wspath.Path) {
	if len(paths) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range paths {
		g.paths[p] = struct{}{}
	}
}

// follow tells that a folder was renamed: what has to be synced in it is under
// the new name, or still under the old one where that is undone.
func (g *progress) follow(from, to wspath.Path) {
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

// settle tells that the disk agrees with commits, or that they are taken back
// by others of the list.
func (g *progress) settle(seqs ...uint64) {
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

// seq gives the watermark, and a channel that is closed when it grows.
func (g *progress) seq() (uint64, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.settled, g.moved
}

func readCheckpoint(files vfs.FS) (c checkpoint, found bool, err error) {
	data, err := vfs.ReadFile(files, checkpointFile)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, errs.Wrap(err, "")
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return checkpoint{}, false, nil // torn: as if there were none
	}
	return c, true, nil
}

// save writes a checkpoint durably.
func (g *progress) save(c checkpoint) error {
	data, err := json.Marshal(c)
	if err != nil {
		return errs.Wrap(err, "")
	}
	const temp = checkpointFile + ".new"
	f, err := g.files.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errs.Wrap(err, "")
	}
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		if err = g.files.Rename(temp, checkpointFile); err == nil {
			err = g.files.SyncDir(".")
		}
	}
	if err == nil {
		g.last = c
		g.synced.Store(c.Seq)
	}
	return errs.Wrap(err, "")
}

// checkpoint syncs what was materialised since the last one and records it.
func (w *Workspace) checkpoint(ctx context.Context, clean bool) error {
	g := w.progress
	g.ckmu.Lock()
	defer g.ckmu.Unlock()
	g.mu.Lock()
	c := checkpoint{Seq: g.settled, Epoch: g.epoch, Clean: clean, Moves: true}
	paths := g.paths
	g.paths = make(map[wspath.Path]struct{})
	g.mu.Unlock()
	if len(paths) == 0 && c == g.last {
		return nil
	}
	w.dropNow()
	held, err := w.syncPaths(ctx, paths)
	if err == nil && len(held) > 0 {
		// What could not be synced is not covered: the sequence number of before
		// stays, and these files are tried again with the next checkpoint.
		g.dirty(held)
		w.warnUnsynced(held)
		c.Seq, c.Clean = g.last.Seq, false
	}
	if err == nil && c != g.last {
		if err = g.save(c); err == nil && g.renames.Swap(false) {
			moves.Drop(w.disk.Files, c.Seq)
		}
	}
	if err != nil {
		g.mu.Lock()
		maps.Copy(g.paths, paths)
		g.mu.Unlock()
	}
	return err
}

// warnUnsynced warns of the first file that cannot be opened for a sync.
func (w *Workspace) warnUnsynced(held []wspath.Path) {
	if w.progress.warned.CompareAndSwap(false, true) {
		w.warn("%q cannot be opened by the server, so its bytes cannot be synced; until it can, a start after a power failure compares more files with history", held[0])
	}
}

// syncPaths makes files and the folders that name them durable. held are files
// that could not be opened, so that they are not.
func (w *Workspace) syncPaths(ctx context.Context, paths map[wspath.Path]struct{}) (held []wspath.Path, err error) {
	dirs := make(map[wspath.Path]struct{})
	for p := range paths {
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap(err, "")
		}
		dirs[p.Dir()] = struct{}{}
		s, err := w.disk.LstatDirect(p)
		switch {
		case err != nil:
			return nil, err
		case s.Kind == KindDir:
			dirs[p] = struct{}{}
			continue
		case s.Kind != KindFile:
			continue // gone, or behind a link that came in its way
		}
		switch err := w.syncFile(ctx, p); {
		case errors.Is(err, fs.ErrPermission):
			held = append(held, p)
		case err != nil:
			return nil, err
		}
	}
	for dir := range dirs {
		if err := w.disk.FS.SyncDir(string(dir)); err != nil && !disk.IsAbsent(err) && !errors.Is(err, syscall.ELOOP) && !errors.Is(err, vfs.ErrEscapes) {
			return nil, errs.Wrap(err, string(dir))
		}
	}
	return held, nil
}

// syncFile syncs one file. After a failed sync the kernel may have dropped the
// pages: the file is written anew from history, and that is synced. The error is
// fs.ErrPermission, unwrapped, if the file may not be opened.
func (w *Workspace) syncFile(ctx context.Context, p wspath.Path) error {
	f, err := w.disk.FS.Open(string(p))
	if disk.IsAbsent(err) || errors.Is(err, syscall.ELOOP) {
		return nil // the scan records what became of it
	}
	if errors.Is(err, fs.ErrPermission) {
		return fs.ErrPermission
	}
	if err != nil {
		return errs.Wrap(err, string(p))
	}
	err = f.Sync()
	f.Close()
	if err == nil {
		return nil
	}
	w.log.Warn("file not synced; it is written anew", "path", string(p), "error", err)
	return w.rewrite(ctx, p)
}

// rewrite puts the tip's bytes of a file in place of what cannot be synced.
func (w *Workspace) rewrite(ctx context.Context, p wspath.Path) error {
	return w.locked(ctx, []wspath.Path{p}, func(*pathLock) error {
		e, ok, err := w.store.Snapshot().Lookup(p)
		if err != nil || !ok {
			return err
		}
		return w.rewriteEntry(ctx, e)
	})
}
