package purge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"umbra/gitstore/journal"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/packset"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// purgePack is a pack being written in the journal folder.
type purgePack struct {
	name string // without suffix
	f    vfs.File
	w    *pack.Writer
	sum  [20]byte
}

func (x *purgePack) writer() *pack.Writer {
	if x == nil {
		return nil
	}
	return x.w
}

func (pr *Purger) createPurgePack() (*purgePack, error) {
	var rnd [8]byte
	rand.Read(rnd[:])
	x := &purgePack{name: path.Join(journal.Dir, "tmp-purge-"+hex.EncodeToString(rnd[:]))}
	f, err := pr.FS.OpenFile(x.name+".pack", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	x.f = f
	if x.w, err = pack.Create(f, pack.WriterOptions{Level: pack.Fast}); err != nil {
		pr.dropPurgePack(x)
		return nil, err
	}
	return x, nil
}

// dropPurgePack removes it from the journal folder; what was linked stays.
func (pr *Purger) dropPurgePack(x *purgePack) {
	if x == nil {
		return
	}
	x.f.Close()
	for _, suffix := range []string{".pack", storedir.Idx} {
		if err := storedir.Remove(pr.FS, x.name+suffix); err != nil {
			pr.Log.Warn("prepared pack left behind until the next start", "name", x.name, "error", err)
		}
	}
}

// finish makes the pack and its index whole and durable.
func (pr *Purger) finishPurgePack(x *purgePack) error {
	sum, entries, err := x.w.Finish()
	if err == nil {
		err = x.f.Sync()
	}
	if err != nil {
		return err
	}
	x.sum = sum
	return storedir.WriteFile(pr.FS, x.name+storedir.Idx, pack.EncodeIdx(entries, sum))
}

// keep copies what stays of those of our packs that hold something of what
// goes, as it is compressed there.
func (p *Purge) keep(ctx context.Context, which func(*packset.File) bool) error {
	packs := p.s.Packs.InUse()
	defer func() { packset.ReleaseAll(packs) }()
	slices.SortStableFunc(packs, func(a, b *packset.File) int { return int(a.Keep.Through) - int(b.Keep.Through) })
	for i, f := range packs {
		p.opt.Progress("rewriting packs", int64(i), int64(len(packs)))
		if p.from[f.Base] || !which(f) {
			continue
		}
		tainted, err := p.tainted(ctx, f.Pack)
		if err != nil {
			return err
		}
		if !tainted {
			continue
		}
		_, err = pack.Merge(ctx, p.kept.w, []*pack.Pack{f.Pack}, pack.MergeOptions{Keep: func(id object.ID) bool { return !p.Rewriter.Changed(id) && !p.fresh.w.Has(id) }})
		if err != nil {
			return fmt.Errorf("rewriting %s: %w", f.Base, err)
		}
		p.from[f.Base] = true
	}
	return nil
}

func (p *Purge) tainted(ctx context.Context, from *pack.Pack) (bool, error) {
	for e, err := range from.Entries() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || p.Rewriter.Changed(e.ID) {
			return err == nil, err
		}
	}
	return false, nil
}

// PackBytes gives the size of everything in objects/pack.
func (pr *Purger) PackBytes() (sum int64, err error) {
	names, err := pr.FS.ReadDir(storedir.Packs)
	for _, e := range names {
		info, err := pr.FS.Lstat(path.Join(storedir.Packs, e.Name))
		if err == nil {
			sum += info.Size
		} else if !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	return sum, err
}

// packs settles which packs come and which go. Nothing has its name yet.
func (p *Purge) packs(ctx context.Context, in *purgeIntent, h *finder, unreadable []string) error {
	s := p.s
	// What was kept before the newest commits were known must be none of what
	// they change: a tree that came back, a record that was superseded.
	late := false
	for id, now := range p.Rewriter.Trees {
		late = late || id != now && p.kept.w.Has(id)
	}
	for id := range p.Rewriter.Tags {
		late = late || p.kept.w.Has(id)
	}
	if late {
		s.dropPurgePack(p.kept)
		clear(p.from)
		var err error
		if p.kept, err = s.createPurgePack(); err != nil {
			return err
		}
	}
	if err := p.keep(ctx, func(*packset.File) bool { return true }); err != nil {
		return err
	}
	for base := range p.from {
		in.Drop = append(in.Drop, base)
	}
	for _, f := range s.Packs.Superseded() {
		tainted, err := p.tainted(ctx, f.Pack)
		if tainted {
			in.Drop = append(in.Drop, f.Base)
		}
		f.Release()
		if err != nil {
			return err
		}
	}
	in.Drop = append(in.Drop, unreadable...)
	if err := p.foreignPacks(ctx, in, h); err != nil {
		return err
	}
	slices.Sort(in.Drop)
	return nil
}

// foreignPacks keeps the objects of users' packs that are not purged. They are
// moved into a pack of the server: the users did not ask for another one.
func (p *Purge) foreignPacks(ctx context.Context, in *purgeIntent, h *finder) error {
	for _, f := range h.packs {
		gone := false
		for e, err := range f.p.Entries() {
			if err != nil {
				return err
			}
			bad, err := h.from(ctx, e.ID)
			if err != nil {
				return err
			}
			if gone = bad; gone {
				break
			}
		}
		if !gone {
			continue
		}
		in.Drop = append(in.Drop, f.base)
		_, err := pack.Merge(ctx, p.kept.w, []*pack.Pack{f.p}, pack.MergeOptions{Keep: func(id object.ID) bool {
			if h.memo[id] || p.fresh.w.Has(id) {
				return false
			}
			bad, err := h.from(ctx, id)
			if err != nil || bad {
				return false
			}
			held, err := p.s.Packs.Holding(id)
			if held != nil {
				held.Release()
			}
			return err == nil && held == nil
		}})
		if err != nil {
			return fmt.Errorf("rewriting %s: %w", f.base, err)
		}
	}
	return nil
}
