// Package replay applies recorded commits one at a time, in order, and proves
// or merges each (contracts/git.md, Replay): to say whether a history is what
// it tells, and which step broke something (Run), or to write it as ordinary
// commits into the user's own repository (Export). It needs git, to fetch and
// to write a branch, and no server; where the history comes from is never
// written to, and of the user's repository nothing but the new branch.
//
// It may import gitstore's subpackages, gitcmd and vfs.
package replay
