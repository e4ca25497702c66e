// Package client speaks the HTTP API of a server: one that runs at an address,
// or one in this very process, over a connection in memory (Pipe). Both look
// alike to who calls.
//
// It knows the wire forms of contracts/tasks.md by itself, as any client would.
//
// Invariants: a secret goes only to the address that it was given for; an
// answer that is no success is an *Error.
package client
