package refs

import (
	"context"
	"slices"
	"strings"
)

// delete removes refs: all their locks are taken, then packed-refs is written
// once without them, then the loose files go, so that no older value shows in
// between.
func (b *batch) delete(ctx context.Context, updates []Update) {
	unlocks := make(map[string]func() error)
	defer func() {
		for name, unlock := range unlocks {
			b.fail(name, unlock())
		}
		// Only now: a folder with a lock in it does not go.
		for i := range updates {
			b.removeEmpty(updates[i].Name)
		}
	}()
	one := func(u *Update) error {
		// No folder is made only to find that there is nothing to delete.
		if r, err := b.s.read(u.Name); err == nil && u.reached(r) {
			b.reached(u.Name)
			return nil
		}
		unlock, err := b.lockRef(ctx, u.Name)
		if err != nil {
			return err
		}
		unlocks[u.Name] = unlock
		cur, err := b.s.read(u.Name)
		if err == nil && !u.ours(cur) {
			err = b.keep(ctx, cur)
		}
		return err
	}
	var names []string
	for i := range updates {
		name := updates[i].Name
		if b.failed[name] == nil {
			b.fail(name, one(&updates[i]))
		}
		if b.failed[name] == nil && unlocks[name] != nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	err := b.remove(ctx, names)
	for _, name := range names {
		b.fail(name, err)
	}
}

// remove takes refs out of packed-refs and removes their files. Their locks
// are held.
func (b *batch) remove(ctx context.Context, names []string) error {
	gone := make(map[string]bool, len(names))
	for _, n := range names {
		gone[n] = true
	}
	err := b.s.rewritePacked(ctx, func(p *packedRefs) (*packedRefs, error) {
		kept := slices.DeleteFunc(slices.Clone(p.refs), func(r packedRef) bool { return gone[r.name] })
		if len(kept) == len(p.refs) {
			return nil, nil
		}
		return &packedRefs{refs: kept, fully: p.fully}, nil
	})
	if err != nil {
		return err
	}
	for _, n := range names {
		b.touch(n)
		info, err := b.s.fs.Lstat(b.s.path(n))
		if err == nil && !info.IsDir() {
			err = b.s.fs.Remove(b.s.path(n))
		}
		if err != nil && !notExist(err) {
			return err
		}
	}
	return nil
}

// removeEmpty removes the folders above a ref that are empty now, but for
// those that git, or the layout here, has anyway. It stops at the first that
// is not.
func (b *batch) removeEmpty(name string) {
	for dir := parent(name); strings.Count(dir, "/") > 1 && dir+"/" != TasksPrefix; dir = parent(dir) {
		if b.s.fs.Remove(b.s.path(dir)) != nil {
			return
		}
		delete(b.s.settled, dir)
		b.touch(dir)
	}
}
