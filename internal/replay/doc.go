// Package replay applies recorded commits one at a time, in order, and proves
// or merges each: to find whether a history is what its messages say, and which
// step broke something (Run), or to write it as ordinary commits into the user's
// own repository (Export). It needs git, to fetch and to write a branch, and no
// server; it never writes to the history's source, and only the new branch to the
// user's repository.
package replay
