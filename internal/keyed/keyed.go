// Package keyed has mutual exclusion by key: what is done for one key does not wait for
// what is done for another.
package keyed

import "sync"

// Mutex is one mutex for each key that is in use. The zero value is ready.
type Mutex struct {
	mu   sync.Mutex
	held map[string]*entry
}

type entry struct {
	sync.Mutex
	users int
}

// Lock waits for a key and returns what unlocks it.
func (k *Mutex) Lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*entry{}
	}
	e := k.held[key]
	if e == nil {
		e = &entry{}
		k.held[key] = e
	}
	e.users++
	k.mu.Unlock()
	e.Lock()
	return func() {
		e.Unlock()
		k.mu.Lock()
		if e.users--; e.users == 0 {
			delete(k.held, key)
		}
		k.mu.Unlock()
	}
}
