// Package rows is what is measured: one row is one question, its subjects side
// by side in one run, and its targets. One file a group of rows:
//
//	write      one change, one commit: sizes, histories, clients
//	paced      a change each 200 ms and each 5 s
//	sustained  a minute of load, and its longest stall
//	syncs      fsyncs and bytes a change
//	growth     with the workspace, with history
//	baseline   a whole tree
//	disk       writes in a storm, syncs with nothing changed, idle workspaces
//	footprint  room on disk for one small edit
//	memory     idle workspaces, a hot large one
//	start      with many workspaces
//	clone      clones over HTTP and replays of a long task
//	sessions   small files read, large folders listed
//	toolsets   calls of tools, next to the tasks dialect
//	run        programs and scripts
//	hooks      what an agent waits for before and after a tool
//	calls      begin and end of a call, at the server
//	exec       commands in a layer
//	policy     what a policy costs of a write
//	forks      forks of a workspace, next to worktrees and copies
//	before     this program and an earlier one in turns (-before)
//	blame      who wrote each line, next to git blame; memory for a large file
//	history    summary, diff and revert of a task; the first answer after a start
//
// A group is a file here and its call in All.
//
// Nothing here fails on a time.
package rows

import (
	"context"
	"slices"
	"strings"

	"umbra/tests/bench/measure"
	"umbra/tests/bench/report"
)

// Row is one question.
type Row struct {
	Name  string // "write/files=10k": what -run selects by
	Title string
	About string
	// EveryDisk: the answer belongs to a file system. Other rows are measured
	// on the first disk alone.
	EveryDisk bool
	Run       func(ctx context.Context, env *measure.Env, r *report.Result) error
}

// All lists the rows of a scale, in the order of the document.
func All(s measure.Scale) []Row {
	return slices.Concat(writeRows(s), pacedRows(s), sustainedRows(s), syncsRows(s), growthRows(s), baselineRows(s),
		diskRows(s), footprintRows(s), memoryRows(s), startRows(s), sessionRows(s), cloneRows(s), historyRows(s), blameRows(s), toolsetRows(s), runRows(s), hookRows(s), callRows(s), execRows(s), forkRows(s), policyRows(s))
}

// Order compares keys of results ("row on disk") by the order of the document:
// rows as the normal scale lists them, then others by name; disks as they were
// given.
func Order(disks []string) func(a, b string) int {
	place := make(map[string]int)
	for i, r := range All(measure.Normal()) {
		place[r.Name] = i
	}
	rank := func(key string) (int, int, string) {
		row, disk, _ := strings.Cut(key, " on ")
		at, ok := place[row]
		if !ok {
			at = len(place)
		}
		d := slices.Index(disks, disk)
		if d < 0 {
			d = len(disks)
		}
		return at, d, key
	}
	return func(a, b string) int {
		ra, da, ka := rank(a)
		rb, db, kb := rank(b)
		switch {
		case ra != rb:
			return ra - rb
		case ra == len(place) && ka != kb:
			return strings.Compare(ka, kb)
		case da != db:
			return da - db
		}
		return strings.Compare(ka, kb)
	}
}
