// Package clones lists the clients that took a workspace's history by the server's git
// URLs, for an owner who purges something from it.
package clones

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"umbra/internal/vfs"
)

// clonesFile is the file of the list, which is not synced and holds the latest.
const (
	clonesFile = "clones"
	maxClones  = 500
	clonesFor  = time.Minute // the least time between two notes of the same one
)

// Clone is a client that cloned or fetched.
type Clone struct {
	Who   string    `json:"who"`  // the token's name; empty: none was asked for
	From  string    `json:"from"` // address of the other end
	What  string    `json:"what"` // "fetch", "bundle", "patches"
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Count uint64    `json:"count"`
}

// Log is the list of one workspace. The zero value is not read yet.
type Log struct {
	mu    sync.Mutex
	list  []Clone
	known bool // list was read
}

// Note records that a client took history, at a time.
func (l *Log) Note(files vfs.FS, who, from, what string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.read(files); err != nil {
		return err
	}
	now = now.UTC().Truncate(time.Second)
	i := slices.IndexFunc(l.list, func(c Clone) bool { return c.Who == who && c.From == from && c.What == what })
	if i < 0 {
		l.list = append(l.list, Clone{Who: who, From: from, What: what, First: now})
		i = len(l.list) - 1
	}
	c := &l.list[i]
	fresh := c.Count == 0 || now.Sub(c.Last) >= clonesFor
	c.Last = now
	c.Count++
	if !fresh {
		return nil
	}
	if len(l.list) > maxClones {
		slices.SortFunc(l.list, newestClone)
		l.list = l.list[:maxClones]
	}
	return l.write(files)
}

// List returns who took history, the latest first.
func (l *Log) List(files vfs.FS) ([]Clone, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.read(files); err != nil {
		return nil, err
	}
	out := slices.Clone(l.list)
	slices.SortFunc(out, newestClone)
	return out, nil
}

func newestClone(a, b Clone) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.From, b.From)) }

func (l *Log) read(files vfs.FS) error {
	if l.known {
		return nil
	}
	data, err := vfs.ReadFile(files, clonesFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && json.Unmarshal(data, &l.list) != nil {
		l.list = nil // torn by a power cut
	}
	l.known = true
	return nil
}

func (l *Log) write(files vfs.FS) error {
	data, err := json.Marshal(l.list)
	if err != nil {
		return err
	}
	const temp = clonesFile + ".new"
	f, err := files.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return files.Rename(temp, clonesFile)
}
