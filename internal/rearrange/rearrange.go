// Package rearrange orders the renames, removals and placements that turn one
// arrangement of a directory tree into another, so that every path holds, at
// each moment, what it held before, what it holds afterwards, or nothing.
//
// It is pure: it reads and changes nothing.
package rearrange

import (
	"cmp"
	"slices"

	"umbra/internal/wspath"
)

// Object is a file or directory that exists before. The content of a directory moves
// with it, except for entries with an Object of their own.
type Object struct {
	From  wspath.Path
	To    wspath.Path // where it is afterwards; empty: it is removed
	Dir   bool
	Prune bool // a directory that is removed only if it is empty
	Ref   int  // the caller's
}

// New is a file or directory that does not exist before.
type New struct {
	Path wspath.Path
	Dir  bool
	Ref  int // the caller's
}

// Kind is what a step does.
type Kind uint8

// The kinds.
const (
	Rename   Kind = iota + 1 // From to To, over the object Over if that is not None
	Exchange                 // swaps two objects: Ref is then at To, Over at From
	Park                     // Rename to the temporary name To
	Take                     // removes what is at From, with all in it
	Prune                    // removes the directory From if it is empty
	Make                     // makes the directory To
	Put                      // places new content at To, over the object Over if that is not None
)

// None is the Over of a step that replaces nothing.
const None = -1

// Step is one action.
type Step struct {
	Kind     Kind
	From, To wspath.Path
	Ref      int // of the object or the new one
	Over     int // Ref of an object
	Dir      bool
}

// task is what has to be done with one object or new one.
type task struct {
	Object
	class  class
	new    bool
	cur    wspath.Path // where the object is now
	done   bool
	gone   bool
	parked bool
}

// class orders the tasks that are ready at the same time.
type class uint8

const (
	moveDir class = iota
	remove
	makeDir
	moveFile
	put
	prune
)

type order struct {
	tasks []*task
	at    map[wspath.Path]*task // objects that exist, by where they are now
	final map[wspath.Path]*task // by where they are afterwards
	temp  func(dir wspath.Path) wspath.Path
	steps []Step
}

// Order returns the steps, in order. Each path is the To or Path of at most one
// object or new one; the directories of all these are objects, new ones, or stay
// where they are. temp returns an unused temporary name in a directory; it is
// called where objects take each other's places in a ring of more than two. ok is
// false where there are no such steps: what is wanted is no tree.
func Order(objects []Object, news []New, temp func(dir wspath.Path) wspath.Path) (steps []Step, ok bool) {
	o := &order{at: make(map[wspath.Path]*task, len(objects)), final: make(map[wspath.Path]*task, len(objects)+len(news)), temp: temp,
		tasks: make([]*task, 0, len(objects)+len(news))}
	for _, x := range objects {
		t := &task{Object: x, cur: x.From}
		switch {
		case x.Prune:
			t.class = prune
		case x.To == "":
			t.class = remove
		case x.Dir:
			t.class = moveDir
		default:
			t.class = moveFile
		}
		o.tasks = append(o.tasks, t)
		o.at[x.From] = t
		if x.To != "" {
			o.final[x.To] = t
		}
	}
	for _, x := range news {
		t := &task{Object: Object{To: x.Path, Dir: x.Dir, Ref: x.Ref}, new: true, class: put}
		if x.Dir {
			t.class = makeDir
		}
		o.tasks = append(o.tasks, t)
		o.final[x.Path] = t
	}
	slices.SortStableFunc(o.tasks, func(a, b *task) int {
		d := cmp.Compare(depth(a.key()), depth(b.key()))
		if a.class == prune {
			d = -d // the innermost first
		}
		return cmp.Or(cmp.Compare(a.class, b.class), d)
	})
	ok = o.run()
	return o.steps, ok
}

// key is the path that decides when a task comes: outermost first.
func (t *task) key() wspath.Path {
	if t.To != "" {
		return t.To
	}
	return t.From
}

func depth(p wspath.Path) int { return len(p.Components()) }

func (o *order) run() bool {
	pending := o.tasks
	for {
		var left []*task
		for _, t := range pending {
			if !t.done && !o.try(t) {
				left = append(left, t)
			}
		}
		left = slices.DeleteFunc(left, func(t *task) bool { return t.done })
		if len(left) == 0 {
			return true
		}
		if len(left) == len(pending) && !o.untangle(left) {
			return false
		}
		pending = left
	}
}

// placed reports whether the directories above a path are what they will be.
func (o *order) placed(p wspath.Path) bool {
	for dir := range p.Ancestors() {
		if t := o.final[dir]; t != nil {
			return t.done
		}
	}
	return true
}

