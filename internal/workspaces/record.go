package workspaces

import "time"

// Record is what is kept of a workspace outside of its repository.
type Record struct {
	ID   string `json:"id"`
	Root string `json:"root"` // canonical path of the folder; empty for a virtual one
	Kind string `json:"kind"` // "physical" or "virtual"
	// Namespace is what a virtual one is found by; none where only its id leads
	// to it.
	Namespace []string  `json:"namespace,omitempty"`
	Created   time.Time `json:"created"`
	LastUsed  time.Time `json:"last_used"`
	Dev       uint64    `json:"dev"`
	Ino       uint64    `json:"ino"`
	// Born is when the folder was made, nanoseconds since 1970, where the file
	// system reports it: inode numbers are reused. 0: not known.
	Born int64 `json:"born,omitempty"`
	// Watched makes a start look for changes that were made while the server was
	// down.
	Watched bool `json:"watched,omitempty"`
	// Restored is set by a restore, until the workspace is opened: the folder at
	// Root is another one, perhaps, but the workspace's, and it may be older or
	// newer than the history.
	Restored bool `json:"restored,omitempty"`
	// Unfinished: its baseline has not been taken whole, so it is none yet.
	Unfinished bool `json:"unfinished,omitempty"`
	// Fork is set for a fork.
	Fork *Fork `json:"fork,omitempty"`
	// Server is the name of the one server that has the directory, where several share
	// virtual workspaces.
	Server string `json:"server,omitempty"`
	// Rest is set while it is unloaded.
	Rest *Rest `json:"rest,omitempty"`
}

func (m *Manager) putRecord(r Record) error {
	defer m.putting.Lock(r.ID)()
	return m.opt.Records.Put(r)
}
