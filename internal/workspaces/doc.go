// Package workspaces knows the workspaces of a data directory: which there are,
// which directory each is bound to, and which are open. A Manager opens a
// workspace for its first user and unloads it when it was idle for a while.
//
// # Invariants
//
//   - A workspace is opened once, no matter how many callers open it concurrently; a
//     failed attempt leaves nothing open.
//   - No workspace is in another one, and none is the data directory, in it or
//     around it, through links and bind mounts too.
//   - A record exists before the first byte of a workspace, and its baseline is
//     whole before it is listed: a crash leaves what the next start can find.
//   - A directory is the workspace's by its inode and birth time, not by its path.
//   - A workspace that forks continue stays open while one of them is, and is not
//     forgotten.
package workspaces
