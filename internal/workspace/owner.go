package workspace

import (
	"context"
	"slices"
	"strconv"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/claims"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// Owners knows whose changes are that are found on disk of one workspace. Its
// methods are called from any goroutine, and do no I/O.
type Owners interface {
	// Judge returns whose a change is, nil for nobody's that is known.
	Judge(claims.Found) (*Owner, claims.Certainty)
	// Called reports that agents' calls are known of, so that what no call made is
	// a person's, whatever task is executing.
	Called() bool
	// Scanning and Scanned are told of the scans of everything
	// (claims.Book).
	Scanning() uint64
	Scanned(mark uint64)
}

// Owner is whose a change is.
type Owner struct {
	// Key tells owners apart.
	Key string
	// Message has the owner's TaskID, SubtaskID, Actor, Source and Extra.
	Message message.Message
	// Recorded, if not nil, is told the number of each commit.
	Recorded func(seq uint64)
}

// ownership decides whose external changes are.
type ownership struct {
	Owners
	// only returns the only executing task, or "".
	only func() string
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

// nobody owns what a person changed, and what nothing is known of.
var nobody = &Owner{Message: message.Message{Source: message.External}}

// ofTask owns what belongs to the only executing task.
func ofTask(task string) *Owner {
	return &Owner{Key: "task " + task, Message: message.Message{Source: message.External, TaskID: task}}
}

// judge decides whose an external change is. attribute lets what no call made
// belong to the only executing task.
func (w *Workspace) judge(x *external, untold, attribute bool) *Owner {
	f := claims.Found{Path: string(x.path), Untold: untold}
	if x.hasBlob {
		f.Sum = x.blob.AfterHash()
	}
	o, certainty := w.owners.Judge(f)
	if o != nil {
		x.certainty = certainty
		return o
	}
	if attribute && !w.owners.Called() {
		if task := w.owners.only(); task != "" {
			return ofTask(task)
		}
	}
	return nobody
}

// byOwner is external changes of one owner.
type byOwner struct {
	owner *Owner
	list  []external
}

// ownerGroups gathers changes by their owners, in the order in which these were
// met.
type ownerGroups []byOwner

func (g *ownerGroups) add(o *Owner, x external) {
	at := slices.IndexFunc(*g, func(b byOwner) bool { return b.owner.Key == o.Key })
	if at < 0 {
		at = len(*g)
		*g = append(*g, byOwner{owner: o})
	}
	(*g)[at].list = append((*g)[at].list, x)
}

// ordered gives the groups as they can be committed one after the other. Where
// one owner's file has the place of another's directory, or the other way round,
// what is gone comes first, by commits of its own.
func (g ownerGroups) ordered() ownerGroups {
	if len(g) < 2 {
		return g
	}
	gone := make(map[wspath.Path]int)
	for i := range g {
		for _, x := range g[i].list {
			if x.mode == 0 {
				gone[x.path] = i
				for dir := range x.path.Ancestors() {
					if _, ok := gone[dir]; !ok && !dir.IsRoot() {
						gone[dir] = i
					}
				}
			}
		}
	}
	crossed := func() bool {
		for i := range g {
			for _, x := range g[i].list {
				if x.mode == 0 {
					continue
				}
				if j, ok := gone[x.path]; ok && j != i {
					return true
				}
				for dir := range x.path.Ancestors() {
					if j, ok := gone[dir]; ok && j != i && x.old.Mode == 0 {
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
	var first, then ownerGroups
	for i := range g {
		for _, x := range g[i].list {
			if x.mode == 0 {
				first.add(g[i].owner, x)
			} else {
				then.add(g[i].owner, x)
			}
		}
	}
	return append(first, then...)
}

// certaintyTrailers tells how the owner of each entry is known.
func certaintyTrailers(entries []netEntry) []message.Trailer {
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

// RecordThen records everything that stands on disk, as agents' calls need it
// when they begin and end, and runs then before anything else is looked for. It
// looks at what the watcher told of, and at everything only where the watcher
// cannot be relied on.
//
// The errors are those of Sync; then did not run.
func (w *Workspace) RecordThen(ctx context.Context, then func()) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	if !w.disk.Physical() {
		then()
		return nil
	}
	o := SyncOptions{Attribute: true, since: clock.Boot()}
	t := w.watch.Load()
	told := t != nil && t.told(ctx)
	w.syncMu.Lock()
	defer w.syncMu.Unlock()
	var err error
	if told {
		_, err = w.lookAtDirtyLocked(ctx, t, o)
	} else {
		_, err = w.scanLocked(ctx, o)
	}
	if err == nil {
		then()
	}
	return err
}

// commitOwned makes one commit of each owner's changes; an owner whose task is
// gone is nobody.
func (w *Workspace) commitOwned(ctx context.Context, groups ownerGroups, commit func(list []external, o *Owner) (gitstore.Committed, error)) ([]uint64, error) {
	var seqs []uint64
	for _, g := range groups.ordered() {
		c, err := commit(g.list, g.owner)
		if g.owner.Message.TaskID != "" && err != nil && errs.CodeOf(err) == "task_not_found" {
			g.owner = nobody
			for i := range g.list {
				g.list[i].certainty = ""
			}
			c, err = commit(g.list, g.owner)
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
