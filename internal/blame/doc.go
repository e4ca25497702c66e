// Package blame finds the commit that wrote each line of a file.
//
// It follows a file backward through the recorded operations (renames as they
// were recorded, never by likeness) and then carries the lines forward from
// version to version. A version's lines are a list of segments, so that a next
// write costs its own difference only. Lines that a revert brought back keep
// the commit that first wrote them.
//
// Without renames and reverts the result equals that of `git blame`
// (git-blame(1)) on the shadow ref.
package blame
