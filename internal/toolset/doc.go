// Package toolset is what an agent is given: a table of mounts, each on a
// workspace with a task that its changes belong to, and the tools that follow.
// It carries the tools' calls out and says in words that a model can act on what
// went wrong.
//
// The parts that need no I/O are packages of their own: mount (table, router,
// guard, map), tool (definitions, schemas, formats), glob. This one imports
// internal/{errs,history,revert,state,task,workspace,wspath}, gitstore with its
// subpackages, and nothing of HTTP.
//
// Invariants:
//   - A toolset that was answered survives a restart. A task that one made for
//     itself is completed when no mount of it needs it any more, also if the
//     server was killed in between; one that was given is not touched.
//   - What a model sees names logical paths only.
//   - Under WRITE_ONLY nothing of a file's content comes back.
package toolset
