package history

import (
	"slices"
	"strings"
	"sync"

	"umbra/gitstore/object"
	"umbra/internal/lineage"
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
	Renamed       bool     // by others, afterwards
}

// Chain is one file as the given entries knew it.
type Chain struct {
	Runs []*Run // oldest first, at least one
	// Now is where the file is by others' renames after the last run; without
	// any, Last().Path.
	Now string
	// Replaced: by another one of the given entries' files, which another writer
	// gave its name.
	Replaced bool
}

// First and Last give the ends: what the first entry found, what the last left.
func (c *Chain) First() State { return c.Runs[0].Before }
func (c *Chain) Last() State  { return c.Runs[len(c.Runs)-1].After }

// Mixed reports whether others' changes lie between the chain's own.
func (c *Chain) Mixed() bool { return len(c.Runs) > 1 }

// After gives where the file was after one of the runs, by others' renames too.
func (c *Chain) After(r *Run) string {
	if !r.Renamed {
		return r.After.Path
	}
	if i := slices.Index(c.Runs, r); i+1 < len(c.Runs) {
		return c.Runs[i+1].Before.Path
	}
	return c.Now
}

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
	return ChainsAmong(entries, nil)
}

// ChainsAmong is Chains where renames by others (by their numbers, ascending)
// are followed: the same file under another name stays one chain. Those that are
// among the entries do not count.
func ChainsAmong(entries []*Entry, moves []lineage.Move) (chains []*Chain, folders []*Entry) {
	return thread(entries, moves, nil)
}

// Chains is ChainsAmong for some of the task's entries, oldest first. Work that
// was undone and brought back is among them where it was done first. What
// the task did meanwhile was done to other files, though they had its paths:
// which these were follows from all that the task did.
func (t *Task) Chains(entries []*Entry, moves []lineage.Move) (chains []*Chain, folders []*Entry) {
	return thread(entries, moves, sync.OnceValue(func() map[*Entry]*Chain {
		if !slices.ContainsFunc(t.Entries, func(e Entry) bool { return e.IsRevert() }) {
			return nil
		}
		whole, _ := thread(t.related(entries, moves), moves, nil)
		file := make(map[*Entry]*Chain)
		for _, c := range whole {
			for _, e := range c.Entries() {
				file[e] = c
			}
		}
		return file
	}))
}

// related gives what the task did at the paths of some entries, and at those that
// renames connect with these. What it did elsewhere was done to other files.
func (t *Task) related(entries []*Entry, moves []lineage.Move) []*Entry {
	every := t.Every()
	names := make(map[string][]string)
	rename := func(from, to string) {
		names[from], names[to] = append(names[from], to), append(names[to], from)
	}
	for _, e := range every {
		if e.NewPath != "" {
			rename(e.Path, e.NewPath)
		}
	}
	for _, m := range moves {
		rename(string(m.From), string(m.To))
	}
	paths := make(map[string]bool, len(entries))
	var next []string
	add := func(path string) {
		if !paths[path] {
			paths[path] = true
			next = append(next, names[path]...)
		}
	}
	for _, e := range entries {
		add(e.Path)
	}
	for len(next) > 0 {
		path := next[len(next)-1]
		next = next[:len(next)-1]
		add(path)
	}
	return slices.DeleteFunc(every, func(e *Entry) bool { return !paths[e.Path] })
}

// thread threads entries to files. file gives whose file an entry is about, nil where
// that follows from the entries alone.
func thread(entries []*Entry, moves []lineage.Move, file func() map[*Entry]*Chain) (chains []*Chain, folders []*Entry) {
	t := threader{at: make(map[string]*Chain), of: make(map[uint64]place), file: file}
	for len(entries) > 0 || len(moves) > 0 {
		n, m := 0, 0
		for n < len(entries) && entries[n].Commit == entries[0].Commit && (len(moves) == 0 || entries[n].Seq <= moves[0].Seq) {
			n++
		}
		for m < len(moves) && moves[m].Seq == moves[0].Seq && (len(entries) == 0 || moves[m].Seq <= entries[0].Seq) {
			m++
		}
		t.commit(entries[:n], moves[:m])
		entries, moves = entries[n:], moves[m:]
	}
	return t.chains, t.folders
}

