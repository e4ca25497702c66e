package packset

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"umbra/gitstore/pack"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// A multi-pack-index is a user's: git-multi-pack-index(1), and with it `git
// maintenance` and `git repack --write-midx`, make one over all packs, ours
// too. One that names a pack that is gone makes every fsck fail until it is
// made again, so it goes before the pack does; git does without one.

const (
	MultiIndex  = storedir.Packs + "/multi-pack-index"
	MultiLayers = storedir.Packs + "/multi-pack-index.d" // of an incremental one
	MultiChain  = MultiLayers + "/multi-pack-index-chain"
)

// DropMultiIndex removes the multi-pack-index if it names a pack for which
// gone holds; base is "pack-<40 hex digits>".
func (ps *Set) DropMultiIndex(gone func(base string) bool) error {
	found, err := ps.namesPack(MultiIndex, gone)
	if err == nil && found {
		err = storedir.Remove(ps.FS, MultiIndex)
	}
	if err != nil {
		return err
	}
	layers, err := ps.FS.ReadDir(MultiLayers)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range layers {
		if err != nil {
			return err
		}
		if !strings.HasSuffix(e.Name, ".midx") {
			continue
		}
		if found, err = ps.namesPack(path.Join(MultiLayers, e.Name), gone); err == nil && found {
			return storedir.Remove(ps.FS, MultiChain) // without it the layers are nothing
		}
	}
	return err
}

// CheckMultiIndex checks a multi-pack-index that was not there at the last
// look: one that another process began before packs were removed and finished after
// names what is gone. Maintenance alone calls it.
func (ps *Set) CheckMultiIndex() error {
	var now [2]vfs.Info
	for i, name := range []string{MultiIndex, MultiChain} {
		info, err := ps.FS.Lstat(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		info.CtimeNs, info.Nlink = 0, 0
		now[i] = info
	}
	if now == ps.multiSeen {
		return nil
	}
	names, err := ps.FS.ReadDir(storedir.Packs)
	if err != nil {
		return err
	}
	there := make(map[string]bool)
	for _, e := range names {
		if base, ok := strings.CutSuffix(e.Name, storedir.Idx); ok {
			there[base] = true
		}
	}
	if err := ps.DropMultiIndex(func(base string) bool { return !there[base] }); err != nil {
		return err
	}
	ps.multiSeen = now
	return nil
}

// namesPack reports whether an index names such a pack.
func (ps *Set) namesPack(name string, is func(base string) bool) (bool, error) {
	data, err := vfs.ReadFile(ps.FS, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return pack.MultiIndexNames(data, is), nil
}
