// Package verify reads a whole history and reports what is wrong with it.
package verify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/pace"
	"umbra/gitstore/pack"
	"umbra/gitstore/packset"
	"umbra/gitstore/refs"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// Report is what Verify found.
type Report struct {
	Objects  int      // read and hashed
	Commits  int      // walked, newest first
	Hashes   int      // After-Hash trailers compared with the bytes
	Problems []string // each one sentence; none: all is well
}

// maxProblems bounds a report of a repository that is wholly broken.
const maxProblems = 1000

func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// Run reads every object that the history reaches and compares: hashes,
// that nothing is missing, that sequence numbers and parents are unbroken,
// every After-Hash, the tasks' bounds, the packs' checksums, the refs on disk.
// It changes nothing; writers go on, and so does retention: what it drops
// meanwhile is not missed. After a purge meanwhile all is checked again.
// progress, if not nil, is called with the number of commits done, and of all.
func Run(ctx context.Context, s *repo.Repo, progress func(done, all uint64)) (Report, error) {
	for {
		rewrites := s.Rewrites()
		v := &Verifier{Ctx: ctx, S: s, seen: make(map[object.ID]bool), sums: make(map[object.ID]string)}
		if err := v.all(progress); err != nil || s.Rewrites() == rewrites {
			return v.Report, err
		}
	}
}

// all checks everything, the refs last: that waits for a purge that is at its
// switch, so that a read that missed what it took away finds it counted.
func (v *Verifier) all(progress func(done, all uint64)) error {
	if err := v.history(progress); err != nil {
		return err
	}
	if err := v.boundary(); err != nil {
		return err
	}
	for _, t := range v.S.Tasks() {
		v.Task(t)
	}
	if err := v.packs(); err != nil {
		return err
	}
	return v.refs()
}

// history walks the commits from the tip to where the history begins, which may
// come nearer meanwhile.
func (v *Verifier) history(progress func(done, all uint64)) error {
	s, tip := v.S, v.S.Tip()
	id, seq := tip.Commit, tip.Seq
	for seq > s.ForkedAt() && seq >= s.Boundary().Seq { // a fork's base is checked by itself
		if err := v.Ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		before := len(v.Problems)
		c, err := v.commit(id)
		if err != nil {
			return err
		}
		if c != nil {
			if c.Seq != seq {
				v.problem("commit %s says it is number %d; it is number %d", id, c.Seq, seq)
			}
			if rec, err := s.Index.At(seq); err != nil || rec.Commit != id {
				v.problem("the commit index names another commit than %s at %d", id, seq)
			}
		}
		if seq < s.Boundary().Seq {
			v.Problems = v.Problems[:before] // it was dropped while it was checked
			break
		}
		if c == nil {
			break // what lies behind cannot be reached
		}
		id, seq = c.Parent, seq-1
		if progress != nil {
			progress(tip.Seq-seq, tip.Seq)
		}
	}
	if s.Base != nil && seq == s.Base.Seq && id != s.Base.At {
		v.problem("the fork's first commit is based on %s, not on %s", id, s.Base.At)
	}
	if seq == 0 && !id.IsZero() {
		v.problem("the first commit has a parent, %s", id)
	}
	return nil
}

// packs compares each pack's bytes with its trailer, and looks for what was
// removed by another process: a .keep, an index.
func (v *Verifier) packs() error {
	names, err := v.S.FS.ReadDir(storedir.Packs)
	if err != nil {
		return err
	}
	there := make(map[string]bool)
	for _, e := range names {
		there[e.Name] = true
	}
	for _, f := range v.S.Packs.InUse() {
		if err == nil {
			err = v.pack(f, there)
		}
		f.Release()
	}
	for _, base := range v.S.Packs.Broken() {
		v.problem("%s or its index is damaged", base)
	}
	return err
}

