package history

import (
	"strings"

	"umbra/gitstore/object"
)

// State is one file at one moment; Mode 0: there is none, Path says where it
// would be.
type State struct {
	Path string
	Mode object.Mode
	ID   object.ID
}

// Exists reports whether there is a file.
func (s State) Exists() bool { return s.Mode != 0 }

// Same reports whether two states are the same bytes and mode, wherever.
func (s State) Same(o State) bool { return s.Mode == o.Mode && s.ID == o.ID }

// Run is a stretch of a chain without anybody else's change.
type Run struct {
	Before, After State
	Entries       []*Entry // oldest first
}

// Chain is one file as the given entries knew it.
type Chain struct {
	Runs []*Run // oldest first, at least one
}

// First and Last give the ends: what the first entry found, what the last left.
func (c *Chain) First() State { return c.Runs[0].Before }
func (c *Chain) Last() State  { return c.Runs[len(c.Runs)-1].After }

// Mixed reports whether somebody else's changes lie between the chain's own.
func (c *Chain) Mixed() bool { return len(c.Runs) > 1 }

// Entries gives all entries of the chain, oldest first.
func (c *Chain) Entries() []*Entry {
	if len(c.Runs) == 1 {
		return c.Runs[0].Entries
	}
	var out []*Entry
	for _, r := range c.Runs {
		out = append(out, r.Entries...)
	}
	return out
}

// Named reports whether the file ever had a path, or lay under it.
func (c *Chain) Named(path string) bool {
	for _, e := range c.Entries() {
		if within(e.Path, path) || e.NewPath != "" && within(e.NewPath, path) {
			return true
		}
	}
	return false
}

func within(p, dir string) bool {
	p = strings.TrimSuffix(p, "/")
	return p == dir || strings.HasPrefix(p, dir+"/")
}

// IsFolder reports whether an entry is about an empty folder.
func (e *Entry) IsFolder() bool { return strings.HasSuffix(e.Path, "/") }

// Chains threads entries (oldest first) to files. Entries about empty folders
// are given back apart.
func Chains(entries []*Entry) (chains []*Chain, folders []*Entry) {
	at := make(map[string]*Chain) // by the path where the chain ends now
	for _, e := range entries {
		if e.IsFolder() {
			folders = append(folders, e)
			continue
		}
		from, to := e.Path, e.Path
		if e.NewPath != "" {
			to = e.NewPath
		}
		before := State{Path: from, Mode: e.BeforeMode, ID: e.Before}
		after := State{Path: to, Mode: e.Mode, ID: e.After}
		c := at[from]
		switch {
		case c == nil:
			c = &Chain{Runs: []*Run{{Before: before}}}
			chains = append(chains, c)
		case !c.Last().Same(before):
			c.Runs = append(c.Runs, &Run{Before: before})
		}
		r := c.Runs[len(c.Runs)-1]
		r.After = after
		r.Entries = append(r.Entries, e)
		delete(at, from)
		at[to] = c
	}
	return chains, folders
}
