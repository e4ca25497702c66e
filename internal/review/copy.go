package review

import (
	"umbra/internal/state"
)

// Copy copies the rejections that wait on a workspace from one database to another. Those
// of tasks for which some wait there stay as they are, so it may be called again.
func Copy(from, to *state.DB, workspace string) error {
	list, err := state.All[waiting](from, heldBucket)
	if err != nil {
		return err
	}
	for _, x := range list {
		if x.Workspace != workspace {
			continue
		}
		err := to.Update(func(tx *state.Tx) error {
			if found, err := tx.Get(heldBucket, x.Task, &waiting{}); found || err != nil {
				return err
			}
			return tx.Put(heldBucket, x.Task, x)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
