// Package claims decides whose a change is that was found on disk. It knows the
// calls of one workspace: the times in which a tool of an agent worked
// (contracts/calls.md).
//
// No clock takes part. A caller that begins or ends a call has everything recorded
// that was on disk before, so between two such moments the calls that are open
// are always the same, and a change that is found was made while just those were
// open. The exception is a change without an event: only a scan finds it,
// and it may be as old as the scan before.
//
// The package does no I/O. A Book is safe for concurrent use.
package claims

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Certainty says how a change's owner is known.
type Certainty string

// The certainties, the strongest first.
const (
	Exact    Certainty = "exact"
	Declared Certainty = "declared"
	Window   Certainty = "window"
	Shared   Certainty = "shared"
)

// rank orders certainties, the strongest first.
func (c Certainty) rank() int {
	return slices.Index([]Certainty{Exact, Declared, Window, Shared}, c)
}

// Weaker returns the weaker one of two certainties.
func Weaker(a, b Certainty) Certainty {
	if a.rank() < b.rank() {
		return b
	}
	return a
}

// Call is what counts of a call when changes are judged.
type Call struct {
	ID string
	// Paths are those that the call declared, with "sha256:<hex>" of the content
	// where the call sent it.
	Paths map[string]string
	// OnlyPaths: the call changes the paths that it declared and no others.
	OnlyPaths bool
	// Layer: the call's changes come out of a layer; on disk it makes none.
	Layer bool

	began, ended uint64 // marks; ended is 0 while it is open
}

// declares reports whether the call declared a path.
func (c *Call) declares(path string) bool {
	_, ok := c.Paths[path]
	return ok
}

// couldMake reports whether the call may have changed a path.
func (c *Call) couldMake(path string) bool {
	return !c.Layer && (!c.OnlyPaths || c.declares(path))
}

// Verdict is whose a change is. Without a Call and without Claimants it
// has no known owner.
type Verdict struct {
	Call      *Call
	Claimants []*Call // of a shared change: in the order in which they began
	Certainty Certainty
}

// Found is a path whose content or mode differs from history.
type Found struct {
	Path string
	// Names are paths of the same file that were found with it: who wrote to the file by one
	// of them wrote to all.
	Names []string
	// Sum is "sha256:<hex>" of what the path holds now; "" where nothing does.
	Sum string
	// Unreported: no event reported the change, so it may be as old as the last scan.
	Unreported bool
}

// Book is the calls of one workspace.
type Book struct {
	mu   sync.Mutex
	mark uint64  // moves on with each begin and end
	scan uint64  // the mark at which the last whole scan began
	open []*Call // in the order in which they began
	past []*Call // that ended after the last scan began
}

// Begin adds a call. Earlier changes on disk are recorded already.
func (b *Book) Begin(c *Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mark++
	c.began, c.ended = b.mark, 0
	b.open = append(b.open, c)
}

// Declare adds paths to an open call, before the look that its end makes.
func (b *Book) Declare(id string, paths map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, c := range b.open {
		if c.ID != id || len(paths) == 0 {
			continue
		}
		more := *c // others may be reading its map
		more.Paths = make(map[string]string, len(c.Paths)+len(paths))
		maps.Copy(more.Paths, c.Paths)
		for p, sum := range paths {
			more.Paths[p] = cmp.Or(sum, c.Paths[p]) // the begin may have sent the content
		}
		b.open[i] = &more
	}
}

// End takes a call out, once what it did is recorded.
func (b *Book) End(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.IndexFunc(b.open, func(c *Call) bool { return c.ID == id })
	if at < 0 {
		return
	}
	b.mark++
	c := *b.open[at]
	c.ended = b.mark
	b.open = slices.Delete(b.open, at, at+1)
	b.past = append(b.past, &c)
}

// Layer has the changes of an open call come out of a layer from now on, or no longer:
// with one it makes none on disk.
func (b *Book) Layer(id string, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.IndexFunc(b.open, func(c *Call) bool { return c.ID == id })
	if at < 0 {
		return
	}
	b.mark++
	before, after := *b.open[at], *b.open[at]
	before.ended = b.mark
	after.began, after.Layer = b.mark, on
	b.open[at] = &after
	b.past = append(b.past, &before)
}

// Open returns how many calls are open.
func (b *Book) Open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// Scanning returns the mark to give to Scanned when the scan that begins now has
// ended.
func (b *Book) Scanning() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mark
}

// Scanned notes that a scan of everything, begun at a mark, has recorded all.
func (b *Book) Scanned(mark uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scan = max(b.scan, mark)
	b.past = slices.DeleteFunc(b.past, func(c *Call) bool { return c.ended <= b.scan })
}

// Judge decides whose a change is, by the first rule that fits: the content that
// one open call announced, the path that one open call declared, the only call
// that was open all the while, several calls, none.
func (b *Book) Judge(f Found) Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := append([]string{f.Path}, f.Names...)
	if c := b.only(func(c *Call) bool {
		return f.Sum != "" && slices.ContainsFunc(names, func(p string) bool { return c.Paths[p] == f.Sum })
	}); c != nil {
		return Verdict{Call: c, Certainty: Exact}
	}
	if c := b.only(func(c *Call) bool { return slices.ContainsFunc(names, c.declares) }); c != nil {
		return Verdict{Call: c, Certainty: Declared}
	}
	var may []*Call
	for _, c := range b.open {
		if slices.ContainsFunc(names, c.couldMake) {
			may = append(may, c)
		}
	}
	allTheWhile := true
	if f.Unreported {
		for _, c := range b.past {
			if slices.ContainsFunc(names, c.couldMake) {
				may = append(may, c)
			}
		}
		allTheWhile = len(may) == 1 && may[0].ended == 0 && may[0].began <= b.scan
	}
	switch {
	case len(may) > 1:
		slices.SortFunc(may, func(x, y *Call) int { return int(int64(x.began) - int64(y.began)) })
		return Verdict{Claimants: may, Certainty: Shared}
	case len(may) == 1 && allTheWhile:
		return Verdict{Call: may[0], Certainty: Window}
	}
	return Verdict{}
}

// only returns the one open call of which is holds, nil if there is none or
// there are several. mu is held.
func (b *Book) only(is func(*Call) bool) (one *Call) {
	for _, c := range b.open {
		if c.Layer || !is(c) {
			continue
		}
		if one != nil {
			return nil
		}
		one = c
	}
	return one
}

// Key is a name for a verdict's owner, the same for the same owner.
func (v Verdict) Key() string {
	if v.Call != nil {
		return "call " + v.Call.ID
	}
	ids := make([]string, len(v.Claimants))
	for i, c := range v.Claimants {
		ids[i] = c.ID
	}
	return "shared " + strings.Join(ids, " ")
}
