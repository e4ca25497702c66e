package gitstore

import (
	"context"
	"errors"

	"umbra/gitstore/packset"
	"umbra/gitstore/purge"
	"umbra/gitstore/refs"
	"umbra/gitstore/sink"
)

// What a purge is, from gitstore/purge.
type (
	Purge        = purge.Purge
	PurgeOptions = purge.Options
	Purged       = purge.Purged
	Holder       = purge.Holder
)

// ErrHeld is answered where people's own leads to what goes.
func ErrHeld(list []Holder) error { return purge.ErrHeld(list) }

// BeginPurge rewrites the history of now next to the writers as far as it goes.
// errs.NotFound "blob_not_found" where no commit has one of the blobs.
func (s *Store) BeginPurge(ctx context.Context, opt PurgeOptions) (*Purge, error) {
	return s.purger.Begin(ctx, opt)
}

// purgeHost is the store as a purge needs it.
type purgeHost struct{ s *Store }

func (h purgeHost) Pause(ctx context.Context) (resume func(), err error) { return h.s.pause(ctx) }

func (h purgeHost) Publish(ctx context.Context) ([]refs.Failed, error) {
	return h.s.pub.publishLocked(ctx)
}

func (h purgeHost) Project(ctx context.Context) []refs.Failed { return h.s.pub.project(ctx) }

func (h purgeHost) Retry() { h.s.pub.retry() }

func (h purgeHost) Report(f []refs.Foreign) { h.s.reportForeign(f) }

func (h purgeHost) Salvage() error {
	h.s.r.Committing.Lock()
	defer h.s.r.Committing.Unlock()
	return h.s.salvageOpen()
}

func (h purgeHost) Unpublished() bool {
	l := &h.s.logs
	return l.open != nil && !l.open.Empty() || len(l.closing) > 0
}

func (h purgeHost) ResumeCut(ctx context.Context) error { return h.s.resumeCut(ctx) }

func (h purgeHost) SwapPurged(ctx context.Context, used []*packset.File, values map[string]ID, newMap string) error {
	s := h.s
	m := &sink.Manifest{Base: s.pub.pos, Seq: s.pub.noted}
	err := s.r.SwapTo(ctx, s.r.Held, m, used, values, newMap, true)
	if err != nil && !errors.Is(err, sink.ErrRefused) {
		s.r.Held.Stop(err) // it may have been done: the next owner sees
	}
	return err
}

func (h purgeHost) BreakOffCopy() { h.s.copy.BreakOff() }

func (h purgeHost) Stop() {
	h.s.queue.mu.Lock()
	defer h.s.queue.mu.Unlock()
	h.s.queue.stopped = true
}
