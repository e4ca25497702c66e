package record

import (
	"context"
	"slices"
	"strconv"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/claims"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// Owners knows whose changes are that are found on disk of one workspace. Its
// methods are called from any goroutine, and do no I/O.
type Owners interface {
	// Judge returns the owner of a change, nil if none is known.
	Judge(claims.Found) (*Owner, claims.Certainty)
	// Called reports that agents' calls are known of, so that what no call made is
	// a user's, whatever task is executing.
	Called() bool
	// Scanning and Scanned are called before and after each full scan
	// (claims.Book).
	Scanning() uint64
	Scanned(mark uint64)
}

// Owner is whose a change is.
type Owner struct {
	// Key identifies the owner.
	Key string
	// Message has the owner's TaskID, SubtaskID, Actor, Source and Extra.
	Message message.Message
	// Recorded, if not nil, is called with the number of each commit.
	Recorded func(seq uint64)
}

// NoOwners is for a workspace of which no calls are known.
type NoOwners struct{}

// Judge is Owners'.
func (NoOwners) Judge(claims.Found) (*Owner, claims.Certainty) { return nil, "" }

// Called is Owners'.
func (NoOwners) Called() bool { return false }

// Scanning is Owners'.
func (NoOwners) Scanning() uint64 { return 0 }

// Scanned is Owners'.
func (NoOwners) Scanned(uint64) {}

// Nobody is the owner of user edits, and of changes of unknown origin.
var Nobody = &Owner{Message: message.Message{Source: message.External}}

// ofTask owns what belongs to the only executing task.
func ofTask(task string) *Owner {
	return &Owner{Key: "task " + task, Message: message.Message{Source: message.External, TaskID: task}}
}

// Judge decides whose an external change is. names are paths of the file that were found
// with it, if it has several. attribute lets what no call made belong to the only executing
// task.
func (r *Recorder) Judge(x *External, names []string, unreported, attribute bool) *Owner {
	f := claims.Found{Path: string(x.Path), Names: names, Unreported: unreported}
	if x.HasBlob {
		f.Sum = x.Blob.AfterHash()
	}
	o, certainty := r.Owners.Judge(f)
	if o != nil {
		x.certainty = certainty
		return o
	}
	if attribute && !r.Owners.Called() {
		if task := r.OnlyTask(); task != "" {
			return ofTask(task)
		}
	}
	return Nobody
}

// byOwner is external changes of one owner.
type byOwner struct {
	owner *Owner
	List  []External
}

// Groups gathers changes by their owners, in the order in which these were
// met.
type Groups []byOwner

func (g *Groups) Add(o *Owner, x External) {
	at := slices.IndexFunc(*g, func(b byOwner) bool { return b.owner.Key == o.Key })
	if at < 0 {
		at = len(*g)
		*g = append(*g, byOwner{owner: o})
	}
	(*g)[at].List = append((*g)[at].List, x)
}

// ordered gives the groups as they can be committed one after the other. Where
// one owner's file has the place of another's directory, or the other way round,
// what is gone comes first, by commits of its own.
func (g Groups) ordered() Groups {
	if len(g) < 2 {
		return g
	}
	gone := make(map[wspath.Path]int)
	for i := range g {
		for _, x := range g[i].List {
			if x.Mode == 0 {
				gone[x.Path] = i
				for dir := range x.Path.Ancestors() {
					if _, ok := gone[dir]; !ok && !dir.IsRoot() {
						gone[dir] = i
					}
				}
			}
		}
	}
	crossed := func() bool {
		for i := range g {
			for _, x := range g[i].List {
				if x.Mode == 0 {
					continue
				}
				if j, ok := gone[x.Path]; ok && j != i {
					return true
				}
				for dir := range x.Path.Ancestors() {
					if j, ok := gone[dir]; ok && j != i && x.Old.Mode == 0 {
						return true
					}
				}
			}
		}
		return false
	}
	if !crossed() {
		return g
	}
	var first, then Groups
	for i := range g {
		for _, x := range g[i].List {
			if x.Mode == 0 {
				first.Add(g[i].owner, x)
			} else {
				then.Add(g[i].owner, x)
			}
		}
	}
	return append(first, then...)
}

// certaintyTrailers reports how the owner of each entry is known.
func certaintyTrailers(entries []Entry) []message.Trailer {
	var all claims.Certainty
	for i := range entries {
		if c := entries[i].certainty; i == 0 || c != "" {
			all = claims.Weaker(all, c)
		}
	}
	if all == "" {
		return nil
	}
	out := []message.Trailer{{Key: message.KeyCertainty, Value: string(all)}}
	for i := range entries {
		if c := entries[i].certainty; c != all && len(entries) <= message.MaxListed {
			out = append(out, message.Trailer{Key: message.KeyCertaintyOf, Value: strconv.Itoa(i+1) + " " + string(c)})
		}
	}
	return out
}

// CommitOwned makes one commit of each owner's changes; an owner whose task is
// gone counts as none.
func (r *Recorder) CommitOwned(ctx context.Context, groups Groups, commit func(list []External, o *Owner) (gitstore.Committed, error)) ([]uint64, error) {
	var seqs []uint64
	for _, g := range groups.ordered() {
		c, err := commit(g.List, g.owner)
		if g.owner.Message.TaskID != "" && err != nil && errs.CodeOf(err) == "task_not_found" {
			g.owner = Nobody
			for i := range g.List {
				g.List[i].certainty = ""
			}
			c, err = commit(g.List, g.owner)
		}
		if err != nil {
			return seqs, err
		}
		if c.NoChange {
			continue
		}
		seqs = append(seqs, c.Seq)
		if g.owner.Recorded != nil {
			g.owner.Recorded(c.Seq)
		}
	}
	return seqs, nil
}
