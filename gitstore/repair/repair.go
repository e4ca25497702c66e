// Package repair puts right what can be from what is left of a store's directory.
package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"umbra/gitstore/journal"
	"umbra/gitstore/object"
	"umbra/gitstore/rawpack"
	"umbra/gitstore/records"
	"umbra/gitstore/refs"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// Repaired reports what Repair did and what it could not, each one sentence.
type Repaired struct {
	Done   []string `json:"done"`
	Cannot []string `json:"cannot"`
}

// maxListed bounds each list of a Repaired.
const maxListed = 1000

// Did adds a sentence on what was done.
func (r *Repaired) Did(format string, args ...any) {
	if len(r.Done) < maxListed {
		r.Done = append(r.Done, fmt.Sprintf(format, args...))
	}
}

// Not adds a sentence on what could not be done.
func (r *Repaired) Not(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(r.Cannot) < maxListed && !slices.Contains(r.Cannot, text) {
		r.Cannot = append(r.Cannot, text)
	}
}

// Run repairs what is not open yet, and gives what is left to do to the next
// start. resumePurge ends a purge that was cut off, and reports whether there was one
// to be finished.
func Run(ctx context.Context, s *repo.Repo, resumePurge func(context.Context) (bool, error)) (*Repaired, error) {
	r := &repairer{ctx: ctx, s: s, resumePurge: resumePurge, out: &Repaired{Done: []string{}, Cannot: []string{}}}
	err := r.offline()
	r.close()
	return r.out, err
}

// repairer works on a store that is not open: packs and refs alone are.
type repairer struct {
	ctx         context.Context
	s           *repo.Repo
	resumePurge func(context.Context) (bool, error)
	out         *Repaired
	note        *refs.Note

	wounded []*rawpack.Pack              // ours, with wrong bytes
	others  []*rawpack.Pack              // not ours, or put aside; nil until one is needed
	looked  bool                         // others is filled
	spare   map[object.ID]rawpack.Object // read from where they do not stay
	seen    map[object.ID]bool
}

func (r *repairer) close() {
	r.s.Cached.Trees.Close()
	r.s.Cached.Computed.Close()
	for _, p := range append(r.wounded, r.others...) {
		p.Close()
	}
	r.s.Packs.Close()
	if r.note != nil {
		r.note.Close()
	}
}

func (r *repairer) offline() error {
	if err := r.s.FS.Mkdir(journal.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, step := range []func() error{r.plainFiles, r.unfinishedPurge, r.packFiles, r.salvageWounded, r.values, r.commitIndex} {
		if err := step(); err != nil {
			return err
		}
		if err := r.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// aside moves a file into damaged/.
func (r *repairer) aside(name string) error {
	if err := r.s.FS.Mkdir(storedir.Damaged, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	to := path.Join(storedir.Damaged, fmt.Sprintf("%s-%d", path.Base(name), r.s.Now().UnixNano()/int64(time.Millisecond)))
	if err := r.s.FS.Rename(name, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(r.s.FS.SyncDir(storedir.Damaged), r.s.FS.SyncDir(path.Dir(name)))
}

// unfinishedPurge ends a purge that was cut off, before anything is salvaged
// that it removes.
func (r *repairer) unfinishedPurge() (err error) {
	if r.s.Note, err = refs.OpenNote(r.s.FS, "refs"); err != nil {
		return err
	}
	defer r.s.Note.Close()
	finished, err := r.resumePurge(r.ctx)
	if finished {
		r.out.Did("A purge that was cut off was finished.")
	}
	return err
}

// plainFiles sees to HEAD, config and packed-refs, and opens the refs.
func (r *repairer) plainFiles() error {
	for name, sound := range map[string]func(string) bool{
		"HEAD": func(text string) bool {
			return strings.HasPrefix(text, "ref: refs/") || len(text) >= 40 && !strings.ContainsFunc(text[:40], func(c rune) bool { return !strings.ContainsRune("0123456789abcdef", c) })
		},
		"config": func(text string) bool { return strings.Contains(text, "[core]") && !strings.ContainsRune(text, 0) },
	} {
		full := path.Join(storedir.Repo, name)
		text, err := vfs.ReadFile(r.s.FS, full)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r.out.Did("The repository's %s was missing: made again.", name)
		case err != nil:
			return err
		case !sound(string(text)):
			if err := r.aside(full); err != nil {
				return err
			}
			r.out.Did("The repository's %s was damaged: made again.", name)
		}
	}
	if err := r.s.OpenRefs(); err != nil { // makes what is missing
		return err
	}
	if _, err := r.s.Refs.ClearStale(r.ctx); err != nil {
		return err
	}
	if _, err := r.s.Refs.List("refs/"); err != nil {
		if err := r.aside(path.Join(storedir.Repo, "packed-refs")); err != nil {
			return err
		}
		r.out.Did("packed-refs was damaged, and was put aside; refs of the server's are set again.")
		if _, err := r.s.Refs.List("refs/"); err != nil {
			return err
		}
	}
	return nil
}

// commitIndex drops the index where it is damaged: the next start reads the
// history again.
func (r *repairer) commitIndex() error {
	info, err := r.s.FS.Lstat(records.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	index, err := r.s.OpenRecords()
	if err != nil {
		return err
	}
	sound := index.Sound(info.Size)
	tip, _ := r.note.Get(refs.ShadowRef)
	for seq := r.seqOf(tip); sound && seq > 0 && !tip.IsZero(); seq-- {
		if seq <= index.Stats().InFile {
			rec, err := index.At(seq)
			sound = err == nil && rec.Commit == tip
		}
		c, err := r.commit(tip)
		if err != nil {
			break // reported already
		}
		tip = c.Parent
	}
	index.Close()
	if sound {
		return nil
	}
	for _, name := range []string{records.File, records.NamesFile} {
		if err := storedir.Remove(r.s.FS, name); err != nil {
			return err
		}
	}
	r.out.Did("The commit index was damaged: read from history again.")
	return nil
}

func (r *repairer) seqOf(id object.ID) uint64 {
	c, err := r.commit(id)
	if err != nil {
		return 0
	}
	return c.Seq
}
