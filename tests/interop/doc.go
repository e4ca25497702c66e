// Package interop holds the histories that gitstore writes against readers
// that are none of ours: stock git, go-git, libgit2 and isomorphic-git, and
// against people who run git's own maintenance beside the writers.
//
// All of it is in the tests. They make repositories through gitstore alone,
// without the server, and compare what a reader sees with what the store
// itself tells, object by object. A reader that the machine lacks leaves its
// test out, but never where CI=true; tests/tools/setup installs them. Where
// UMBRA_SOAK is set the long forms run.
package interop
