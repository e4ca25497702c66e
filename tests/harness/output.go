package harness

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Output is what a process writes, to be waited for.
type Output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	more    chan struct{} // closed and made anew at each write
	writers int           // processes that may still write
}

// NewOutput makes an empty one, of one process.
func NewOutput() *Output { return &Output{more: make(chan struct{}), writers: 1} }

// Write adds to it.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	close(o.more)
	o.more = make(chan struct{})
	return len(p), nil
}

// close says that a process has ended.
func (o *Output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writers--
	close(o.more)
	o.more = make(chan struct{})
}

// String is all that was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Tail is the end of it: so many lines, each with its end. A Go program's last
// words, a panic or the stacks that it was asked for, are kept whole.
func (o *Output) Tail(lines int) string {
	text := o.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	from := len(text)
	for range lines + 1 {
		if from = strings.LastIndexByte(text[:max(from, 0)], '\n'); from < 0 {
			return text
		}
	}
	for _, words := range []string{"panic: ", "fatal error: ", "SIGQUIT: "} {
		if strings.HasPrefix(text, words) {
			from = -1
		} else if at := strings.Index(text, "\n"+words); at >= 0 {
			from = min(from, at)
		}
	}
	if from < 0 {
		return text
	}
	return fmt.Sprintf("(%d lines before)\n%s", strings.Count(text[:from+1], "\n"), text[from+1:])
}

// Await waits until what was written is as wanted; not for ever, and not beyond
// the process's end.
func (o *Output) Await(wanted func(text string) bool, patience time.Duration) (text string, ok bool) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		o.mu.Lock()
		text, more, closed := o.text.String(), o.more, o.writers <= 0
		o.mu.Unlock()
		if wanted(text) {
			return text, true
		}
		if closed {
			return text, false
		}
		select {
		case <-more:
		case <-timeout.C:
			return text, false
		}
	}
}
