package gitstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
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

// Verify reads every object that the history reaches and compares: hashes,
// that nothing is missing, that sequence numbers and parents are unbroken,
// every After-Hash, the tasks' refs. It changes nothing; writers go on.
// progress, if not nil, is told the number of commits done, and of all.
func (s *Store) Verify(ctx context.Context, progress func(done, all uint64)) (Report, error) {
	v := &verifier{ctx: ctx, s: s, seen: make(map[ID]bool), sums: make(map[ID]string)}
	tip := s.Tip()
	id, seq := tip.Commit, tip.Seq
	for seq > 0 {
		if err := ctx.Err(); err != nil {
			return v.Report, errs.Wrap(err, "")
		}
		c, err := v.commit(id)
		if err != nil {
			return v.Report, err
		}
		if c == nil {
			break // what lies behind cannot be reached
		}
		if c.Seq != seq {
			v.problem("commit %s says it is number %d; it is number %d", id, c.Seq, seq)
		}
		if rec, err := s.records.at(seq); err != nil || rec.Commit != id {
			v.problem("the commit index names another commit than %s at %d", id, seq)
		}
		id, seq = c.Parent, seq-1
		if progress != nil {
			progress(tip.Seq-seq, tip.Seq)
		}
	}
	if seq == 0 && !id.IsZero() {
		v.problem("the first commit has a parent, %s", id)
	}
	for _, t := range s.Tasks() {
		v.task(t)
	}
	return v.Report, nil
}

type verifier struct {
	Report
	ctx  context.Context
	s    *Store
	seen map[ID]bool
	sums map[ID]string // SHA-256 of blobs, as After-Hash has it
}

// object reads one object and checks its hash; ok is false after a problem.
func (v *verifier) object(id ID, want object.Kind) (data []byte, ok bool, err error) {
	kind, data, err := v.s.readObject(id, maxMeta)
	switch {
	case errs.Is(err, errs.NotFound):
		v.problem("%s %s is missing", want, id)
		return nil, false, nil
	case err != nil:
		v.problem("%s %s cannot be read", want, id)
		return nil, false, v.ctx.Err()
	case kind != want || object.Hash(kind, data) != id:
		v.problem("%s %s has other bytes", want, id)
		return nil, false, nil
	}
	v.Objects++
	return data, true, nil
}

func (v *verifier) commit(id ID) (*Commit, error) {
	data, ok, err := v.object(id, object.Commit)
	if !ok {
		return nil, err
	}
	c, err := parseCommit(id, data)
	if err != nil {
		v.problem("commit %s cannot be parsed", id)
		return nil, nil
	}
	v.Commits++
	if err := v.tree(c.Tree); err != nil {
		return nil, err
	}
	return c, v.afterHashes(c)
}

func (v *verifier) tree(id ID) error {
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
func (v *verifier) blob(id ID) error {
	r, size, err := v.s.OpenBlob(v.ctx, id)
	if err != nil {
		v.problem("blob %s is missing or cannot be read", id)
		return v.ctx.Err()
	}
	defer r.Close()
	sum, sha := newBlobHash(size), sha256.New()
	if _, err := io.Copy(io.MultiWriter(sum, sha), cancellable{v.ctx, r}); err != nil {
		v.problem("blob %s cannot be read whole", id)
		return v.ctx.Err()
	}
	var got ID
	sum.Sum(got[:0])
	if got != id {
		v.problem("blob %s has other bytes", id)
	}
	v.Objects++
	v.sums[id] = "sha256:" + hex.EncodeToString(sha.Sum(nil))
	return nil
}

func (v *verifier) afterHashes(c *Commit) error {
	snap := Snapshot{s: v.s, src: v.s, tree: c.Tree}
	for _, e := range c.Message.Entries {
		if e.AfterHash == "" || e.AfterHash == message.Purged {
			continue
		}
		at, ok, err := snap.Lookup(wspath.Path(e.Path))
		if err != nil {
			return nil // told already: its tree is missing
		}
		switch {
		case !ok:
			v.problem("commit %s (number %d) tells of %q, which its tree has not", c.ID, c.Seq, e.Path)
		case v.sums[at.ID] != "" && v.sums[at.ID] != e.AfterHash:
			v.problem("commit %s (number %d): the bytes of %q are not those of its After-Hash", c.ID, c.Seq, e.Path)
		}
		v.Hashes++
	}
	return nil
}

func (v *verifier) task(t Task) {
	for which, id := range map[string]ID{"base": t.Base, "head": t.Head} {
		c, err := v.s.ReadCommit(v.ctx, id)
		if err != nil {
			v.problem("task %s: its %s %s is missing", t.ID, which, id)
			continue
		}
		if rec, err := v.s.records.at(c.Seq); err != nil || rec.Commit != id {
			v.problem("task %s: its %s %s is not in the workspace's history", t.ID, which, id)
		}
	}
	if _, ok, _ := v.object(t.InfoTag, object.Tag); !ok {
		v.problem("task %s: its record is missing", t.ID)
	}
}
