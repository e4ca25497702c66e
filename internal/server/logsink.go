package server

import (
	"io"
	"sync"
	"time"
)

// maxLogBacklog is how much of the log waits for a reader that is slow.
const maxLogBacklog = 1 << 20 // bytes

// logSink is the way to standard error. A reader that stops reading (a full
// pipe) must not stop the server: lines wait for it, and beyond a bound they are
// dropped and counted. One goroutine writes, several lines at a time.
type logSink struct {
	w io.Writer

	mu      sync.Mutex
	more    sync.Cond // something waits, or the sink is closed
	waiting []byte
	dropped int
	closed  bool
	done    chan struct{}
}

// newLogSink starts the goroutine; Close ends it. lost is called with the number of
// lines that were dropped, once the reader reads again.
func newLogSink(w io.Writer, lost func(lines int)) *logSink {
	s := &logSink{w: w, done: make(chan struct{})}
	s.more.L = &s.mu
	go s.run(lost)
	return s
}

// Write takes one line; it never fails and never waits for the reader.
func (s *logSink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting)+len(line) > maxLogBacklog {
		s.dropped++
	} else {
		s.waiting = append(s.waiting, line...)
		s.more.Signal()
	}
	return len(line), nil
}

func (s *logSink) run(lost func(lines int)) {
	defer close(s.done)
	var batch []byte
	for {
		s.mu.Lock()
		for len(s.waiting) == 0 && !s.closed {
			s.more.Wait()
		}
		if len(s.waiting) == 0 {
			s.mu.Unlock()
			return
		}
		batch, s.waiting = s.waiting, batch[:0]
		dropped := s.dropped
		s.dropped = 0
		s.mu.Unlock()
		_, _ = s.w.Write(batch) // there is nowhere to report that the log fails
		if dropped > 0 {
			lost(dropped)
		}
	}
}

// Close writes what waits, for as long as patience lasts.
func (s *logSink) Close(patience time.Duration) {
	s.mu.Lock()
	s.closed = true
	s.more.Signal()
	s.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	}
}
