// Package errs is the one error type that crosses layers.
//
// A Kind decides the HTTP status, in one table (httpapi/problem); nothing ever
// matches on texts. Detail is a sentence that a client may read: it names no
// host path and no Go error. Err is the cause, for logs only.
package errs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"syscall"
)

// Kind classifies an error by what the caller can do about it.
type Kind uint8

// The kinds. The zero value is an internal error.
const (
	Internal      Kind = iota // a bug or something unforeseen: 500
	Invalid                   // malformed request: 400
	BadPath                   // a path that is refused by its form: 400
	NotFound                  // 404
	Conflict                  // the state forbids it now: 409
	Precondition              // If-Match, If-None-Match: 412 (tasks), 409 (sessions)
	TooLarge                  // 413
	Unprocessable             // 422
	Forbidden                 // no right, read-only: 403
	NoSpace                   // 507
	Unavailable               // out of descriptors, I/O error, stopping: 503
	Gone                      // dropped or rewritten history: 410
	Canceled                  // the caller left
)

var kindNames = [...]string{"internal", "invalid", "bad_path", "not_found", "conflict", "precondition_failed",
	"too_large", "unprocessable", "forbidden", "insufficient_storage", "unavailable", "gone", "canceled"}

// String gives the kind's name, which is also the default code.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "internal"
}

// Error is an error with a kind.
type Error struct {
	Kind   Kind
	Code   string         // stable, lower_snake_case; empty means Kind.String()
	Detail string         // a sentence for the client
	Path   string         // workspace-relative path it is about, if any
	Fields map[string]any // more members for the JSON body ("conflicts", "unrecorded", "field")
	Err    error          // cause, never shown to a client
}

// Error gives the full text, for logs.
func (e *Error) Error() string {
	s := e.code()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Path != "" {
		s += fmt.Sprintf(" (%q)", e.Path)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) code() string {
	if e.Code != "" {
		return e.Code
	}
	return e.Kind.String()
}

// With returns a copy with one more field for the answer's body.
func (e *Error) With(key string, value any) *Error {
	c := *e
	c.Fields = make(map[string]any, len(e.Fields)+1)
	maps.Copy(c.Fields, e.Fields)
	c.Fields[key] = value
	return &c
}

// New makes an error of a kind with a stable code and a sentence for the client.
func New(kind Kind, code, detail string, args ...any) *Error {
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &Error{Kind: kind, Code: code, Detail: detail}
}

// BadCursor returns the error for an 'after' parameter that is not the next of a page.
func BadCursor() *Error {
	return New(Invalid, "invalid_parameter", "Invalid 'after' cursor; use next of the previous page.").With("field", "after")
}

// Wrap classifies a cause. An *Error in the chain is kept as it is; system
// errors get the kind that their errno means.
func Wrap(err error, path string) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	k, code, detail := classify(err)
	return &Error{Kind: k, Code: code, Detail: detail, Path: path, Err: err}
}

func classify(err error) (Kind, string, string) {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Canceled, "canceled", "The request was cancelled."
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return NoSpace, "insufficient_storage", "No space is left."
	case errors.Is(err, syscall.EROFS):
		return Forbidden, "read_only", "The file system is read-only."
	case errors.Is(err, fs.ErrPermission):
		return Forbidden, "permission_denied", "The server has no right to do that."
	case errors.Is(err, fs.ErrNotExist):
		return NotFound, "not_found", "Not found."
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return Unavailable, "out_of_descriptors", "The server is out of file descriptors."
	case errors.Is(err, syscall.EIO):
		return Unavailable, "io_error", "The disk reported an error."
	// The following occur where another process changes a path while it is used.
	case errors.Is(err, syscall.ENOTDIR):
		return Conflict, "not_a_directory", "A part of the path is a file."
	case errors.Is(err, syscall.EISDIR):
		return Conflict, "is_a_directory", "The path is a directory."
	case errors.Is(err, syscall.ENOTEMPTY): // is fs.ErrExist too
		return Conflict, "directory_not_empty", "The directory is not empty."
	case errors.Is(err, fs.ErrExist):
		return Conflict, "target_exists", "The target already exists."
	case errors.Is(err, syscall.ELOOP):
		return Conflict, "file_changing", "A link was put in the path while it was used."
	case notLink(err):
		return Conflict, "file_changing", "A link in the path was replaced while it was used."
	case errors.Is(err, syscall.EXDEV):
		return Conflict, "crosses_file_systems", "The path leads to another file system, or out of the workspace."
	case errors.Is(err, syscall.ENAMETOOLONG):
		return BadPath, "bad_path", "A name in the path is too long."
	}
	return Internal, "internal_error", "Something went wrong inside the server."
}

// notLink reports whether a path was read as a link and is none (readlink(2), EINVAL).
func notLink(err error) bool {
	at, ok := errors.AsType[*fs.PathError](err)
	return ok && strings.HasPrefix(at.Op, "readlink") && errors.Is(at.Err, syscall.EINVAL)
}

// KindOf gives the kind of the first *Error in the chain; system errors are
// classified, anything else is Internal.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	k, _, _ := classify(err)
	return k
}

// CodeOf gives the stable code of an error.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.code()
	}
	_, c, _ := classify(err)
	return c
}

// Is reports whether err is of a kind.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }
