package remote

import (
	"context"
	"log/slog"
	"time"
)

// Retries of a seal that failed.
const (
	sealRetry    = time.Second
	maxSealRetry = 30 * time.Second
)

// restAfter is how long after an open the rest of the packs is fetched: first requests are not
// to share the network and processors with it.
const restAfter = time.Second

// Run calls seal when it is due, until ctx ends or the store stops.
func (l *Log) Run(ctx context.Context, log *slog.Logger, seal func(context.Context) error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	retry := time.Duration(0)
	for {
		wait, due := l.sealIn(), l.due
		if retry > 0 {
			wait, due = retry, nil
		}
		if wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return
			case <-l.ended:
				return
			case <-due:
				continue
			case <-timer.C:
				if retry == 0 && l.sealIn() > 0 {
					continue
				}
			}
		}
		err := seal(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			retry = 0
		} else {
			retry = min(max(2*retry, sealRetry), maxSealRetry)
			log.Warn("the log was not sealed; it is retried", "error", err)
		}
	}
}

// FetchRest brings the packs to the local disk that are not there, and calls then,
// until both have succeeded or ctx ends.
func (l *Log) FetchRest(ctx context.Context, log *slog.Logger, then func(context.Context) error) {
	for wait, next := restAfter, sealRetry; ; wait, next = next, min(2*next, maxSealRetry) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err := l.Whole(ctx)
		if err == nil {
			err = then(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		log.Warn("packs are not fetched yet; it is retried", "error", err)
	}
}

// sealIn returns how long the next seal has time.
func (l *Log) sealIn() time.Duration {
	bytes, since := l.Unsealed()
	switch {
	case bytes >= SealBytes:
		return 0
	case since.IsZero():
		return SealAfter
	}
	return time.Until(since.Add(SealAfter))
}
