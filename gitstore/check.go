package gitstore

import (
	"context"
	"errors"

	"umbra/gitstore/purge"
	"umbra/gitstore/repair"
	"umbra/gitstore/repo"
	"umbra/gitstore/verify"
)

// Verify reads every object that the history reaches and compares: hashes,
// that nothing is missing, that sequence numbers and parents are unbroken,
// every After-Hash, the tasks' bounds, the packs' checksums, the refs on disk.
// It changes nothing; writers go on, and so does retention: what it drops
// meanwhile is not missed. After a purge meanwhile all is checked again.
// progress, if not nil, is called with the number of commits done, and of all.
func (s *Store) Verify(ctx context.Context, progress func(done, all uint64)) (Report, error) {
	return verify.Run(ctx, s.r, progress)
}

// Report is what Verify found.
type Report = verify.Report

// Repair puts right what can be from what is left of a workspace's folder, and
// opens and closes the store once: indexes of packs, a lost .keep, what can be
// read of a damaged pack, objects that are elsewhere (in a user's pack,
// loose, in a journal put aside), HEAD, refs, their note, the commit index.
// What it replaces is kept in damaged/. No other process may use the folder
// meanwhile; opt.FS is closed when it returns.
//
// After an error the repair is not finished; Repaired has what was done so far.
func Repair(ctx context.Context, opt Options) (Repaired, error) {
	opt.setDefaults()
	opt.Foreground = true
	h := repo.New(opt.ofRepo())
	s := &Store{History: h.History, r: h, opt: opt}
	s.pub.s, s.purger = s, purge.NewPurger(h, purgeHost{s})
	out, err := repair.Run(ctx, h, s.purger.Resume)
	if err != nil {
		return *out, errors.Join(err, opt.FS.Close())
	}
	again, err := Open(ctx, opt)
	if err != nil {
		out.Not("The store cannot be opened: %v.", err)
		return *out, nil
	}
	_, err = again.r.Refs.EnsureLinks(ctx)
	for _, w := range again.Warnings() {
		out.Did("%s.", w)
	}
	return *out, errors.Join(err, again.Close(ctx))
}

// Repaired reports what Repair did and what it could not.
type Repaired = repair.Repaired
