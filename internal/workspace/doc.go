// Package workspace is the write service: everything that changes a workspace
// goes through Workspace.Apply, and everything that a person changed behind the
// server's back comes in through Sync and through the look that Apply takes
// before it replaces anything.
//
// # One request
//
//  1. New bytes are prepared on the workspace's own disk (rootfs), before any
//     lock: a slow client holds nobody up, and a full disk shows here.
//  2. The paths are resolved through links and locked, each with everything
//     under it, all at once. From here on the tip and the disk agree for these
//     paths, save for what a person does.
//  3. plan: the operations are played on a view of the disk. What the disk
//     holds and history does not is committed first, as an external change.
//  4. One commit, durable when it returns.
//  5. materialise: each step is an exchange, and what came out is looked at. A
//     person's bytes are committed, ours are taken back and judged again.
//  6. The commit is settled: events up to it may be told.
//
// # Invariants
//
//   - Nothing of the user's is overwritten or deleted before its bytes are in
//     history.
//   - A failed request leaves no net change, on disk or in history.
//   - The watermark of settled commits only grows, and every commit up to it is
//     on disk or taken back.
//   - What is kept in memory for each file is bounded (index), and goes when a
//     workspace is put away.
//
// # What people do
//
// A Watcher marks paths (watch.go); they are compared with history, and so is
// the whole folder at a start, where events were lost and now and then
// (sync_find.go). What differs is read without locks, looked at again under
// them and recorded in one commit (sync_record.go). Our own writes are known
// by their content. What stat data has proven is kept from one run to the next
// (statcache.go). A checkout's baseline copies git's own objects
// (baseline_git.go).
//
// The package imports gitstore and its subpackages, internal/{rootfs,scan,
// ignore,state,vfs,wspath,errs}; never HTTP, configuration or fsnotify.
package workspace
