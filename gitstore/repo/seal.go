package repo

import (
	"context"
	"path"
	"slices"

	"umbra/gitstore/object"
	"umbra/gitstore/packset"
	"umbra/gitstore/remote"
	"umbra/gitstore/sink"
	"umbra/gitstore/storedir"
)

// SwapTo puts what the packs and files of the store have and the sink's store has not,
// and makes it the manifest of a log. newMap is the temporary name of a purge's map that
// has none yet. Upkeep.Maintaining is held.
func (r *Repo) SwapTo(ctx context.Context, log *remote.Log, m *sink.Manifest, used []*packset.File, values map[string]object.ID, newMap string, purge bool) error {
	for _, f := range used {
		if err := r.Put(ctx, log, f); err != nil {
			return err
		}
		m.Packs = append(m.Packs, f.Ref())
		if err := log.PutNear(ctx, m, f.Ref(), f.Pack, f.Keep.Laid); err != nil {
			return err
		}
	}
	for name, id := range values {
		m.Refs = append(m.Refs, sink.Ref{Name: name, ID: id})
	}
	maps, err := r.MovedFiles()
	if err != nil {
		return err
	}
	files := map[string]string{storedir.Dropped: storedir.Dropped}
	for _, n := range maps {
		name := storedir.MovedName(n)
		files[name] = name
		// The log of a copy learns of a purge by the map.
		purge = purge || r.Held == nil && !slices.ContainsFunc(log.Manifest().Files, func(f sink.File) bool { return f.Name == name })
	}
	if newMap != "" {
		files[path.Join(storedir.Moved, path.Base(newMap))] = newMap
	}
	if err := log.PutFiles(ctx, r.FS, m, []string{storedir.Exclude}, files); err != nil {
		return err
	}
	return log.Swap(ctx, m, purge)
}

// Put makes a pack an object of a log's store, if it is none.
func (r *Repo) Put(ctx context.Context, log *remote.Log, f *packset.File) error {
	if f.Stored() != "" {
		return nil
	}
	file := path.Join(storedir.Packs, f.Base)
	name, err := log.PutPack(ctx, r.FS, file+".pack", file+storedir.Idx)
	if err != nil {
		return err
	}
	f.SetStored(name)
	return nil
}

// ForgetPut makes the next seal put everything again that neither the manifest nor a
// group names.
func (r *Repo) ForgetPut(log *remote.Log) {
	known := make(map[string]bool)
	for _, name := range log.Manifest().Objects() {
		known[name] = true
	}
	r.Packs.ForgetStored(func(name string) bool { return !known[name] && !log.Named(name) })
}
