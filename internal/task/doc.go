// Package task is what a task is, above the write service: its record (goal,
// status, metadata) kept as the info tag in the workspace's repository, its
// status machine, the attribution of changes to it, its changelog and its events.
// It opens its two folders outside of the project, which are package areas.
//
// Invariants:
//   - Git is the only truth. The cache (task id to workspace, newest first)
//     only saves opening every repository; Rebuild makes it again from them.
//     It is written a moment after them; which of them may know more is marked
//     before, so that a crash loses nothing (index_late.go).
//   - A task id is used once: one that was deleted stays taken.
//   - An ended task never becomes executing again.
package task
