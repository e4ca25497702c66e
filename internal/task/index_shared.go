package task

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"umbra/gitstore/sink"
	"umbra/internal/errs"
	"umbra/internal/idem"
	"umbra/internal/state"
)

// Several processes share a database. Each workspace has one owner, which alone
// changes its tasks, and which others take for deposed without its knowing. A mark
// (index_late.go) has the owner's epoch there, and a record is changed in a transaction
// that finds the mark of this epoch: the next owner, which finds the mark of another
// one, reads the repository first and removes it.

// errMoving is for a change of a workspace that this process does not own any more.
func errMoving() error { return sink.Fenced(true, nil) }

// lateError is the error of a record that was not written after its repository was.
func lateError(err error) error {
	if errors.Is(err, sink.ErrRefused) {
		return sink.Unknown(err)
	}
	return errs.Wrap(err, "")
}

// putMark marks a workspace.
func (x *index) putMark(workspace string, epoch int64) error {
	if !x.shared {
		return x.db.Put(Behind, workspace, true)
	}
	return x.db.Update(func(tx *state.Tx) error {
		var has int64
		if _, err := tx.Get(Behind, workspace, &has); err != nil {
			return err
		}
		switch {
		case has == epoch:
			return nil
		case has > epoch:
			return errMoving()
		}
		// One of an owner that was deposed before it changed anything.
		return tx.Put(Behind, workspace, epoch)
	})
}

// ours reports whether the mark of a workspace is that of an epoch.
func (x *index) ours(tx *state.Tx, workspace string, epoch int64) (bool, error) {
	if !x.shared {
		return true, nil
	}
	var has int64
	_, err := tx.Get(Behind, workspace, &has)
	return has == epoch && epoch != 0, err
}

// allOurs is like ours for several workspaces, by one read.
func (x *index) allOurs(tx *state.Tx, workspaces []string, epochs map[string]int64) (map[string]bool, error) {
	ours := make(map[string]bool, len(workspaces))
	for _, workspace := range workspaces {
		ours[workspace] = !x.shared
	}
	if !x.shared {
		return ours, nil
	}
	err := tx.GetMany(Behind, slices.Collect(maps.Keys(ours)), func(workspace string, raw []byte) error {
		var has int64
		err := json.Unmarshal(raw, &has)
		ours[workspace] = has == epochs[workspace] && has != 0
		return err
	})
	return ours, err
}

// epoch returns the epoch under which this process owns a workspace, 0 if it does not.
func (x *index) epoch(workspace string) int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.epochs[workspace]
}

// keep sets a record between begin and end, where the epoch was that of begin. In a
// shared database it is durable when keep returns; else it is as note's.
func (x *index) keep(r Record, epoch int64) error {
	if !x.shared {
		x.note(r)
		return nil
	}
	err := x.write([]Record{r}, x.fence(r.Workspace, epoch))
	if err != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.epochs[r.Workspace] == epoch {
			x.set(r)
			x.late.ids[r.ID] = struct{}{}
		}
		return lateError(err)
	}
	return nil
}

// fence fails where the workspace has another owner by now.
func (x *index) fence(workspace string, epoch int64) func(tx *state.Tx) error {
	return func(tx *state.Tx) error {
		ours, err := x.ours(tx, workspace, epoch)
		if err == nil && !ours {
			err = errMoving()
		}
		return err
	}
}

func (x *index) reserveShared(r Record) (bool, error) {
	epoch, taken := x.epoch(r.Workspace), false
	err := x.db.Update(func(tx *state.Tx) (err error) {
		if err := notBegun(tx, r); err != nil {
			return err
		}
		if _, taken, err = stored(tx, r.ID); err != nil || taken {
			return err
		}
		if err := x.fence(r.Workspace, epoch)(tx); err != nil {
			return err
		}
		return x.putRecord(tx, r)
	})
	if err != nil || taken {
		return false, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.epochs[r.Workspace] == epoch {
		x.follow(r.short())
	}
	return true, nil
}

// notBegun returns errBegun where the request that makes a task makes one on another workspace.
func notBegun(tx *state.Tx, r Record) error {
	id := ""
	if r.KeyHash == "" {
		return nil
	}
	if _, err := tx.Get(byKey, r.KeyHash, &id); err != nil || id == "" {
		return err
	}
	other, found, err := stored(tx, id)
	if err == nil && found && !other.Deleted && other.Workspace != r.Workspace && idem.Remembered(other.Created, r.Created) {
		err = errBegun
	}
	return err
}

// releaseShared removes a reserved record. Where that fails it is settled when the
// workspace is next entered.
func (x *index) releaseShared(id string) {
	err := x.change([]string{id}, func(tx *state.Tx) error {
		r, found, err := stored(tx, id)
		if err != nil || !found || !r.Pending {
			return err
		}
		return x.deleteRecord(tx, id)
	})
	if err == nil {
		x.forget(id)
	}
}

// liveOf returns the live records of a workspace, and the epoch of its mark, 0 if it
// has none.
func (x *index) liveOf(workspace string) (recs []Record, mark int64, err error) {
	err = x.db.View(func(tx *state.Tx) error {
		if _, err := tx.Get(Behind, workspace, &mark); err != nil {
			return err
		}
		var ids []string
		err := within(tx, liveOn, workspace+"\x00", func(id string, _ []byte) error {
			ids = append(ids, id)
			return nil
		})
		if err != nil {
			return err
		}
		return eachOf(tx, ids, func(r Record) { recs = append(recs, r) })
	})
	return recs, mark, err
}

// some returns those of several records that the database has, by id.
func (x *index) some(ids []string) (map[string]Record, error) {
	out := make(map[string]Record, len(ids))
	err := x.db.View(func(tx *state.Tx) error {
		return eachOf(tx, ids, func(r Record) { out[r.ID] = r })
	})
	return out, err
}

// takeOver writes what a workspace's repository knows better, and removes the mark of
// an owner before this one.
func (x *index) takeOver(workspace string, mark int64, news []Record, gone []string) error {
	return x.db.Update(func(tx *state.Tx) error {
		if err := x.fence(workspace, mark)(tx); err != nil {
			return err
		}
		for _, r := range news {
			if err := x.putRecord(tx, r); err != nil {
				return err
			}
		}
		for _, id := range gone {
			if err := x.deleteRecord(tx, id); err != nil {
				return err
			}
		}
		return tx.Delete(Behind, workspace)
	})
}

// enter takes over the live records of a workspace that this process owns now.
func (x *index) enter(workspace string, epoch int64, live []Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.epochs[workspace] = epoch
	for _, r := range live {
		x.follow(r.short())
	}
}

// leave forgets a workspace that this process does not own any more. flush: it still
// does, and what is late is written.
func (x *index) leave(workspace string, flush bool) error {
	var err error
	if flush {
		x.mu.Lock()
		if m := x.late.marks[workspace]; m != nil && m.using == 0 {
			m.last = m.last.Add(-quietFor)
		}
		x.mu.Unlock()
		err = x.flush(quietFor)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.epochs, workspace)
	delete(x.late.marks, workspace)
	ids := make([]string, 0, len(x.byWS[workspace]))
	for id := range x.byWS[workspace] {
		ids = append(ids, id)
	}
	for _, id := range ids {
		x.drop(id)
		delete(x.late.ids, id)
	}
	return err
}
