package telemetry

import "time"

// ClusterFigures are a cluster's node at one moment.
type ClusterFigures struct {
	Owned    int           // workspaces that it has claimed, forks apart
	Nodes    int           // that are live, it among them
	Lease    time.Duration // what is left of it; negative: it is over
	Standbys int           // of the engine
	Reason   string        // why the engine takes no writes; empty: it does

	Append, Seal, Open *Histogram                               // durations of appends, seals and opens
	Claims             func(each func(reason string, n uint64)) // by why they could be made
	Unknown, Fenced    uint64                                   // appends of unknown outcome, and those of a replaced owner
	Unsealed           int64                                    // bytes of its workspaces' logs that are in no pack
	OldestUnsealed     time.Duration                            // for how long some of them have been there
	Garbage            int64                                    // objects that wait for the sweeper
	Shared             bool                                     // another database sweeps the object store
	Cached             int64                                    // bytes of workspaces on this node's disk
	FollowerLag        time.Duration                            // age of the oldest state that it answered by
}
