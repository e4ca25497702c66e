package repair

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/refs"
	"umbra/gitstore/repo"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
)

var errLost = errors.New("the object is lost")

// get reads an object from one of our packs, or from where it is found.
func (r *repairer) get(id object.ID) (object.Kind, []byte, error) {
	kind, data, err := r.s.ReadObject(id, object.MaxMeta)
	if !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Gone) {
		return kind, data, err
	}
	kind, data, ok, err := r.find(id)
	if err == nil && !ok {
		err = errLost
	}
	return kind, data, err
}

func (r *repairer) commit(id object.ID) (*repo.Commit, error) {
	kind, data, err := r.get(id)
	if err != nil {
		return nil, err
	}
	if kind != object.Commit {
		return nil, errLost
	}
	c, err := repo.ParseCommit(id, data)
	if err != nil {
		return nil, err
	}
	return r.s.Graft(c), nil
}

// found is the history as the packs alone show it.
type found struct {
	begin   uint64 // number of the commit at which the history begins, 0: the first
	commits map[object.ID]*foundCommit
	infos   map[string]*foundInfo // the newest of each task
}

type foundCommit struct {
	id, parent object.ID
	seq        uint64
	task       string
	doomed     bool // is in superseded packs alone
}

type foundInfo struct {
	tag, base object.ID
	when      time.Time
}

// survey reads every commit and tag of our packs.
func (r *repairer) survey() (*found, error) {
	out := &found{begin: r.s.Boundary().Seq, commits: make(map[object.ID]*foundCommit), infos: make(map[string]*foundInfo)}
	for _, f := range r.s.Packs.All() {
		for e, err := range f.Pack.Entries() {
			if err == nil {
				err = r.ctx.Err()
			}
			if err != nil {
				return nil, err
			}
			kind, _, err := f.Pack.Info(e.ID)
			if err != nil || kind != object.Commit && kind != object.Tag {
				continue // verify reports what cannot be read
			}
			_, data, err := f.Pack.Get(e.ID)
			if err != nil {
				continue
			}
			if kind == object.Tag {
				out.tag(e.ID, data)
				continue
			}
			if c, err := repo.ParseCommit(e.ID, data); err == nil && c.Seq >= max(1, out.begin) {
				r.s.Graft(c)
				known := out.commits[c.ID]
				out.commits[c.ID] = &foundCommit{id: c.ID, parent: c.Parent, seq: c.Seq, task: c.Message.TaskID,
					doomed: !f.Doomed.IsZero() && (known == nil || known.doomed)}
			}
		}
	}
	return out, nil
}

func (o *found) tag(id object.ID, data []byte) {
	tag, err := object.ParseTag(data)
	if err != nil {
		return
	}
	info, err := message.ParseInfo(tag.Message)
	if err != nil || tag.Name != info.TagName() {
		return
	}
	when := info.Updated
	if when.IsZero() {
		when = tag.Tagger.When
	}
	if old := o.infos[info.TaskID]; old == nil || old.when.Before(when) {
		o.infos[info.TaskID] = &foundInfo{tag: id, base: tag.Object, when: when}
	}
}

// tip gives the newest commit from which all others can be reached; before is
// one that it must come from, unless zero.
func (o *found) tip(before object.ID) (object.ID, uint64) {
	list := make([]*foundCommit, 0, len(o.commits))
	for _, c := range o.commits {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *foundCommit) int {
		if a.doomed != b.doomed && a.seq == b.seq { // a history that was rewritten
			if a.doomed {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(b.seq, a.seq), strings.Compare(a.id.String(), b.id.String()))
	})
	for _, c := range list {
		at := c
		for at != nil && at.id != before && at.seq > max(1, o.begin) {
			next := o.commits[at.parent]
			if next != nil && next.seq != at.seq-1 {
				next = nil
			}
			at = next
		}
		if at != nil && (before.IsZero() || at.id == before) {
			return c.id, c.seq
		}
	}
	return object.ID{}, 0
}

// values puts the note right, and looks for whatever the history lacks.
func (r *repairer) values() (err error) {
	if r.note, err = refs.OpenNote(r.s.FS, "refs"); err != nil {
		return err
	}
	r.s.Note = r.note
	if err := r.s.LoadBoundary(r.ctx); err != nil {
		return err
	}
	values := r.note.All()
	delete(values, refs.Boundary)
	empty := len(values) == 0
	// First of all what is noted, or else what git shows: packs that lost their
	// .keep come back by it.
	seeds := r.note.All()
	delete(seeds, refs.Boundary)
	if seeds[refs.ShadowRef].IsZero() {
		if id, _, ok, err := r.s.Refs.Read(refs.ShadowRef); err == nil && ok {
			seeds[refs.ShadowRef] = id
		}
	}
	if err := r.reach(seeds); err != nil {
		return err
	}
	if err := r.writeSpare(); err != nil {
		return err
	}
	all, err := r.survey()
	if err != nil {
		return err
	}
	set := make(map[string]object.ID)
	change := func(name string, id object.ID) {
		if values[name] != id {
			set[name], values[name] = id, id
		}
	}
	r.tipValue(all, values, change)
	if tip := values[refs.ShadowRef]; !tip.IsZero() {
		if empty {
			for task, info := range all.infos {
				change(storedir.Tasks+task+"/info", info.tag)
			}
		}
		r.taskValues(all, values, change)
	}
	if len(set) > 0 {
		var changed []refs.Value
		for _, name := range slices.Sorted(maps.Keys(set)) {
			changed = append(changed, refs.Value{Name: name, ID: set[name]})
		}
		if err := r.note.Append(0, changed...); err != nil {
			return err
		}
		if err := r.reach(values); err != nil {
			return err
		}
	}
	return r.writeSpare()
}