func (v *Verifier) pack(f *packset.File, there map[string]bool) error {
	for _, suffix := range []string{".pack", storedir.Idx, ".keep"} {
		name := path.Join(storedir.Packs, f.Base+suffix)
		if there[f.Base+suffix] || !v.S.Packs.Has(f.Base) {
			continue
		}
		if _, err := v.S.FS.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			v.problem("%s%s is missing", f.Base, suffix)
		}
	}
	err := f.Pack.VerifyChecksum()
	if errors.Is(err, pack.ErrCorrupt) {
		v.problem("the bytes of %s.pack are not those of its checksum", f.Base)
		err = nil
	}
	return errors.Join(err, v.Ctx.Err())
}

// refs compares the refs on disk with what they were set to last. No
// publication moves them meanwhile.
func (v *Verifier) refs() error {
	s := v.S
	s.Publishing.Lock()
	defer s.Publishing.Unlock()
	values := s.Note.All()
	delete(values, refs.Boundary)
	for _, u := range s.Note.Pending() {
		delete(values, u.Name) // Warnings say so
	}
	for name, want := range values {
		now, symbolic, found, err := s.Refs.Read(name)
		_, damaged := errors.AsType[*refs.DamagedError](err)
		switch {
		case damaged:
			v.problem("%s is damaged; it should be %s", name, want)
		case err != nil:
			return err
		case !found:
			v.problem("%s is missing; it should be %s", name, want)
		case symbolic != "":
			v.problem("%s points at %s; it should be %s", name, symbolic, want)
		case now != want:
			v.problem("%s is %s; it should be %s", name, now, want)
		}
	}
	if noted, _ := s.Note.Get(refs.ShadowRef); noted.IsZero() {
		return v.Ctx.Err() // nothing is shown yet
	}
	for name, want := range map[string]string{refs.HeadRef: refs.ShadowRef, refs.HEAD: ""} {
		_, symbolic, found, err := s.Refs.Read(name)
		if _, damaged := errors.AsType[*refs.DamagedError](err); err != nil && !damaged {
			return err
		}
		if err != nil || !found || want != "" && symbolic != want {
			v.problem("%s does not point at %s", name, refs.ShadowRef)
		}
	}
	return v.Ctx.Err()
}

// Verifier is one run.
type Verifier struct {
	Report
	Ctx  context.Context
	S    *repo.Repo
	seen map[object.ID]bool
	sums map[object.ID]string // SHA-256 of blobs, as After-Hash has it
}

// object reads one object and checks its hash; ok is false after a problem.
func (v *Verifier) object(id object.ID, want object.Kind) (data []byte, ok bool, err error) {
	kind, data, err := v.S.ReadObject(id, object.MaxMeta)
	switch {
	case errs.Is(err, errs.NotFound):
		v.problem("%s %s is missing", want, id)
		return nil, false, nil
	case err != nil:
		v.problem("%s %s cannot be read", want, id)
		return nil, false, v.Ctx.Err()
	case kind != want || object.Hash(kind, data) != id:
		v.problem("%s %s has other bytes", want, id)
		return nil, false, nil
	}
	v.Objects++
	return data, true, nil
}

func (v *Verifier) commit(id object.ID) (*repo.Commit, error) {
	data, ok, err := v.object(id, object.Commit)
	if !ok {
		return nil, err
	}
	c, err := repo.ParseCommit(id, data)
	if err != nil {
		v.problem("commit %s cannot be parsed", id)
		return nil, nil
	}
	v.Commits++
	if err := v.tree(c.Tree); err != nil {
		return nil, err
	}
	v.afterHashes(c)
	return c, nil
}

