package remote

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"umbra/gitstore/sink"
)

// Copy keeps a copy, in a sink's log, of a history that is in a store's folder. Groups
// are appended there after they were accepted, off the way of the writers. What its queue
// does not have (large files, a baseline, what was accepted while the sink did not
// answer, what a purge rewrote) goes by a seal.
//
// The copy is always a prefix of the history, or, after a purge, of the one before it.
//
// A nil Copy does nothing. Add is the committer's; Run and Last are called one after the
// other; other methods may be called from any goroutine.
type Copy struct {
	CopyOptions
	wake chan struct{} // one place
	log  *Log          // Run's, and Last's after it; nil: there is none now

	mu     sync.Mutex
	on     bool // groups are collected
	last   uint64
	queue  []copied
	bytes  int
	lost   uint64 // the last group that the queue should have and has not
	broken bool   // the log has another history: nothing may be appended to it
	breaks uint64 // how often it was broken
	sealed uint64 // the last group that the manifest is known to include
	// whole is closed when the log has this history again; nil: nothing waits for it.
	whole chan struct{}
}

// CopyOptions are what a copy needs of its store.
type CopyOptions struct {
	// Open claims the log. It is called again when that ended. ErrNoCopy ends the copy.
	Open func(ctx context.Context) (sink.Sink, error)
	// Begun is called with the packs that the log names, by Base, after Open.
	Begun func(held map[string]sink.Pack)
	// Seal makes the log's manifest what the store has, and returns the last group, as
	// Add numbered them, that it includes.
	Seal  func(ctx context.Context, log *Log) (through uint64, err error)
	Limit int64 // of bytes that are not sealed
	Log   *slog.Logger
}

const (
	// copyAfter is how long groups are collected before they are appended together.
	copyAfter = 300 * time.Millisecond
	// maxCopyQueue bounds the bytes that wait to be appended.
	maxCopyQueue = 4 << 20
	// maxCopyGroup is at how many bytes groups are not put together any more.
	maxCopyGroup = 1 << 20
	// copyRetry and maxCopyRetry bound the time between two attempts.
	copyRetry    = 200 * time.Millisecond
	maxCopyRetry = 10 * time.Second
	// lastCopy bounds what Last does.
	lastCopy = 2 * time.Second
)

// ErrNoCopy is returned by CopyOptions.Open for a history of which no copy is kept any
// more.
var ErrNoCopy = errors.New("gitstore: no copy of the history is kept")

// copied is a group that was accepted. Groups are numbered from 1 as they are.
type copied struct {
	n    uint64
	seq  uint64
	data []byte
}

// NewCopy makes one; nil where Open is nil.
func NewCopy(o CopyOptions) *Copy {
	if o.Open == nil {
		return nil
	}
	return &Copy{CopyOptions: o, wake: make(chan struct{}, 1)}
}

// Add takes a group that was accepted and leads to commit seq, and returns its number;
// whole is false where it needs more than its data. The caller changes data no more.
func (c *Copy) Add(seq uint64, data []byte, whole bool) (n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	if !c.on {
		return c.last
	}
	if c.bytes += len(data); !whole || c.bytes > maxCopyQueue {
		c.queue, c.bytes, c.lost = nil, 0, c.last
	} else {
		c.queue = append(c.queue, copied{c.last, seq, data})
	}
	if len(c.queue) <= 1 {
		c.kick()
	}
	return c.last
}

func (c *Copy) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// BreakOff says that history is rewritten. The committer rests.
func (c *Copy) BreakOff() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
	c.breaks++
	c.kick()
}

