package cluster

// Mutants are parts of the protocol that a program with the build tag mutants
// leaves out, one at a time. The fault suite must fail with each of them.
var Mutants = []string{noEpoch, positionOnly, leaseFirst, deleteNow, ackUnknown, cancelAppend, reviveBeat, resolveByRead, packUnguarded}

const (
	noEpoch       = "no-epoch"        // an append is not fenced by its epoch, and takes the next free position
	positionOnly  = "position-only"   // an append is fenced by its position alone
	leaseFirst    = "lease-first"     // the lease is compared before the read
	deleteNow     = "delete-now"      // a dropped object is deleted at once
	ackUnknown    = "ack-unknown"     // an append without an answer is acknowledged
	cancelAppend  = "cancel-append"   // an append is canceled when it takes long, and counts as refused
	reviveBeat    = "revive-beat"     // a beat revives a life that was declared dead
	resolveByRead = "resolve-by-read" // an outcome is resolved by a statement that does not write
	packUnguarded = "pack-unguarded"  // records are packed by a transaction that is not serializable
	// noLease: no lease is compared. It is for programs alone (tests/cluster), in which
	// leaseFirst does no harm: what an owner reads from its memory was the newest when it
	// looked, and the request had begun by then.
	noLease = "no-lease"
)
