// Package session is what a session is: a client's handle on a workspace, with
// a task that its changes belong to. Its records are in the state database;
// files and history are internal/workspace's and internal/task's.
//
// Invariants:
//   - A session that was answered survives a restart, and ends when it is
//     deleted, when it was not used for the idle time, or with its workspace.
//   - A task that a session made for itself is completed when the session ends,
//     also if the server was killed in between; one that was given is not
//     touched.
package session