type threader struct {
	at      map[string]*Chain        // by the path where the chain ends now
	of      map[uint64]place         // by an entry's number
	file    func() map[*Entry]*Chain // whose file an entry is about; nil: not known
	chains  []*Chain
	folders []*Entry
}

// place is where an entry found its file.
type place struct {
	chain *Chain
	path  string
}

// commit threads the entries of one commit, which happen at once: two files
// that change names are no one file.
func (t *threader) commit(entries []*Entry, moves []lineage.Move) {
	after := ends{at: make(map[string]*Chain, len(entries)), of: make(map[*Chain]int, len(entries))}
	t.follow(entries, moves, &after)
	for _, e := range entries {
		if e.IsFolder() {
			t.folders = append(t.folders, e)
			continue
		}
		from, to := e.Path, e.Path
		if e.NewPath != "" {
			to = e.NewPath
		}
		before := State{Path: from, Mode: e.BeforeMode, ID: e.Before}
		c := t.at[from]
		stays := c != nil && t.isOther(c, e)
		if stays {
			c = nil
		}
		if d := t.broughtBack(e, &after); d != nil {
			if c != nil && c != d {
				c.extend(e, before, State{Path: from}) // it had to make way
			}
			if last := d.Last().Path; t.at[last] == d {
				delete(t.at, last)
			}
			c, before = d, State{Path: from}
		}
		if c == nil {
			c = &Chain{}
			t.chains = append(t.chains, c)
		}
		t.of[e.ID] = place{c, from}
		c.extend(e, before, State{Path: to, Mode: e.Mode, ID: e.After})
		if !stays {
			delete(t.at, from)
		}
		if after.at[to] == nil || c.Last().Exists() {
			after.put(to, c)
		}
	}
	for to, c := range after.at {
		if o := t.at[to]; o == nil || c.Last().Exists() || !o.Last().Exists() {
			t.at[to] = c
		}
	}
}

// ends are the chains that end at paths after a commit, and at how many each does.
type ends struct {
	at map[string]*Chain
	of map[*Chain]int
}

func (s *ends) put(path string, c *Chain) {
	if was := s.at[path]; was != nil {
		s.of[was]--
	}
	s.at[path] = c
	s.of[c]++
}

// isOther reports whether an entry is known to be about another file than the
// one whose chain ends at its path.
func (t *threader) isOther(c *Chain, e *Entry) bool {
	if t.file == nil {
		return false
	}
	file, last := t.file(), c.Runs[len(c.Runs)-1].Entries
	return len(file) > 0 && file[last[len(last)-1]] != file[e]
}

// follow takes the chains' files along with others' renames.
func (t *threader) follow(entries []*Entry, moves []lineage.Move, after *ends) {
	if len(moves) == 0 {
		return
	}
	own := make(map[string]bool, len(entries))
	for _, e := range entries {
		own[e.Path] = true
	}
	for _, m := range moves {
		if c := t.at[string(m.From)]; c != nil && c.Last().Exists() && !own[string(m.From)] {
			after.put(string(m.To), c)
		}
	}
	for _, m := range moves {
		if c := after.at[string(m.To)]; c != nil && t.at[string(m.From)] == c {
			delete(t.at, string(m.From))
			c.Now, c.Runs[len(c.Runs)-1].Renamed = string(m.To), true
		}
	}
	for to := range after.at {
		if o := t.at[to]; o != nil && o.Last().Exists() && !own[to] {
			o.Replaced = true
		}
	}
}

// broughtBack gives the deleted file that an entry makes again by undoing its
// deletion, also if another one has its place meanwhile, and under the name of
// before if the renames that led to it are undone with it.
func (t *threader) broughtBack(e *Entry, after *ends) *Chain {
	if e.NewPath != "" {
		return nil
	}
	for _, r := range e.Reverts {
		was := t.of[r.ID]
		c := was.chain
		if r.Task != e.TaskID || c == nil || c.Last().Exists() || was.path != e.Path {
			continue
		}
		if after.of[c] > 0 {
			return nil
		}
		return c
	}
	return nil
}

func (c *Chain) extend(e *Entry, before, after State) {
	if len(c.Runs) == 0 || !c.Last().Same(before) || c.Runs[len(c.Runs)-1].Renamed {
		c.Runs = append(c.Runs, &Run{Before: before})
	}
	r := c.Runs[len(c.Runs)-1]
	r.After = after
	r.Entries = append(r.Entries, e)
	c.Now = after.Path
}
