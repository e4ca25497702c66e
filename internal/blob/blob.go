// Package blob stores objects by key in an object store: S3 and what speaks its
// protocol, or memory in tests. A cluster keeps its packs there.
//
// Invariants: an object is complete or does not exist. What Put returned nil for
// is durable as far as the store promises, and visible to every later call of
// every client. No error, log line or metric contains a credential.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
)

// Store is an object store. All methods may be called concurrently. Their errors
// are of type *Error, also when the context ends (then Err is the context's).
type Store interface {
	// Put stores size bytes of body under key, replacing an object of that key. It
	// may read body several times and concurrently.
	Put(ctx context.Context, key string, body io.ReaderAt, size int64) error
	// Get returns an object's content and size. A read returns the whole object
	// before io.EOF, or an error. The caller must close the reader; ctx must last
	// until then.
	Get(ctx context.Context, key string) (io.ReadCloser, int64, error)
	// GetRange is Get for n > 0 bytes from the offset on. An object that ends earlier
	// is an error of kind TooShort.
	GetRange(ctx context.Context, key string, offset, n int64) (io.ReadCloser, error)
	// Delete removes an object; one that does not exist is no error.
	Delete(ctx context.Context, key string) error
	// List yields the objects whose key begins with prefix and is above after, in
	// bytewise order of their keys. It ends after the first error.
	List(ctx context.Context, prefix, after string) iter.Seq2[Object, error]
}

// Object describes a stored object.
type Object struct {
	Key      string
	Size     int64
	Modified time.Time // by the store's clock
}

// Kind classifies an error by what a caller can do about it.
type Kind uint8

// The kinds. Unreachable, the zero value, is everything that may succeed later.
const (
	Unreachable Kind = iota // no answer, or the store is overloaded or broken
	NotFound                // the object does not exist
	Credentials             // missing, unknown or expired
	Refused                 // the store answered and will not do it: rights, no such bucket, bad request
	TooShort                // a range beyond the object's end
	Canceled                // the context ended
)

// String returns the kind's name, as in logs.
func (k Kind) String() string {
	return [...]string{"unreachable", "not found", "credentials", "refused", "too short", "canceled"}[k]
}

// Error is an operation that failed.
type Error struct {
	Op   string // put, get, range, delete, list
	Key  string // or the prefix of a list
	Kind Kind
	Err  error // the cause
}

// Error names operation, key, kind and cause.
func (e *Error) Error() string {
	return fmt.Sprintf("blob: %s %s: %s: %v", e.Op, e.Key, e.Kind, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether err is an *Error of the kind.
func Is(err error, kind Kind) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == kind
}

// fail makes the *Error of an operation. The end of the context takes precedence
// over the kind; nil stays nil.
func fail(ctx context.Context, op, key string, kind Kind, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if cause := context.Cause(ctx); cause != nil {
		kind, err = Canceled, cause
	}
	return &Error{Op: op, Key: key, Kind: kind, Err: err}
}

// maxKey is S3's limit of 1,024 bytes less room for a store's prefix.
const maxKey = 512

// checkKey returns an error for what not every store can hold as a key. Keys are
// names of letters, digits and "._-~", separated by slashes.
func checkKey(key string) error {
	if key == "" || len(key) > maxKey {
		return fmt.Errorf("a key has 1 to %d bytes", maxKey)
	}
	for name := range strings.SplitSeq(key, "/") {
		if name == "" || name == "." || name == ".." {
			return errors.New("a key has no empty name, \".\" or \"..\"")
		}
	}
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("._-~/", c) >= 0:
		default:
			return fmt.Errorf("%q does not belong in a key", c)
		}
	}
	return nil
}

// checkRange is checkKey for GetRange.
func checkRange(key string, offset, n int64) error {
	if offset < 0 || n <= 0 || offset+n < offset {
		return fmt.Errorf("no range: %d bytes at %d", n, offset)
	}
	return checkKey(key)
}

// errEnds is the cause of TooShort.
var errEnds = errors.New("the object ends before the range does")
