// Package backup copies a data directory while its server runs, and restores
// such a copy.
//
// A backup is a directory:
//
//	umbra-backup   what it is: "umbra backup 1"
//	manifest       what the last complete backup holds; the last thing written
//	partial        what a backup that is under way, or was cut off, has copied
//	objects/xx/…   pieces of files by the SHA-256 of their bytes
//
// # Order
//
// The records (state.db) first, history after: so whatever the records name is
// in the history that is copied later; what history has more than the records, a
// start finds there. Of a workspace one moment is taken (gitstore.Freeze): ref log,
// refs and journals, and the names of the packs that hold the rest. Packs never
// change; one that is gone by the time it is read was merged into another, and a
// new moment is taken.
//
// # Invariants
//
//   - A piece has its name only when its bytes are durable, and a manifest only
//     when all pieces that it names are: the current manifest can be restored
//     whenever a backup is interrupted.
//   - Nothing that the manifest names is removed before a newer one is durable.
//   - Data that can be made again is left out: caches, the commit index, stat
//     data, checkpoints.
//   - A restore gives all or nothing: a data directory gets its name only when
//     every byte was compared with the manifest.
package backup
