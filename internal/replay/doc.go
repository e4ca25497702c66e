// Package replay applies a task's recorded commits one at a time, in order,
// and proves or merges each (contracts/git.md, Replay). It needs git, to fetch
// and to write a branch, and no server; where the history comes from is never
// written to.
//
// It may import gitstore's subpackages, gitcmd, history's nothing and vfs.
package replay
