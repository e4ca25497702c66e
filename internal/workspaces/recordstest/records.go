// Package recordstest keeps records of workspaces in memory, for tests.
package recordstest

import "umbra/internal/workspaces"

// Records keeps a manager's records over its reopening. The zero value is
// empty. Safe for concurrent use.
type Records = workspaces.MemRecords
