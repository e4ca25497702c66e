// Package plan plays the operations of a request on a view of the disk, and says
// what they come to: what has to be recorded first, the edits of the tree, the
// steps on disk, and the entries. Making a plan changes nothing.
//
// The view is the disk with what the operations before did on top of it. Every path
// that it acts on is locked; NeedLocks names those that are not yet.
package plan
