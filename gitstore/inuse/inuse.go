// Package inuse finds out whether other processes are at work in a directory. It imports
// internal/vfs.
package inuse

import "errors"

// ErrUndecided is Repository's where processes begin all the time: one that it did not
// see may be at work by now.
var ErrUndecided = errors.New("processes begin all the time")