// try does a task if it can be done now.
func (o *order) try(t *task) bool {
	switch t.class {
	case remove:
		return o.take(t)
	case prune:
		return o.prune(t)
	case makeDir:
		if is := o.at[t.To]; is != nil && is.Prune && !is.done && o.placed(t.To) {
			// It is removed and made again: it stays.
			is.done, t.done = true, true
			delete(o.at, t.To)
			return true
		} else if is != nil || !o.placed(t.To) {
			return false
		}
		o.step(Step{Kind: Make, To: t.To, Ref: t.Ref, Over: None, Dir: true})
	case put:
		if !o.placed(t.To) {
			return false
		}
		over, free := o.replaced(t)
		if !free {
			return false
		}
		o.step(Step{Kind: Put, To: t.To, Ref: t.Ref, Over: over})
	default:
		if !o.placed(t.To) {
			return false
		}
		if t.cur != t.To {
			over, free := o.replaced(t)
			if !free {
				return false
			}
			o.rename(t, t.To, Step{Kind: Rename, From: t.cur, To: t.To, Ref: t.Ref, Over: over, Dir: t.Dir})
		}
	}
	t.done = true
	return true
}

// replaced reports whether something can be placed at its path, and which file
// that is to be removed it then replaces.
func (o *order) replaced(by *task) (over int, free bool) {
	is := o.at[by.To]
	if is == nil {
		return None, true
	}
	if is.class != remove || is.Dir || by.Dir {
		return None, false
	}
	o.vanish(is)
	return is.Ref, true
}

// vanish notes that an object is gone.
func (o *order) vanish(t *task) {
	t.done, t.gone = true, true
	delete(o.at, t.cur)
}

// take removes an object. A file that another file replaces goes with that step,
// unless its directory makes room for another one.
func (o *order) take(t *task) bool {
	if next := o.final[t.cur]; !t.Dir && next != nil && !next.done && !next.Dir && o.placed(t.cur) {
		return false
	}
	if t.Dir {
		for _, x := range o.tasks {
			if !x.new && !x.gone && x.To != "" && x.cur.IsUnder(t.cur) {
				return false // it moves out first
			}
		}
		for _, x := range o.tasks {
			if !x.new && !x.gone && x.cur.IsUnder(t.cur) {
				o.vanish(x)
			}
		}
	}
	o.step(Step{Kind: Take, From: t.cur, Ref: t.Ref, Over: None, Dir: t.Dir})
	o.vanish(t)
	return true
}

// prune removes a directory once nothing that is known is in it.
func (o *order) prune(t *task) bool {
	for _, x := range o.tasks {
		if !x.new && !x.gone && x != t && x.cur.IsUnder(t.cur) {
			return false
		}
	}
	o.step(Step{Kind: Prune, From: t.cur, Ref: t.Ref, Over: None, Dir: true})
	o.vanish(t)
	return true
}

func (o *order) step(s Step) { o.steps = append(o.steps, s) }

// rename moves an object, with all that is in it.
func (o *order) rename(t *task, to wspath.Path, s Step) {
	from := t.cur
	delete(o.at, from)
	if t.Dir {
		o.carry(from, to)
	}
	t.cur = to
	o.at[to] = t
	o.step(s)
}

// carry notes that what is in a directory is in another.
func (o *order) carry(from, to wspath.Path) {
	var moved []*task
	for _, x := range o.tasks {
		if !x.new && !x.gone && x.cur.IsUnder(from) {
			moved = append(moved, x)
		}
	}
	for _, x := range moved {
		delete(o.at, x.cur)
	}
	for _, x := range moved {
		rel, _ := x.cur.Rel(from)
		x.cur = to.Join(string(rel))
		o.at[x.cur] = x
	}
}

// untangle makes progress where no task can be done.
func (o *order) untangle(left []*task) bool {
	moves := func(t *task) bool { return t.class == moveDir || t.class == moveFile }
	for _, t := range left {
		if !moves(t) || !o.placed(t.To) {
			continue
		}
		other := o.at[t.To]
		if other == nil || other == t || other.done || !moves(other) || other.To != t.cur || !o.placed(other.To) ||
			t.cur.IsUnder(other.cur) || other.cur.IsUnder(t.cur) {
			continue
		}
		o.swap(t, other)
		return true
	}
	for _, t := range left {
		if moves(t) && !t.parked {
			to := o.temp(o.outside(t.cur))
			o.rename(t, to, Step{Kind: Park, From: t.cur, To: to, Ref: t.Ref, Over: None, Dir: t.Dir})
			t.parked = true
			return true
		}
	}
	return false
}

func (o *order) swap(a, b *task) {
	o.step(Step{Kind: Exchange, From: a.cur, To: b.cur, Ref: a.Ref, Over: b.Ref, Dir: a.Dir || b.Dir})
	from, to := a.cur, b.cur
	const aside = wspath.Path("\x00") // no path
	if a.Dir {
		o.carry(from, aside)
	}
	if b.Dir {
		o.carry(to, from)
	}
	if a.Dir {
		o.carry(aside, to)
	}
	a.cur, b.cur = to, from
	o.at[to], o.at[from] = a, b
	a.done, b.done = true, true
}

// outside returns the nearest directory above a path that neither is removed nor
// moves.
func (o *order) outside(p wspath.Path) wspath.Path {
	out := p.Dir()
	for dir := range p.Ancestors() {
		if t := o.at[dir]; t != nil && !t.done {
			out = dir.Dir()
		}
	}
	return out
}
