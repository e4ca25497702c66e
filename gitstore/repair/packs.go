package repair

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"umbra/gitstore/journal"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/packset"
	"umbra/gitstore/rawpack"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// packFiles checks every pack that has one of our .keep files: a missing or damaged
// index is made again, one with wrong bytes is noted to be salvaged. Then the
// sound ones are opened.
func (r *repairer) packFiles() error {
	names, err := r.s.FS.ReadDir(storedir.Packs)
	if err != nil {
		return err
	}
	there := make(map[string]bool)
	for _, e := range names {
		there[e.Name] = true
	}
	wounded := make(map[string]bool)
	for _, e := range names {
		base, isKeep := strings.CutSuffix(e.Name, ".keep")
		if !isKeep {
			continue
		}
		text, err := vfs.ReadFile(r.s.FS, path.Join(storedir.Packs, e.Name))
		if err != nil {
			return err
		}
		note, ours := packset.ParseKeep(string(text))
		if !ours || note.Superseded != 0 && !there[base+storedir.Idx] {
			continue // being removed
		}
		if !there[base+".pack"] {
			if note.Superseded == 0 && there[base+storedir.Idx] {
				r.out.Not("%s.pack is missing.", base)
			}
			continue
		}
		sound, err := r.packFile(base)
		if err != nil {
			return err
		}
		wounded[base] = !sound
		if err := r.ctx.Err(); err != nil {
			return err
		}
	}
	if err := r.s.Packs.Load(); err != nil {
		return err
	}
	for _, f := range r.s.Packs.All() {
		if wounded[f.Base] {
			f.Release()
		}
	}
	r.s.Packs.Forget(wounded)
	return nil
}

// packFile checks one pack and its index; false where its bytes are wrong.
func (r *repairer) packFile(base string) (sound bool, err error) {
	name := path.Join(storedir.Packs, base)
	p, err := rawpack.Open(r.s.FS, base, name+".pack")
	if err != nil {
		return false, err
	}
	if !p.Whole {
		if !p.UseIdx(r.s.FS, name+storedir.Idx) {
			err = p.Scan()
		}
		r.wounded = append(r.wounded, p)
		return false, err
	}
	defer p.Close()
	return true, r.index(p)
}

// index makes a whole pack's index again, if that is needed.
func (r *repairer) index(p *rawpack.Pack) error {
	name := path.Join(storedir.Packs, p.Name)
	ok := p.UseIdx(r.s.FS, name+storedir.Idx)
	if ok {
		opened, err := pack.Open(r.s.FS, name+".pack", name+storedir.Idx, pack.Options{})
		if err == nil {
			return opened.Close()
		}
		if !errors.Is(err, pack.ErrCorrupt) {
			return err
		}
	}
	was := "damaged"
	if _, err := r.s.FS.Lstat(name + storedir.Idx); errors.Is(err, fs.ErrNotExist) {
		was = "missing"
	}
	p.Entries = nil
	if err := p.Scan(); err != nil {
		return err
	}
	if !p.Whole {
		r.out.Not("%s.pack has deltas on objects that it has not: no index can be made.", p.Name)
		return nil
	}
	sum, err := p.Trailer()
	if err != nil {
		return err
	}
	if err := storedir.WriteFile(r.s.FS, name+storedir.Idx, pack.EncodeIdx(p.Entries, sum)); err != nil {
		return err
	}
	r.out.Did("The index of %s was %s: made again, of %d objects.", p.Name, was, len(p.Entries))
	return r.s.FS.SyncDir(storedir.Packs)
}

// salvageWounded writes what can be read of damaged packs, and no other pack
// of the store holds, into a new one, and puts them aside.
func (r *repairer) salvageWounded() error {
	if len(r.wounded) == 0 {
		return nil
	}
	read := make(map[string][2]int) // of each: readable, all that is known of
	_, err := r.rescue(func(w *pack.Writer) error {
		for _, p := range r.wounded {
			var n [2]int
			for _, e := range p.Entries {
				if err := r.ctx.Err(); err != nil {
					return err
				}
				n[1]++
				f, err := r.s.Packs.Holding(e.ID)
				if err != nil {
					return err
				}
				if f != nil {
					f.Release()
					n[0]++
					continue
				}
				kind, data, ok := p.Get(e.ID)
				if !ok {
					continue
				}
				n[0]++
				if _, err := w.Add(kind, data); err != nil {
					return err
				}
			}
			read[p.Name] = n
		}
		return nil
	})
	if err != nil {
		return err
	}
	gone := make(map[string]bool)
	for _, p := range r.wounded {
		gone[p.Name] = true
	}
	if err := r.s.Packs.DropMultiIndex(func(base string) bool { return gone[base] }); err != nil {
		return err
	}
	for _, p := range r.wounded {
		for _, suffix := range []string{storedir.Idx, ".pack"} {
			if err := r.aside(path.Join(storedir.Packs, p.Name+suffix)); err != nil {
				return err
			}
		}
		if err := storedir.Remove(r.s.FS, path.Join(storedir.Packs, p.Name+".keep")); err != nil {
			return err
		}
		n := read[p.Name]
		r.out.Did("%s.pack was damaged, and is in %s/ now; %d of its %d known objects were read or are elsewhere.", p.Name, storedir.Damaged, n[0], n[1])
	}
	return nil
}

