// Package blame tells for each line of a file which commit brought it.
//
// A file's versions are followed back through history by the recorded
// operations, a rename to where the file was, and played forward: what a version
// has in common with the one before keeps its owners, by the comparison that git
// itself makes, so that the answer is that of git-blame(1) where nothing was
// renamed or reverted. Lines that a revert brought back belong to the commit that
// first wrote them.
//
// Which commits touched a path is read once and kept in memory, and so are the
// last files asked for: after another write an answer costs that write's
// comparison.
package blame
