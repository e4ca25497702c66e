// Package cluster lets several servers, called nodes, share their workspaces.
// PostgreSQL holds the log of each workspace, who owns it, and records; an
// object store holds its packs.
//
// Terms. A node is one server; a life is one run of its process, and has a
// random number. A life has a lease while its beats are answered. A workspace
// is owned by one life at a time, under an epoch, which each claim increases:
// the fencing token. The log of a workspace is a sequence of groups at dense
// positions; a seal moves the oldest into packs and removes their rows.
//
// Invariants, and what holds each:
//
//   - A position has one group for ever: the primary key, and the epoch, since
//     the key forgets rows that were removed.
//   - Acknowledged is replicated: commits are synchronous, a notice counts as
//     an unknown outcome, and an unknown outcome is resolved by a statement that
//     writes, so that it waits for the standby as well.
//   - A former owner changes nothing: every statement that writes for it names
//     its epoch.
//   - A former owner answers no read: the lease is compared after the read, and
//     no beat revives a life that was declared dead.
//   - A claim sees all that was acknowledged: it waits for the appends in
//     flight, then takes new snapshots.
//
// No statement that writes is ever canceled: PostgreSQL commits a canceled
// commit locally, without the standby. Patience is counted outside of them.
//
// This package and engine, the connections, alone import pgx.
package cluster
