package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"umbra/gitstore/journal"
	"umbra/gitstore/pack"
	"umbra/gitstore/refs"
	"umbra/gitstore/sink"
	"umbra/internal/vfs"
)

// Place is a workspace's directory that becomes what a log says.
type Place struct {
	FS    vfs.FS
	Repo  string                      // the repository's directory in it
	Clear []string                    // what else is the log's to say
	Keep  func(through uint64) string // the text of a pack's .keep
	// Boot names this start of the system. Packs that were written under another,
	// which a power failure may have torn, are read whole before they are used.
	Boot string
}

// BootFile holds Place.Boot of when packs were written. A directory with it is a copy of a log.
const BootFile = "cache"

// Orphaned is how the names of directories in the journals' begin that have what another
// history continues without.
const Orphaned = "orphaned-"

const (
	// fetchers is how many objects are fetched at once.
	fetchers = 64
	// atOnceBytes bounds what an open fetches of packs, in bytes; indexes are in addition.
	atOnceBytes = 8 << 20
	// olderBytes is what an open fetches of the ends of large packs but the newest: most of
	// what they have is older than what an open reads.
	olderBytes = LastBytes / 2
	// maxNear bounds the objects in an index of a pack's end, the last ones. minNear is up to
	// which size of its own index a pack has none, in bytes: one request has both.
	maxNear = 8192
	minNear = 256 << 10
)

