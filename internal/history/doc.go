// Package history reads what a task did out of the workspace's commits: its
// changelog entries, which of them are in effect, how they hang together as
// files followed through renames, and what that comes to on the whole.
//
// It reads only; package revert acts on what it finds.
//
// # Words
//
//   - An entry is undone if an entry that is in effect names it in its Reverts.
//     Later entries decide first, so the revert of a revert brings back what the
//     first one undid. An entry that was undone twice has to be brought back twice.
//   - A chain is one file as the task knew it, under all the names that the
//     task gave it. A run is a stretch of a chain in which every entry found
//     what the one before had left: no other change lies within. A chain
//     of more than one run is mixed.
package history
