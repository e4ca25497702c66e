package access

import "umbra/internal/state"

// copiedBucket has the names of tokens that were copied, and stateKey where tokens were
// on: one that was removed since is not copied again.
const copiedBucket = "tokens_copied"

// Copy adds to a database the tokens of another one that it does not have and that were
// not copied before, and returns how many. Tokens are on there if they were here.
func Copy(from, to *state.DB) (copied int, err error) {
	all, err := state.Map[record](from, tokensBucket)
	if err != nil {
		return 0, err
	}
	on, err := Open(nil, from)
	if err != nil || !on.On() {
		return 0, err
	}
	b, err := Open(nil, to)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err = b.change(func(tx *state.Tx) error {
		copied = 0
		// once notes what was copied, by name and hash.
		once := func(key string) (first bool, err error) {
			found, err := tx.Get(copiedBucket, key, new(bool))
			if err != nil || found {
				return false, err
			}
			return true, tx.Put(copiedBucket, key, true)
		}
		for name, r := range all {
			first, err := once(name + "\x00" + r.SHA256)
			if err != nil {
				return err
			}
			found, err := tx.Get(tokensBucket, name, &record{})
			if err != nil {
				return err
			}
			if !first || found {
				continue
			}
			if err := tx.Put(tokensBucket, name, r); err != nil {
				return err
			}
			copied++
		}
		first, err := once(stateKey)
		if err != nil || !first || b.page.Load().kept {
			return err
		}
		var since any
		if _, err := from.Get(stateBucket, stateKey, &since); err != nil {
			return err
		}
		return tx.Put(stateBucket, stateKey, since)
	})
	return copied, err
}
