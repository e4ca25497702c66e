package task

import (
	"maps"
	"slices"
	"sync"
	"time"

	"umbra/internal/state"
)

// The index follows the repositories a moment later. A transaction of the state
// database costs two fdatasyncs one after the other, and the repository, which
// is the truth, is durable by itself: so the database only has to know of which
// workspaces' tasks it may know less than their repositories. That is a mark,
// set before the first change and taken away once all is written and nothing
// happened for a while. A start reads the tasks of marked workspaces again.

// Behind is the bucket of the marks, by workspace.
const Behind = "tasks_behind"

const (
	lateAfter = time.Second      // how long records wait to be written together
	quietFor  = 10 * time.Second // how long a mark stays after the last change
)

// late is what the database does not know yet. All of it is guarded by index.mu.
type late struct {
	ids   map[string]struct{} // of records that are newer here
	marks map[string]*mark    // by workspace

	running, closed bool
	stop            chan struct{}
	writer          sync.WaitGroup
}

// mark is a workspace whose repository may know more than the database.
type mark struct {
	durable bool // the database has the mark
	using   int  // changes under way
	last    time.Time
}

func newLate() late {
	return late{ids: map[string]struct{}{}, marks: map[string]*mark{}, stop: make(chan struct{})}
}

// begin says that tasks of a workspace are about to change in its repository: a
// crash from here on is put right at the next start. When the change is done,
// or failed, end is called, once.
func (x *index) begin(workspace string) (end func(), err error) {
	x.mu.Lock()
	if x.shared && x.epochs[workspace] == 0 {
		x.mu.Unlock()
		return nil, errMoving()
	}
	epoch := x.epochs[workspace]
	m := x.late.marks[workspace]
	if m == nil {
		m = &mark{}
		x.late.marks[workspace] = m
	}
	m.using++
	durable := m.durable
	x.mu.Unlock()
	if !durable {
		err = x.putMark(workspace, epoch)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		m.using--
		return nil, err
	}
	m.durable = true
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		m.using--
		m.last = time.Now()
		x.writeLater()
	}, nil
}

// note sets a record between begin and end: here at once, in the database a
// moment later.
func (x *index) note(r Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	counted := false
	if _, ok := x.byID[r.ID]; !ok { // one that has ended and left memory
		old, found, err := x.find(r.ID)
		counted = found && err == nil && !old.Deleted
	}
	x.set(r)
	x.byID[r.ID].counted = x.byID[r.ID].counted || counted
	x.late.ids[r.ID] = struct{}{}
}

// change runs a transaction that writes or removes records. Pending late writes of
// these records are dropped when it begins, so that no older form of them is written
// after it.
func (x *index) change(ids []string, fn func(*state.Tx) error) error {
	var were []string
	err := x.db.Update(func(tx *state.Tx) error { // which may run it again
		x.mu.Lock()
		for _, id := range ids {
			if _, ok := x.late.ids[id]; ok {
				were = append(were, id)
				delete(x.late.ids, id)
			}
		}
		x.mu.Unlock()
		return fn(tx)
	})
	if err == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range were {
		x.late.ids[id] = struct{}{}
	}
	return err
}

// writeLater sees to a writer while there is something to write; mu is held.
func (x *index) writeLater() {
	if x.late.running || x.late.closed {
		return
	}
	x.late.running = true
	x.late.writer.Go(x.writeLate)
}

// writeLate writes what is late, until nothing is.
func (x *index) writeLate() {
	tick := time.NewTicker(lateAfter)
	defer tick.Stop()
	for {
		select {
		case <-x.late.stop:
			return
		case <-tick.C:
		}
		_ = x.flush(quietFor) // the marks stay: the next time, or a start, tries again
		x.mu.Lock()
		if len(x.late.ids) == 0 && !x.waiting() {
			x.late.running = false
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
	}
}

// waiting reports whether a mark is there that may go some time; mu is held.
func (x *index) waiting() bool {
	for _, m := range x.late.marks {
		if m.using == 0 {
			return true
		}
	}
	return false
}

// close ends the writer, and writes what is late.
func (x *index) close() error {
	x.mu.Lock()
	closed := x.late.closed
	x.late.closed = true
	x.mu.Unlock()
	if closed {
		return nil
	}
	close(x.late.stop)
	x.late.writer.Wait()
	return x.flush(0)
}

// flush writes what is late, and takes away the marks of workspaces where
// nothing happened for a time.
func (x *index) flush(quiet time.Duration) error {
	x.mu.Lock()
	idle := len(x.late.ids) == 0 && len(x.quiet(quiet)) == 0
	x.mu.Unlock()
	if idle {
		return nil
	}
	x.writing.Lock()
	defer x.writing.Unlock()
	var wrote, gone []string
	var recs []Record
	err := x.db.Update(func(tx *state.Tx) error { // which may run it again
		// Within the transaction: who marks a workspace or writes a record from
		// here on does so after it.
		x.mu.Lock()
		for id := range x.late.ids {
			wrote = append(wrote, id)
			if p, ok := x.byID[id]; ok {
				recs = append(recs, p.Record)
			}
		}
		clear(x.late.ids)
		for _, workspace := range x.quiet(quiet) {
			gone = append(gone, workspace)
			delete(x.late.marks, workspace)
		}
		epochs := maps.Clone(x.epochs)
		x.mu.Unlock()
		workspaces := slices.Clone(gone)
		for _, r := range recs {
			workspaces = append(workspaces, r.Workspace)
		}
		ours, err := x.allOurs(tx, workspaces, epochs)
		if err != nil {
			return err
		}
		for _, r := range recs {
			if !ours[r.Workspace] {
				continue // its next owner has read the repository
			}
			if err := x.putRecord(tx, r); err != nil {
				return err
			}
		}
		for _, workspace := range gone {
			if !ours[workspace] {
				continue
			}
			if err := tx.Delete(Behind, workspace); err != nil {
				return err
			}
		}
		return nil
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		for _, r := range recs {
			x.follow(r)
		}
		return nil
	}
	// A mark that went here and stays there costs a start some reading.
	for _, id := range wrote {
		x.late.ids[id] = struct{}{}
	}
	return err
}

// quiet lists the marked workspaces where nothing happened for a time; mu is
// held.
func (x *index) quiet(d time.Duration) []string {
	var out []string
	for workspace, m := range x.late.marks {
		if m.using == 0 && time.Since(m.last) >= d {
			out = append(out, workspace)
		}
	}
	return out
}

// behind lists the workspaces that the last process left marked.
func (x *index) behind() ([]string, error) {
	var out []string
	err := x.db.View(func(tx *state.Tx) error {
		return tx.ForEach(Behind, "", func(workspace string, _ []byte) (bool, error) {
			out = append(out, workspace)
			return true, nil
		})
	})
	return out, err
}

// keepMark keeps the mark of a workspace whose tasks could not be read, for the
// next start.
func (x *index) keepMark(workspace string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.late.marks[workspace] = &mark{durable: true, using: 1}
}

// caughtUp writes what a workspace's repository knows better, and takes its mark
// away.
func (x *index) caughtUp(workspace string, recs []Record) error {
	return x.write(recs, func(tx *state.Tx) error { return tx.Delete(Behind, workspace) })
}

// noteAll is caughtUp while the database cannot be written: the records are noted,
// and the mark is kept for the next start.
func (x *index) noteAll(workspace string, recs []Record) error {
	x.keepMark(workspace)
	end, err := x.begin(workspace)
	if err != nil {
		return err
	}
	defer end()
	for _, r := range recs {
		x.note(r)
	}
	return nil
}
