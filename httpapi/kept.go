package httpapi

import (
	"crypto/sha256"
	"encoding/json"

	"github.com/gin-gonic/gin"
)

// maxKept is how much of a body is kept for a second reading, in bytes.
const maxKept = 1 << 20

// kept is what was read of a body, so that the request can be handled again, or
// sent to another node. It is used by one goroutine at a time.
type kept struct {
	bytes []byte
	at    int  // where a second reading is
	over  bool // the body is longer than maxKept
}

// again reads from what was kept.
func (k *kept) again(p []byte) int {
	if k == nil || k.at == len(k.bytes) {
		return 0
	}
	n := copy(p, k.bytes[k.at:])
	k.at += n
	return n
}

// add keeps what was just read.
func (k *kept) add(p []byte) {
	switch {
	case k == nil || k.over:
	case len(k.bytes)+len(p) > maxKept:
		k.over, k.bytes, k.at = true, nil, 0
	default:
		k.bytes = append(k.bytes, p...)
		k.at = len(k.bytes)
	}
}

// rewind lets the body be read again from its beginning, and reports whether that
// is possible. A body that was not read yet is at its beginning.
func (b *bodyReader) rewind() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause != nil || b.keep == nil || b.keep.over {
		return b.n == 0 && b.cause == nil
	}
	b.keep.at = 0
	if b.hash != nil {
		b.hash = sha256.New()
	}
	return true
}

// PeekJSON decodes some members of the request's JSON body and leaves it to be read
// again. It reports false for a body that is no JSON, is too large for that, or
// where there is no cluster. It checks nothing: the handler does.
func PeekJSON(c *gin.Context, dst any) bool {
	f := factsOf(c)
	if f.body == nil || f.body.keep == nil || c.Request.ContentLength > maxKept {
		return false
	}
	data, err := ReadBody(c)
	return f.body.rewind() && err == nil && json.Unmarshal(data, dst) == nil
}