// Whole waits until the log has no other history than the store, as it has after a purge.
func (c *Copy) Whole(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	if !c.broken {
		c.mu.Unlock()
		return nil
	}
	if c.whole == nil {
		c.whole = make(chan struct{})
	}
	whole := c.whole
	c.mu.Unlock()
	select {
	case <-whole:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// collect starts or ends the collecting.
func (c *Copy) collect(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on, c.queue, c.bytes = on, nil, 0
	c.broken = true // until the first seal it is not known what the log has
}

// drop removes groups up to a number from the queue; mu is held.
func (c *Copy) drop(through uint64) {
	for len(c.queue) > 0 && c.queue[0].n <= through {
		c.bytes -= len(c.queue[0].data)
		c.queue[0].data = nil
		c.queue = c.queue[1:]
	}
}

// next returns what is to be appended next, with the number of its last group: nil for
// nothing; seal where a seal has to be first.
func (c *Copy) next() (g *sink.Group, through uint64, seal bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken || c.lost > c.sealed {
		return nil, 0, true
	}
	for i := range c.queue {
		if g == nil {
			g = &sink.Group{}
		} else if len(g.Data)+len(c.queue[i].data) > maxCopyGroup {
			break
		}
		g.Data = append(g.Data, c.queue[i].data...)
		g.Seq, through = c.queue[i].seq, c.queue[i].n
	}
	return g, through, false
}

// seal makes the copy what the store has now.
func (c *Copy) seal(ctx context.Context, log *Log) error {
	c.mu.Lock()
	breaks := c.breaks
	c.mu.Unlock()
	through, err := c.Seal(ctx, log)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = max(c.sealed, through)
	c.drop(through)
	if c.breaks != breaks { // perhaps after what was sealed
		return nil
	}
	if c.broken = false; c.whole != nil {
		close(c.whole)
		c.whole = nil
	}
	return nil
}

// Run keeps the copy until ctx ends.
func (c *Copy) Run(ctx context.Context) {
	for wait := copyRetry; ctx.Err() == nil; wait = min(2*wait, maxCopyRetry) {
		began := time.Now()
		err := c.once(ctx)
		if ctx.Err() != nil || errors.Is(err, ErrNoCopy) {
			return
		}
		if time.Since(began) > maxCopyRetry {
			wait = copyRetry
		}
		c.Log.Info("the copy of the history in the cluster is begun again", "error", err)
		pause(ctx, wait, nil)
	}
}

// pause waits for a time, for wake, or until ctx ends. It reports whether it was woken.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
		return true
	case <-ctx.Done():
	}
	return false
}

// once keeps the copy in one log until ctx ends, or the log takes no more.
func (c *Copy) once(ctx context.Context) error {
	to, err := c.Open(ctx)
	if err != nil {
		return err
	}
	log, tail, err := Open(ctx, to, c.Limit)
	if err != nil {
		return err
	}
	c.collect(true)
	c.Begun(PacksOf(tail))
	c.log = log
	var notBefore time.Time // of the next seal, after one that failed
	retry := time.Duration(0)
	for log.Cause() == nil && ctx.Err() == nil {
		g, through, must := c.next()
		must = must || log.Unsettled()
		due := must || log.sealIn() <= 0
		wait := time.Duration(0)
		switch {
		case due && !time.Now().Before(notBefore):
			if err = c.seal(ctx, log); err != nil {
				retry = min(max(2*retry, copyRetry), maxCopyRetry)
				notBefore = time.Now().Add(retry)
			} else {
				retry = 0
			}
		case must:
			err, wait = nil, time.Until(notBefore)
		case g != nil:
			wait = copyAfter
			if err = log.Append(g); err != nil {
				retry = min(max(2*retry, copyRetry), maxCopyRetry)
				wait = retry
				break
			}
			c.mu.Lock()
			c.drop(through)
			c.mu.Unlock()
		default:
			err, wait = nil, SealAfter
			if due {
				wait = time.Until(notBefore)
			}
			if pause(ctx, wait, c.wake) {
				wait = copyAfter // what comes next is appended with it
			} else {
				wait = 0
			}
		}
		if err != nil && ctx.Err() == nil {
			c.Log.Warn("the copy of the history in the cluster is behind; it is retried", "error", err)
		}
		if wait > 0 {
			pause(ctx, wait, nil)
		}
	}
	if log.Cause() != nil { // else Last does the rest
		c.log = nil
		c.collect(false)
		log.Close()
	}
	return log.Cause()
}

// Last gives the copy what is left when the store is closed. Where that is not possible
// the next start does it.
func (c *Copy) Last(ctx context.Context) {
	if c == nil || c.log == nil {
		return
	}
	defer c.log.Close()
	ctx, cancel := context.WithTimeout(ctx, lastCopy)
	defer cancel()
	if err := c.seal(ctx, c.log); err != nil {
		c.Log.Warn("the copy of the history in the cluster is behind; the next start gives it the rest", "error", err)
	}
}
