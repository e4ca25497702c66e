package measure

import "time"

// Scale is how long and how large a run is. The rows are the same in each.
type Scale struct {
	Name string

	// Files, Histories and Clients are the axes: files of the project, commits
	// made before, clients at once. The middle one of Files is where the other
	// axes are measured.
	Files, Histories, Clients []int
	// Cross measures each with each for our own subjects and the safe server,
	// instead of one axis at a time.
	Cross bool

	// Rounds and Slice of a loop: in each round every subject works for one
	// slice.
	Rounds int
	Slice  time.Duration

	// Calm and Slow are how many changes of each subject are made 200 ms and
	// 5 s apart.
	Calm, Slow int
	// Sustained is how long the load without a pause is.
	Sustained time.Duration
	// Counted is how many changes are made where system calls are counted.
	Counted int

	// BaselineRounds is how often a whole tree is taken by each subject.
	BaselineRounds int
	// SlowBaseline is the number of files up to which the slowest peers take
	// part in baselines.
	SlowBaseline int

	// Edits are the small edits whose room on disk is measured.
	Edits int
	// Idle is how many idle workspaces the server's memory is measured with.
	Idle int
	// Settle is what a process gets to give memory back.
	Settle time.Duration
	// StartWorkspaces and StartCommits are what the server's start is measured
	// with.
	StartWorkspaces, StartCommits int
	// CloneCommits is the length of the task that is cloned and replayed.
	CloneCommits int
}

// Quick is a smoke run: it shows that every row works, and no figure of it says
// anything.
func Quick() Scale {
	return Scale{
		Name: "quick", Files: []int{200, 1000}, Histories: []int{0, 1000}, Clients: []int{1, 16},
		Rounds: 3, Slice: 50 * time.Millisecond, Calm: 8, Slow: 2, Sustained: 3 * time.Second, Counted: 20,
		BaselineRounds: 2, SlowBaseline: 1000, Edits: 100, Idle: 5, Settle: time.Second,
		StartWorkspaces: 10, StartCommits: 100, CloneCommits: 300,
	}
}

// Normal is what the table in the documents is made with.
func Normal() Scale {
	return Scale{
		Name: "normal", Files: []int{1000, 10_000, 100_000}, Histories: []int{0, 10_000, 100_000}, Clients: []int{1, 16, 64},
		Rounds: 12, Slice: 300 * time.Millisecond, Calm: 150, Slow: 24, Sustained: time.Minute, Counted: 300,
		BaselineRounds: 3, SlowBaseline: 10_000, Edits: 2000, Idle: 100, Settle: 10 * time.Second,
		StartWorkspaces: 1000, StartCommits: 100_000, CloneCommits: 10_000,
	}
}

// Full measures every cell, longer, and the slowest peers too.
func Full() Scale {
	s := Normal()
	s.Name, s.Cross = "full", true
	s.Rounds, s.Slice = 25, time.Second
	s.Calm, s.Slow = 300, 60
	s.Counted = 1000
	s.BaselineRounds, s.SlowBaseline = 5, 100_000
	s.Edits = 10_000
	return s
}

// Middle is the number of files at which the axes other than Files are measured.
func (s Scale) Middle() int { return s.Files[len(s.Files)/2] }

// Largest is the largest project.
func (s Scale) Largest() int { return s.Files[len(s.Files)-1] }

// Smallest is the smallest project.
func (s Scale) Smallest() int { return s.Files[0] }

// LongestHistory is the largest number of commits made before.
func (s Scale) LongestHistory() int { return s.Histories[len(s.Histories)-1] }