// tipValue settles which commit is the history's newest.
func (r *repairer) tipValue(all *found, values map[string]object.ID, change func(string, object.ID)) {
	noted := values[refs.ShadowRef]
	if !noted.IsZero() {
		if c, err := r.commit(noted); err == nil {
			if id, seq := all.tip(noted); seq > c.Seq {
				change(refs.ShadowRef, id)
				r.out.Did("The ref log was older than the packs: the history goes on to number %d, %s.", seq, id)
			}
			return
		}
	}
	id, seq := all.tip(object.ID{})
	switch {
	case id.IsZero() && noted.IsZero():
		return // nothing was ever recorded, or all of it is in a journal
	case id.IsZero():
		r.out.Not("The history's newest commit %s is lost, and no commit before it is left.", noted)
		return
	case noted.IsZero():
		r.out.Did("The ref log had no newest commit: by the packs it is number %d, %s.", seq, id)
	default:
		r.out.Not("The history's newest commit %s is lost: it ends now with number %d, %s.", noted, seq, id)
	}
	change(refs.ShadowRef, id)
}

// taskValues completes the tasks of which something is noted, and takes back
// what is no more part of the history.
func (r *repairer) taskValues(all *found, values map[string]object.ID, change func(string, object.ID)) {
	heads := make(map[string]object.ID)
	in := make(map[object.ID]bool)
	for id := values[refs.ShadowRef]; ; {
		c := all.commits[id]
		if c == nil {
			break
		}
		in[id] = true
		if _, ok := heads[c.task]; !ok {
			heads[c.task] = id
		}
		id = c.parent
	}
	tasks := make(map[string]bool)
	for name := range values {
		if rest, ok := strings.CutPrefix(name, storedir.Tasks); ok {
			task, _, _ := strings.Cut(rest, "/")
			tasks[task] = true
		}
	}
	for task := range tasks {
		name := storedir.Tasks + task + "/"
		sound := func(which string) bool {
			_, _, err := r.get(values[name+which])
			return !values[name+which].IsZero() && err == nil
		}
		info := all.infos[task]
		if noted := r.whenOf(values[name+"info"]); info != nil && !noted.IsZero() && info.when.After(noted) {
			change(name+"info", info.tag)
			r.out.Did("The record of task %s: a newer one than was noted.", task)
		}
		if !sound("info") {
			if info == nil {
				r.out.Not("The record of task %s is lost.", task)
				continue
			}
			change(name+"info", info.tag)
			r.out.Did("The record of task %s: the newest that was found.", task)
		}
		if !in[values[name+"base"]] {
			if info == nil || !in[info.base] {
				r.out.Not("The base of task %s is lost.", task)
				continue
			}
			change(name+"base", info.base)
			r.out.Did("The base of task %s is %s, by its record.", task, info.base)
		}
		newest, ok := heads[task]
		if !ok {
			newest = values[name+"base"]
		}
		if values[name+"head"] != newest {
			change(name+"head", newest)
			r.out.Did("The head of task %s is %s, its newest commit.", task, newest)
		}
	}
}

// whenOf reports when a task's record was made; zero where it cannot be read.
func (r *repairer) whenOf(id object.ID) time.Time {
	o := &found{infos: make(map[string]*foundInfo)}
	if kind, data, err := r.get(id); err == nil && kind == object.Tag {
		o.tag(id, data)
	}
	for _, info := range o.infos {
		return info.when
	}
	return time.Time{}
}

// reach reads everything that the refs lead to, so that what is missing is
// looked for.
func (r *repairer) reach(values map[string]object.ID) error {
	r.seen = make(map[object.ID]bool)
	for name, id := range values {
		if name == refs.ShadowRef {
			continue
		}
		if _, _, err := r.get(id); err != nil && !errors.Is(err, errLost) {
			return err
		}
	}
	for id := values[refs.ShadowRef]; !id.IsZero(); {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		c, err := r.commit(id)
		if errors.Is(err, errLost) {
			return nil // tipValue and verify report it
		}
		if err != nil {
			return err
		}
		if err := r.reachTree(c.Tree, c); err != nil {
			return err
		}
		id = c.Parent
	}
	return nil
}

func (r *repairer) reachTree(id object.ID, of *repo.Commit) error {
	if r.seen[id] || id == object.EmptyTree {
		return nil
	}
	r.seen[id] = true
	_, data, err := r.get(id)
	if errors.Is(err, errLost) {
		r.out.Not("Tree %s of commit number %d is lost.", id, of.Seq)
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := object.ParseTree(data)
	if err != nil {
		return fmt.Errorf("tree %s: %w", id, err)
	}
	for _, e := range entries {
		if e.Mode == object.Dir {
			err = r.reachTree(e.ID, of)
		} else if !r.seen[e.ID] {
			r.seen[e.ID] = true
			err = r.reachBlob(e, of)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *repairer) reachBlob(e object.Entry, of *repo.Commit) error {
	f, err := r.s.Packs.Holding(e.ID)
	if err != nil {
		return err
	}
	if f != nil {
		f.Release()
		return nil
	}
	_, _, ok, err := r.find(e.ID)
	if err == nil && !ok {
		r.out.Not("The bytes of %q in commit number %d, %s, are lost.", e.Name, of.Seq, e.ID)
	}
	return err
}

// writeSpare gives the objects that were found where they do not stay a pack of
// ours.
func (r *repairer) writeSpare() error {
	if len(r.spare) == 0 {
		return nil
	}
	n, err := r.rescue(func(w *pack.Writer) error {
		for _, o := range r.spare {
			if _, err := w.Add(o.Kind, o.Data); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		r.spare = nil
		r.out.Did("%d objects were found loose, or in what was put aside, and are in a pack again.", n)
	}
	return err
}
