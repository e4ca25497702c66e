// Package testlog has the log of a test: goroutines of what is tested write to it, and
// the test reads it meanwhile.
package testlog

import (
	"bytes"
	"sync"
)

// Buffer is a log in memory. Its zero value is empty; it is safe for concurrent use.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all that was written.
func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
