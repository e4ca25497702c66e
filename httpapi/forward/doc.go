// Package forward lets any node of a cluster take any request: one about a
// workspace that another node owns is sent to it, whole.
//
// # Invariants
//
//   - A request that was forwarded is not forwarded again: the receiver answers
//     421, and the forwarder looks for the owner again.
//   - A write is sent twice only if its first sending certainly did nothing, or if
//     it has an Idempotency-Key and its body is kept.
//   - What another node says of a caller counts under the cluster's signature
//     alone, for one run of this program, once.
//   - An answer that this node has read from a workspace is sent only after the
//     lease was found held, or it says how stale it may be.
package forward
