package packset

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"

	"umbra/gitstore/journal"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// Write makes `name`+".blob" and its index, both durable with their names.
func (ps *Set) Write(name string, fill func(*pack.Writer) (object.ID, error)) (object.ID, [20]byte, error) {
	p, err := ps.Begin(name)
	if err != nil {
		return object.ID{}, [20]byte{}, err
	}
	defer p.File.Close()
	id, err := fill(p.Pack)
	if err != nil {
		return object.ID{}, [20]byte{}, err
	}
	sum, err := p.Finish()
	return id, sum, err
}

// NewName returns a path without suffix for a pack to be written.
func NewName() string {
	var rnd [8]byte
	rand.Read(rnd[:])
	return path.Join(journal.Dir, "large-"+hex.EncodeToString(rnd[:]))
}

// Writer is a pack being written in journal/.
type Writer struct {
	ps   *Set
	Name string // without suffix
	File vfs.File
	Pack *pack.Writer
}

// Begin starts a pack under a name of NewName.
func (ps *Set) Begin(name string) (*Writer, error) {
	f, err := ps.FS.OpenFile(name+storedir.Prepared, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	w, err := pack.Create(f, pack.WriterOptions{Level: pack.Fast})
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Writer{ps, name, f, w}, nil
}

// Finish makes the pack and its index durable with their names. The file is the
// caller's to close.
func (p *Writer) Finish() (sum [20]byte, err error) {
	sum, entries, err := p.Pack.Finish()
	if err != nil {
		return sum, err
	}
	if err := p.File.Sync(); err != nil {
		return sum, err
	}
	if err := storedir.WriteFile(p.ps.FS, p.Name+storedir.Idx, pack.EncodeIdx(entries, sum)); err != nil {
		return sum, err
	}
	return sum, p.ps.FS.SyncDir(journal.Dir)
}

// RemovePrepared removes a pack in journal/ with its index; a failure is logged.
func (ps *Set) RemovePrepared(name string) {
	for _, suffix := range []string{storedir.Prepared, storedir.Idx} {
		if err := ps.FS.Remove(name + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			ps.Log.Warn("prepared pack left behind until the next start", "name", name, "error", err)
		}
	}
}