// Restore removes from the directory what the log says better, and writes that: refs,
// files, the packs, and a journal with the groups of the tail, which is to be
// replayed. Packs that are there already, and whole, are kept.
func Restore(ctx context.Context, l *Log, tail *sink.Tail, to *Place) error {
	held := PacksOf(tail)
	if err := to.clearJournals(); err != nil {
		return err
	}
	for _, name := range append([]string{lazyDir, "refs", to.Repo + "/refs", to.Repo + "/logs", to.Repo + "/packed-refs", to.Repo + "/shallow"}, to.Clear...) {
		if err := vfs.RemoveAll(to.FS, name); err != nil {
			return err
		}
	}
	if err := to.keepSound(ctx, held); err != nil {
		return err
	}
	if err := to.FS.Mkdir(lazyDir, 0o700); err != nil {
		return err
	}
	if err := refs.Init(to.FS, to.Repo); err != nil {
		return err
	}
	m := l.Manifest()
	if err := to.writeRefs(m.Refs); err != nil {
		return err
	}
	var jobs []func(context.Context) error
	near := make(map[string]sink.File)
	for _, f := range m.Files {
		if path.Dir(f.Name) == lazyDir {
			near[f.Name] = f
			continue
		}
		jobs = append(jobs, func(ctx context.Context) error { return to.fetchFile(ctx, l, &f) })
	}
	// Ends with an index of their own, and the newest packs, hold what is read first.
	first := slices.SortedFunc(maps.Values(held), func(a, b sink.Pack) int {
		_, nearA := near[to.part(&a)+Near]
		_, nearB := near[to.part(&b)+Near]
		if nearA != nearB {
			if nearA {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Through, a.Through)
	})
	left, ends := int64(atOnceBytes), int64(LastBytes)
	for _, p := range first {
		if _, err := to.FS.Lstat(to.file(&p) + ".idx"); err == nil {
			if err := to.keep(&p); err != nil {
				return err
			}
			continue
		}
		part := min(p.Size, LastBytes, left)
		if p.Size > LastBytes {
			part, ends = min(part, ends), olderBytes
		}
		left -= part
		f, ok := near[to.part(&p)+Near]
		if ok = ok && part < p.Size; ok {
			jobs = append(jobs, func(ctx context.Context) error {
				if err := to.fetchFile(ctx, l, &f); !errors.Is(err, sink.ErrMissing) {
					return err
				}
				return nil // it saves time, and nothing else
			})
		}
		jobs = append(jobs, func(ctx context.Context) error { return to.fetch(ctx, l, &p, part, ok) })
	}
	if err := atOnce(ctx, jobs); err != nil {
		return err
	}
	return to.writeTail(tail)
}

// clearJournals makes the journals' directory, or empties it but for what was put aside
// there.
func (to *Place) clearJournals() error {
	names, err := to.FS.ReadDir(journal.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return to.FS.Mkdir(journal.Dir, 0o700)
	}
	for _, e := range names {
		if !strings.HasPrefix(e.Name, Orphaned) {
			err = errors.Join(err, vfs.RemoveAll(to.FS, path.Join(journal.Dir, e.Name)))
		}
	}
	return err
}

// atOnce runs jobs, several at a time, up to the first error.
func atOnce(ctx context.Context, jobs []func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, fetchers)
	for _, job := range jobs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := job(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// PacksOf returns the packs that the log names, by Base.
func PacksOf(tail *sink.Tail) map[string]sink.Pack {
	out := make(map[string]sink.Pack)
	if tail.Manifest != nil {
		for _, p := range tail.Manifest.Packs {
			out[Base(&p)] = p
		}
	}
	for i := range tail.Groups {
		for _, p := range tail.Groups[i].Packs {
			out[Base(&p)] = p
		}
	}
	return out
}

func (to *Place) dir() string { return to.Repo + "/objects/pack" }

// file returns the path of a pack, without suffix.
func (to *Place) file(p *sink.Pack) string { return path.Join(to.dir(), Base(p)) }

// keepSound removes the packs that the log does not name, or that are not whole.
func (to *Place) keepSound(ctx context.Context, held map[string]sink.Pack) error {
	boot, err := vfs.ReadFile(to.FS, BootFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	trusted := to.Boot != "" && string(boot) == to.Boot+"\n"
	names, err := to.FS.ReadDir(to.dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sound := make(map[string]bool)
	for _, e := range names {
		base, isIdx := strings.CutSuffix(e.Name, ".idx")
		if p, ok := held[base]; ok && isIdx {
			sound[base] = trusted || Sound(to.FS, &p, to.file(&p)+".pack", to.file(&p)+".idx")
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for _, e := range names {
		if base, _, _ := strings.Cut(e.Name, "."); !sound[base] {
			if err := vfs.RemoveAll(to.FS, path.Join(to.dir(), e.Name)); err != nil {
				return err
			}
		}
	}
	if trusted {
		return nil
	}
	return replace(to.FS, BootFile, []byte(to.Boot+"\n"))
}

// keep gives a pack that is here its .keep: a merge that the log does not know may have
// superseded it before another had the workspace.
func (to *Place) keep(p *sink.Pack) error {
	name, want := to.file(p)+".keep", []byte(to.Keep(p.Through))
	if have, err := vfs.ReadFile(to.FS, name); err == nil && bytes.Equal(have, want) {
		return nil
	}
	return replace(to.FS, name, want)
}

// fetchFile gives a file of the manifest its place.
func (to *Place) fetchFile(ctx context.Context, k Fetcher, f *sink.File) error {
	data := f.Data
	if f.Object != "" {
		r, err := k.Fetch(ctx, f.Object, 0, f.Size)
		if err != nil {
			return err
		}
		defer r.Close()
		data = make([]byte, f.Size)
		if _, err := io.ReadFull(r, data); err != nil {
			return unavailable(err)
		}
	}
	if dir := path.Dir(f.Name); dir != "." {
		if err := to.FS.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return replace(to.FS, f.Name, data)
}

// fetch brings a pack here, or so many bytes of its end, with the index unless there is one
// of the end.
func (to *Place) fetch(ctx context.Context, l *Log, p *sink.Pack, last int64, near bool) error {
	if last == p.Size {
		return to.fetchPack(ctx, l, p)
	}
	f, err := to.openLazy(ctx, l, p, last, near)
	if err == nil {
		l.mu.Lock()
		l.lazy[Base(p)] = f
		l.mu.Unlock()
	}
	return err
}

// fetchPack brings a pack and its index to the local disk, whole and verified.
func (to *Place) fetchPack(ctx context.Context, k Fetcher, p *sink.Pack) error {
	temp, file := path.Join(journal.Dir, "tmp-"+Base(p)), to.file(p)
	if err := fetchPack(ctx, k, to.FS, p, temp+".pack", temp+".idx"); err != nil {
		return err
	}
	return errors.Join(to.keep(p), to.FS.Rename(temp+".pack", file+".pack"), to.FS.Rename(temp+".idx", file+".idx"))
}

// writeRefs gives git's refs and the ref log the manifest's values.
func (to *Place) writeRefs(list []sink.Ref) error {
	if len(list) == 0 {
		return nil
	}
	var packed strings.Builder
	values := make([]refs.Value, 0, len(list))
	for _, r := range list {
		values = append(values, refs.Value{Name: r.Name, ID: r.ID})
		if r.Name != refs.Boundary {
			fmt.Fprintf(&packed, "%s %s\n", r.ID, r.Name)
		}
	}
	if err := replace(to.FS, to.Repo+"/packed-refs", []byte(packed.String())); err != nil {
		return err
	}
	return refs.WriteNote(to.FS, "refs", values)
}

// writeTail makes a journal of the groups that the manifest does not include. Deltas
// name their bases by distance, so groups of several journals may follow each other.
func (to *Place) writeTail(tail *sink.Tail) error {
	head := pack.Header(0)
	data := head[:]
	for i := range tail.Groups {
		data = append(data, tail.Groups[i].Data...)
	}
	if len(data) == len(head) {
		return nil
	}
	return replace(to.FS, path.Join(journal.Dir, fmt.Sprintf("%010d%s", 1, journal.Suffix)), data)
}

// replace writes a file in one step.
func replace(fsys vfs.FS, name string, data []byte) error {
	err := write(fsys, name+".tmp", func(f io.Writer) error {
		_, err := f.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return fsys.Rename(name+".tmp", name)
}

// PutFiles adds files to a manifest: what may change at any time, and what only
// grows or never changes, by name with the path at which it is read now. One that
// does not exist is left out.
func (l *Log) PutFiles(ctx context.Context, fsys vfs.FS, m *sink.Manifest, inline []string, files map[string]string) error {
	add := func(name, from string, inline bool) error {
		data, err := vfs.ReadFile(fsys, from)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return l.putFile(ctx, m, name, data, inline)
	}
	for _, name := range inline {
		if err := add(name, name, true); err != nil {
			return err
		}
	}
	for name, from := range files {
		if err := add(name, from, false); err != nil {
			return err
		}
	}
	return nil
}

// putFile adds a file to a manifest.
func (l *Log) putFile(ctx context.Context, m *sink.Manifest, name string, data []byte, inline bool) (err error) {
	f := sink.File{Name: name, Size: int64(len(data)), Data: data}
	if f.Size > sink.MaxInline && !inline {
		old := l.file(name)
		f.Data, f.Object = nil, old.Object
		if f.Object == "" || old.Size != f.Size {
			if f.Object, err = l.Put(ctx, Bytes(data)); err != nil {
				return err
			}
		}
	}
	m.Files = append(m.Files, f)
	return nil
}

// file returns a file of the manifest; one without a name if it has none.
func (l *Log) file(name string) sink.File {
	for _, f := range l.Manifest().Files {
		if f.Name == name {
			return f
		}
	}
	return sink.File{}
}

// PutNear adds the index of a pack's end to a manifest, for packs that are not fetched whole at
// once: an open does not wait for the index of a long history. laid says that what an open
// reads is there; else only what the manifest before has is kept.
func (l *Log) PutNear(ctx context.Context, m *sink.Manifest, p sink.Pack, from *pack.Pack, laid bool) error {
	name := path.Join(lazyDir, Base(&p)+Near)
	if old := l.file(name); old.Name != "" {
		m.Files = append(m.Files, old)
		return nil
	}
	if !laid || p.Idx <= minNear {
		return nil
	}
	var end []pack.IdxEntry
	for e, err := range from.Entries() {
		if err != nil {
			return err
		}
		if e.Offset >= uint64(p.Size-LastBytes) {
			end = append(end, e)
		}
	}
	slices.SortFunc(end, func(a, b pack.IdxEntry) int { return cmp.Compare(b.Offset, a.Offset) })
	end = end[:min(len(end), maxNear)]
	return l.putFile(ctx, m, name, pack.EncodeIdx(end, p.Sum), false)
}