func (v *Verifier) tree(id object.ID) error {
	if v.seen[id] {
		return nil
	}
	v.seen[id] = true
	data, ok, err := v.object(id, object.Tree)
	if !ok {
		return err
	}
	entries, err := object.ParseTree(data)
	if err != nil {
		v.problem("tree %s cannot be parsed", id)
		return nil
	}
	for _, e := range entries {
		if e.Mode == object.Dir {
			err = v.tree(e.ID)
		} else if !v.seen[e.ID] {
			v.seen[e.ID] = true
			err = v.blob(e.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// blob streams a blob, which may be larger than memory, and keeps its SHA-256.
func (v *Verifier) blob(id object.ID) error {
	r, size, err := v.S.OpenBlob(v.Ctx, id)
	if err != nil {
		v.problem("blob %s is missing or cannot be read", id)
		return v.Ctx.Err()
	}
	defer r.Close()
	sum, sha := object.NewHash(object.Blob, size), sha256.New()
	if _, err := io.Copy(io.MultiWriter(sum, sha), pace.Reader(v.Ctx, r)); err != nil {
		v.problem("blob %s cannot be read whole", id)
		return v.Ctx.Err()
	}
	var got object.ID
	sum.Sum(got[:0])
	if got != id {
		v.problem("blob %s has other bytes", id)
	}
	v.Objects++
	v.sums[id] = "sha256:" + hex.EncodeToString(sha.Sum(nil))
	return nil
}

func (v *Verifier) afterHashes(c *repo.Commit) {
	snap := repo.SnapshotOf(v.S, c.Tree)
	for _, e := range c.Message.Entries {
		if e.AfterHash == "" {
			continue
		}
		at, ok, err := snap.Lookup(wspath.Path(e.Path))
		if err != nil {
			return // reported already: its tree is missing
		}
		switch {
		case !ok:
			v.problem("commit %s (number %d) names %q, which is not in its tree", c.ID, c.Seq, e.Path)
		case e.AfterHash == message.Purged && at.ID != repo.PurgedBlob():
			v.problem("commit %s (number %d): the bytes of %q should be purged, and are not", c.ID, c.Seq, e.Path)
		case e.AfterHash != message.Purged && v.sums[at.ID] != "" && v.sums[at.ID] != e.AfterHash:
			v.problem("commit %s (number %d): the bytes of %q are not those of its After-Hash", c.ID, c.Seq, e.Path)
		}
		v.Hashes++
	}
}

// Task checks a task's refs.
func (v *Verifier) Task(t repo.Task) {
	before := len(v.Problems)
	v.taskIs(t)
	if len(v.Problems) == before {
		return
	}
	// It may have moved or been dropped: its present state is checked while no
	// group is committed.
	v.Problems = v.Problems[:before]
	v.S.Committing.Lock()
	defer v.S.Committing.Unlock()
	if now, ok := v.S.Task(t.ID); ok {
		v.taskIs(now)
	}
}

func (v *Verifier) taskIs(t repo.Task) {
	for which, id := range map[string]object.ID{"base": t.Base, "head": t.Head} {
		c, err := v.S.ReadCommit(v.Ctx, id)
		if err != nil {
			v.problem("task %s: its %s %s is missing", t.ID, which, id)
			continue
		}
		if rec, err := v.S.Index.At(c.Seq); err != nil || rec.Commit != id {
			v.problem("task %s: its %s %s is not in the workspace's history", t.ID, which, id)
		}
	}
	if _, ok, _ := v.object(t.InfoTag, object.Tag); !ok {
		v.problem("task %s: its record is missing", t.ID)
	}
}

// boundary checks that git ends the history where we do. While the boundary
// moves, git ends it where it was before: the note says so until all is done.
func (v *Verifier) boundary() error {
	for {
		b, before := v.S.Boundary(), len(v.Problems)
		if b.Whole() {
			return nil
		}
		noted, _ := v.S.Note.Get(refs.Boundary)
		lines, err := v.S.Refs.Shallow()
		if err != nil || !slices.Contains(lines, b.Commit) && (noted == b.Commit || !noted.IsZero() && !slices.Contains(lines, noted)) {
			v.problem("the file shallow does not name the commit %s, at which the history begins", b.Commit)
		}
		if c, err := v.S.ReadCommit(v.Ctx, b.Commit); err != nil || c.Seq != b.Seq {
			v.problem("the commit %s, at which the history begins, is missing", b.Commit)
		}
		if v.S.Boundary() == b {
			return v.Ctx.Err()
		}
		v.Problems = v.Problems[:before] // it moved while it was checked
	}
}
