// Package luau runs scripts in real Luau: its interpreter, as WebAssembly,
// under wazero. A script gets a fresh state each time, a bound on its time,
// memory and output that nothing in it can escape, and reaches nothing but the
// functions that the caller gives it.
//
// The interpreter is embedded at build time (make embed, see embed/); without
// it the package builds, and running a script is an error that says so.
//
// How values cross: the package knows how this very build of the interpreter
// lays out strings and tables in its memory (layout.go), and reads them there;
// nothing is written but numbers into a table that only the prelude has, bytes
// into buffers that were made for them, and the memory that a script starts with.
// The prelude (prelude.luau) is the script's side of it.
//
// States begin with the memory that the prelude left once (snapshot.go), the next
// one is made while a script runs (ahead.go), and string.format is the host's
// (format.go): those make it fast.
//
// How it ends: each loop of the interpreter calls back once in some thousand
// rounds (wasmpatch). There the deadline is checked, and Go's scheduler gets
// its turn, so that endless loops neither hold the server nor each other. A
// script that is ended so is never resumed; its memory is given back whole.
package luau
