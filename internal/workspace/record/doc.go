// Package record brings changes into a workspace's history: the entries of a
// change set and how a commit's message lists them, whose a change is that was
// found on disk, what the policy says of it, and the commits that take others back.
//
// Invariants: entries are numbered in the order in which a commit's message lists
// them; what history did not track belongs to no task. The caller has locked the
// paths, and settles the commits once the disk agrees with them.
package record
