package gitstore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"

	"umbra/gitstore/journal"
	"umbra/gitstore/pack"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// writePack makes `name`+".blob" and its index, both durable with their names.
func (ps *packSet) writePack(name string, fill func(*pack.Writer) (ID, error)) (ID, [20]byte, error) {
	p, err := ps.beginPack(name)
	if err != nil {
		return ID{}, [20]byte{}, err
	}
	defer p.f.Close()
	id, err := fill(p.w)
	if err != nil {
		return ID{}, [20]byte{}, err
	}
	sum, err := p.finish()
	return id, sum, err
}

// newPackName returns a path without suffix for a pack to be written.
func newPackName() string {
	var rnd [8]byte
	rand.Read(rnd[:])
	return path.Join(journal.Dir, "large-"+hex.EncodeToString(rnd[:]))
}

// newPack is a pack being written in journal/.
type newPack struct {
	ps   *packSet
	name string // without suffix
	f    vfs.File
	w    *pack.Writer
}

func (ps *packSet) beginPack(name string) (*newPack, error) {
	f, err := ps.fs.OpenFile(name+storedir.Prepared, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	w, err := pack.Create(f, pack.WriterOptions{Level: pack.Fast})
	if err != nil {
		f.Close()
		return nil, err
	}
	return &newPack{ps, name, f, w}, nil
}

// finish makes the pack and its index durable with their names. The file is the
// caller's to close.
func (p *newPack) finish() (sum [20]byte, err error) {
	sum, entries, err := p.w.Finish()
	if err != nil {
		return sum, err
	}
	if err := p.f.Sync(); err != nil {
		return sum, err
	}
	if err := storedir.WriteFile(p.ps.fs, p.name+storedir.Idx, pack.EncodeIdx(entries, sum)); err != nil {
		return sum, err
	}
	return sum, p.ps.fs.SyncDir(journal.Dir)
}

// removePrepared removes a pack in journal/ with its index; a failure is logged.
func (ps *packSet) removePrepared(name string) {
	for _, suffix := range []string{storedir.Prepared, storedir.Idx} {
		if err := ps.fs.Remove(name + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			ps.log.Warn("prepared pack left behind until the next start", "name", name, "error", err)
		}
	}
}
