// Package lender opens the packs of another repository, to copy objects from.
package lender

import (
	"errors"
	"strings"

	"umbra/gitstore/cache"
	"umbra/gitstore/pack"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// Lender gives objects of another repository's packs: those of the project that
// a workspace's folder is a checkout of. They are copied, never referred to.
// Loose objects and alternates are ignored.
type Lender struct {
	Packs []*pack.Pack
	fs    vfs.FS
}

// Limits of what is borrowed from: beyond them files are read from the folder.
const (
	maxPacks  = 256     // that are held open
	MaxCount  = 8 << 20 // objects of one pack; its layout takes 40 bytes for each
	cached    = 48 << 20
	maxObject = 4 << 20 // the largest object that is borrowed, in bytes
)

// Open opens the packs of a repository's "objects" folder; one that cannot be read
// is passed over. It owns f.
func Open(f vfs.FS) (*Lender, error) {
	l := &Lender{fs: f}
	names, err := f.ReadDir("pack")
	if err != nil {
		return nil, errors.Join(errs.Wrap(err, ""), f.Close())
	}
	bases := cache.NewBudget(cached)
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name, ".idx")
		if !ok || len(l.Packs) == maxPacks {
			continue
		}
		p, err := pack.Open(f, "pack/"+base+".pack", "pack/"+e.Name, pack.Options{MaxObject: maxObject, Cache: bases})
		if err == nil {
			l.Packs = append(l.Packs, p)
		}
	}
	return l, nil
}

// Close closes the packs.
func (l *Lender) Close() error {
	var all error
	for _, p := range l.Packs {
		all = errors.Join(all, p.Close())
	}
	return errors.Join(all, l.fs.Close())
}
