package telemetry

import "time"

// ClusterFigures are a cluster's node at one moment.
type ClusterFigures struct {
	Owned    int           // workspaces that it has claimed, forks apart
	Nodes    int           // that are live, it among them
	Lease    time.Duration // what is left of it; negative: it is over
	Standbys int           // of the engine
	Reason   string        // why the engine takes no writes; empty: it does
}
