// Package mount is a model's file system as a table: prefixes, what may be done
// under each, and which of them a path leads to.
//
// It is pure: no I/O, no state, nothing of the stores behind the prefixes. What
// it refuses it says in the words that the model is to read (Message).
//
// Invariants: every path that Clean returned is absolute, without empty, "."
// and ".." components, backslashes, drives and NUL; a path is under a prefix by
// whole segments only.
package mount

// Message is an error whose text is written for the model. It names logical
// paths only.
type Message string

// Error gives the text.
func (m Message) Error() string { return string(m) }
