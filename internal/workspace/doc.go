// Package workspace is the write service: everything that changes a workspace
// goes through Workspace.Apply, and everything that a user changed on disk is
// recorded by Sync and by the look that Apply takes before it replaces anything.
//
// # One request
//
//  1. New bytes are prepared on the workspace's own disk (package content), before
//     any lock: a slow client delays no one, and a full disk shows here.
//  2. The paths are resolved through links and locked (pathlock), each with
//     everything under it, all at once. From here on the tip and the disk agree for
//     these paths, except for what a user does.
//  3. plan: the operations are played on a view of the disk. What the disk
//     holds and history does not is committed first, as an external change.
//  4. One commit (record), durable when it returns.
//  5. materialize: each step is an exchange, and what it displaced is compared. A
//     user's bytes are committed, ours are taken back and judged again; displaced
//     files are retired.
//  6. The commit is settled (progress): events up to it may be sent.
//
// # Invariants
//
//   - Nothing of the user's is overwritten or deleted before its bytes are in
//     history.
//   - A failed request leaves no net change, on disk or in history.
//   - The watermark of settled commits only grows, and every commit up to it is
//     on disk or taken back.
//   - What is kept in memory for each file is bounded (index), and freed when a
//     workspace is unloaded.
//
// A Workspace puts the packages below it together; each of them has the data that
// it works on.
package workspace
