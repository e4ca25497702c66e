package httpapi

import (
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"umbra/internal/errs"
)

// maxLimiters bounds what the server remembers of its callers.
const maxLimiters = 10_000

// limiter holds requests a minute to a number, in all or for each key. The
// whole minute's number may come at once.
type limiter struct {
	perMinute int

	mu   sync.Mutex
	keys map[string]*bucket
}

type bucket struct {
	*rate.Limiter
	last time.Time
}

func newLimiter(perMinute int) *limiter {
	return &limiter{perMinute: perMinute, keys: map[string]*bucket{}}
}

// allow takes one request of a key; wait is how long until one is free.
func (l *limiter) allow(key string, now time.Time) (wait time.Duration, ok bool) {
	if l.perMinute <= 0 {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.keys[key]
	if b == nil {
		if len(l.keys) >= maxLimiters {
			l.evict(now)
		}
		b = &bucket{Limiter: rate.NewLimiter(rate.Limit(l.perMinute)/60, l.perMinute)}
		l.keys[key] = b
	}
	b.last = now
	r := b.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait, false
	}
	return 0, true
}

// evict forgets whose minute is full again; where nearly all are at work, a
// tenth of them at random, so that a flood of addresses costs little each.
func (l *limiter) evict(now time.Time) {
	for key, b := range l.keys {
		if now.Sub(b.last) >= time.Minute {
			delete(l.keys, key)
		}
	}
	for key := range l.keys {
		if len(l.keys) <= maxLimiters*9/10 {
			return
		}
		delete(l.keys, key)
	}
}

// check is the answer to a request beyond the limit.
func (l *limiter) check(key string) error {
	wait, ok := l.allow(key, time.Now())
	if ok {
		return nil
	}
	seconds := max(1, int(math.Ceil(wait.Seconds())))
	return &Problem{Status: http.StatusTooManyRequests, Kind: errs.Unavailable, Code: "rate_limited", Detail: "Too many requests; try again later.",
		Header: http.Header{"Retry-After": {strconv.Itoa(seconds)}}}
}

// clientIP is the address of the connection, never what a header says of it.
func clientIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// RateLimit holds requests a minute to a number for each key, for a dialect
// that counts by something of its own. It may be used concurrently.
type RateLimit struct{ l *limiter }

// NewRateLimit makes one; 0 is off.
func NewRateLimit(perMinute int) *RateLimit { return &RateLimit{newLimiter(perMinute)} }

// Check counts one request, or gives the 429.
func (r *RateLimit) Check(key string) error { return r.l.check(key) }
