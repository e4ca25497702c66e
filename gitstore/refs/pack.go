package refs

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// errNoPeel is returned by Pack on a Store that was opened without Peel.
var errNoPeel = errors.New("refs: no Peel to pack with")

// CountLoose gives the number of loose refs that Pack would pack: a scan, for
// maintenance to decide by.
func (s *Store) CountLoose() (int, error) {
	refs, err := s.packable()
	return len(refs), err
}

// packable gives the loose refs that are the server's and seldom move: tasks',
// and what was kept of others. ShadowRef would be loose again in a moment, a
// person's are not ours to pack.
func (s *Store) packable() ([]Ref, error) {
	var out []Ref
	for _, prefix := range []string{TasksPrefix, ForeignPrefix} {
		refs, err := s.listLoose(prefix)
		if err != nil {
			return nil, err
		}
		for _, r := range refs {
			if !r.ID.IsZero() {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// Pack moves the server's loose refs into packed-refs, as git-pack-refs(1)
// does: the new file is durable before the first loose one goes, and a loose
// one goes under its lock, and only if it still says the same.
func (s *Store) Pack(ctx context.Context) error {
	if s.opt.Peel == nil {
		return errNoPeel
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var packed []Ref
	err := s.rewritePacked(ctx, func(p *packedRefs) (*packedRefs, error) {
		loose, err := s.packable()
		if err != nil || len(loose) == 0 {
			return nil, err
		}
		var next *packedRefs
		next, packed = s.merge(p, loose)
		return next, nil
	})
	if err != nil {
		return err
	}
	b := &batch{s: s, dirs: make(map[string]bool), unsynced: make(map[string]error)}
	for _, r := range packed {
		if err := b.prune(ctx, r); err != nil {
			return errors.Join(err, b.sync())
		}
	}
	return b.sync()
}

// merge gives packed-refs with the loose refs in it, and those of them that
// went in: one whose object cannot be read stays loose.
func (s *Store) merge(p *packedRefs, loose []Ref) (*packedRefs, []Ref) {
	next := &packedRefs{fully: true, refs: make([]packedRef, 0, len(p.refs)+len(loose))}
	var in []Ref
	isNew := make(map[string]bool, len(loose))
	for _, r := range loose {
		peeled, ok, err := s.opt.Peel(r.ID)
		if err != nil {
			continue
		}
		line := packedRef{name: r.Name, id: r.ID}
		if ok {
			line.peeled = peeled
		}
		next.refs = append(next.refs, line)
		in = append(in, r)
		isNew[r.Name] = true
	}
	for _, r := range p.refs {
		if isNew[r.name] {
			continue
		}
		if !p.fully && r.peeled.IsZero() {
			peeled, ok, err := s.opt.Peel(r.id)
			if err != nil {
				next.fully = false
			} else if ok {
				r.peeled = peeled
			}
		}
		next.refs = append(next.refs, r)
	}
	slices.SortFunc(next.refs, func(a, b packedRef) int { return strings.Compare(a.name, b.name) })
	return next, in
}

// prune removes a loose ref that packed-refs holds.
func (b *batch) prune(ctx context.Context, r Ref) (err error) {
	unlock, err := b.s.lock(ctx, r.Name)
	if notExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	cur, ok, err := b.s.readLoose(r.Name)
	if err == nil && ok && cur.ID == r.ID {
		if err = b.s.fs.Remove(b.s.path(r.Name)); notExist(err) {
			err = nil
		}
		b.touch(r.Name)
	}
	if uerr := unlock(); err == nil {
		err = uerr
	}
	b.removeEmpty(r.Name)
	return err
}

// rewritePacked replaces packed-refs under its lock by what change makes of
// it, durable when it returns. Nothing is written where that is nil.
func (s *Store) rewritePacked(ctx context.Context, change func(*packedRefs) (*packedRefs, error)) (err error) {
	unlock, err := s.lock(ctx, packedName)
	if err != nil {
		return err
	}
	defer func() {
		if uerr := unlock(); err == nil {
			err = uerr
		}
	}()
	p, err := s.packed()
	if err != nil {
		return err
	}
	next, err := change(p)
	if err != nil || next == nil {
		return err
	}
	temp, err := s.writeTemp(next.encode())
	if err != nil {
		return err
	}
	if err := s.fs.Rename(temp, s.path(packedName)); err != nil {
		s.fs.Remove(temp)
		return err
	}
	s.packedPending = true
	return s.syncDir(".")
}