// rescue writes one of our packs; how many objects it has.
func (r *repairer) rescue(fill func(*pack.Writer) error) (count int, err error) {
	name := packset.NewName()
	defer r.s.Packs.RemovePrepared(name)
	_, sum, err := r.s.Packs.Write(name, func(w *pack.Writer) (object.ID, error) {
		err := fill(w)
		count = w.Count()
		return object.ID{}, err
	})
	if err != nil || count == 0 {
		return 0, err
	}
	through := uint64(0)
	for _, f := range r.s.Packs.All() {
		through = max(through, f.Keep.Through)
	}
	_, err = r.s.Packs.Link(name+storedir.Prepared, name+storedir.Idx, sum, packset.Keep{Through: through})
	return count, err
}

// find looks for an object that none of our packs holds: in users' packs (a pack
// of the server that lost its .keep is one of these), in displaced files, and
// among loose objects. A whole pack that has it becomes ours.
func (r *repairer) find(id object.ID) (object.Kind, []byte, bool, error) {
	if o, ok := r.spare[id]; ok {
		return o.Kind, o.Data, true, nil
	}
	if err := r.lookAround(); err != nil {
		return 0, nil, false, err
	}
	for _, p := range r.others {
		kind, data, ok := p.Get(id)
		if !ok {
			continue
		}
		if p.Whole && strings.HasPrefix(p.Name, "pack-") {
			return kind, data, true, r.adopt(p)
		}
		r.keepSpare(id, kind, data)
		return kind, data, true, nil
	}
	kind, data, ok := rawpack.Loose(r.s.FS, storedir.Repo+"/objects", object.MaxMeta, id)
	if ok {
		r.keepSpare(id, kind, data)
	}
	return kind, data, ok, nil
}

func (r *repairer) keepSpare(id object.ID, kind object.Kind, data []byte) {
	if r.spare == nil {
		r.spare = make(map[object.ID]rawpack.Object)
	}
	r.spare[id] = rawpack.Object{Kind: kind, Data: data}
}

// lookAround opens everything else that may hold objects.
func (r *repairer) lookAround() error {
	if r.looked {
		return nil
	}
	r.looked = true
	known := make(map[string]bool)
	for _, f := range r.s.Packs.All() {
		known[f.Base] = true
	}
	open := func(name, file, idx string) error {
		p, err := rawpack.Open(r.s.FS, name, file)
		if err != nil {
			return err
		}
		r.others = append(r.others, p)
		if idx != "" && p.UseIdx(r.s.FS, idx) {
			return nil
		}
		return p.Scan()
	}
	for _, dir := range []string{storedir.Packs, journal.Dir, storedir.Damaged} {
		names, err := r.s.FS.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range names {
			file := path.Join(dir, e.Name)
			base, isPack := strings.CutSuffix(e.Name, ".pack")
			switch {
			case dir == storedir.Packs && isPack && !known[base]:
				err = open(base, file, path.Join(dir, base+storedir.Idx))
			case dir == journal.Dir && strings.HasPrefix(e.Name, "torn-"), dir == storedir.Damaged && strings.Contains(e.Name, ".pack-"):
				err = open(file, file, "")
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// adopt makes a pack ours that holds what the history needs.
func (r *repairer) adopt(p *rawpack.Pack) error {
	if err := r.index(p); err != nil {
		return err
	}
	through := uint64(0)
	for id := range p.Holds() {
		if kind, data, ok := p.Get(id); ok && kind == object.Commit {
			if c, err := repo.ParseCommit(id, data); err == nil {
				through = max(through, c.Seq)
			}
		}
	}
	note := packset.Keep{Through: through}
	if err := storedir.WriteFile(r.s.FS, path.Join(storedir.Packs, p.Name+".keep"), []byte(note.String())); err != nil {
		return err
	}
	if err := r.s.FS.SyncDir(storedir.Packs); err != nil {
		return err
	}
	r.out.Did("%s holds what the history needs, and had no .keep: made.", p.Name)
	return r.s.Packs.Add(p.Name, note)
}
